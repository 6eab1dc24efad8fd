//! Settings that change while connections are made: another scheduler, other addresses for node ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{CLIENTS, Lab, SERVED};
use crate::checks::Checks;
use crate::harness::loads::Loads;
use crate::program::Program;
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::Protocol;
use crate::traffic::load::Rate;

pub(super) const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: none, ports: [{name: http, containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http, nodePort: 30080}]
";
const NODE_PORT: u16 = 30080;
/// New connections a second of each client.
const PER_SECOND: u32 = 20;
/// Pause between two changes.
const PAUSE: Duration = Duration::from_secs(6);
/// A load that reaches less than this share of its rate proves nothing.
const ENOUGH: f64 = 0.5;

/// Each change, and its result in the kernels.
const CHANGES: [(&str, &str, bool); 4] = [
    (r#"{"scheduler":"mh"}"#, "mh", false),
    (
        r#"{"nodePortAddresses":["192.168.50.0/24","10.244.0.0/16"]}"#,
        "mh",
        true,
    ),
    (r#"{"scheduler":"rr"}"#, "rr", true),
    (r#"{"nodePortAddresses":["192.168.50.0/24"]}"#, "rr", false),
];

pub(super) fn web() -> SocketAddr {
    (Ipv4Addr::new(10, 96, 0, 10), 80).into()
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("settings that change under traffic");
    let ports = Node::ALL.map(|node| (node.address(Family::IPv4), NODE_PORT).into());
    let from = [
        (CLIENTS[0], vec![web()]),
        (CLIENTS[1], vec![web()]),
        (Resident::Outside, ports.to_vec()),
    ];
    for (client, targets) in &from {
        for target in targets {
            lab.wait_answer(*client, *target)?;
        }
    }
    let start = Instant::now() + Duration::from_millis(200);
    let steps = u32::try_from(CHANGES.len()).unwrap_or(u32::MAX);
    let mut loads = Loads::at(start);
    for (client, targets) in from {
        let rate = Rate {
            protocol: Protocol::Tcp,
            targets,
            per_second: PER_SECOND,
            lasts: PAUSE * (steps + 1),
            deadline: lab.limit(Duration::from_secs(2)),
        };
        loads.add(client.name(), lab.topology.of(client)?, rate)?;
    }
    let mut changed = Ok(());
    for (number, (settings, scheduler, wide)) in (1..).zip(CHANGES) {
        crate::waits::sleep_until(start + PAUSE * number)?;
        changed = changed.and_then(|()| change(lab, settings, scheduler, wide));
    }
    for load in loads.finish()? {
        lab.line(&load.summary("new connections"));
        let what = format!(
            "{}: no new connection fails at a frontend that exists before and after",
            load.name
        );
        checks.check(&what, load.none_failed(ENOUGH));
    }
    checks.check("each change is in force on both nodes", changed);
    Ok(())
}

/// Writes settings and waits until both kernels have them.
fn change(lab: &Lab<'_>, settings: &str, scheduler: &str, wide: bool) -> Result<()> {
    let settings: Value = serde_json::from_str(settings)?;
    let patch = json!({"spec": {"settings": settings}}).to_string();
    let words = [
        "patch",
        "proxyconfig",
        "default",
        "--type=merge",
        "-p",
        &patch,
    ];
    lab.kubectl(&words, "")?;
    for node in Node::ALL {
        let gateway: IpAddr = node.gateway(Family::IPv4);
        let at_gateway = format!("TCP  {gateway}:{NODE_PORT} ");
        let wanted = format!("TCP  {}:80 {scheduler}", web().ip());
        let in_force = || {
            let list = lab.tool(node, Program::Ipvsadm, "-L -n")?;
            let right = list.lines().any(|line| line.starts_with(&wanted));
            ensure!(right && list.contains(&at_gateway) == wide, "{list}");
            Ok(())
        };
        let what = format!("{patch} on {}", node.name());
        lab.eventually(&what, SERVED, in_force)
            .map_err(|error| lab.cluster.with_logs(error))?;
    }
    Ok(())
}
