//! Responses of a real agent to load balancers and scrapers: health checks of Services (healthCheckNodePort),
//! `/healthz`, `/livez` and metrics, at node addresses and load balancer addresses, over both families.

mod node;
mod ports;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::files::{CLUSTER, HEALTH};
use crate::harness::{self, proxy_config};
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::http::Response;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "health",
    shows: "load balancers and scrapers get the applied state of the node, whatever else changes",
    run,
};

/// The node under test.
const NODE: Node = Node::A;
/// The health check port of `shop/counted`.
const PORT: u16 = 32_110;
const HEALTHZ: u16 = 10_256;
const METRICS: u16 = 10_249;
/// A node is late after twice this.
const PERIOD: Duration = Duration::from_secs(5);
/// From a change of readiness to the answer of the port.
const AT_ONCE: Duration = Duration::from_secs(1);

type Lab<'a> = harness::Lab<'a>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = Lab::new(stage, Network::Routed)?;
    lab.serve_pods()?;
    lab.write("nodes.yaml", &stage.files.text(CLUSTER[0])?)?;
    lab.write("services.yaml", &stage.files.text(HEALTH)?)?;
    lab.write("settings.yaml", &settings(HEALTHZ, METRICS))?;
    lab.write("endpoints.yaml", &endpoints(&[1, 2]))?;
    lab.write("other.yaml", &other(0))?;
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("health check ports", ports::answered),
            ("readiness", ports::readiness),
            ("changes of others", ports::undisturbed),
            ("a firewall", ports::firewall),
            ("a port that is taken", ports::taken),
            ("metrics", node::metrics),
            ("a taint", node::tainted),
            ("no controller", node::without_controller),
            ("a failure that lasts", node::late),
            // Last, because they close ports that the other parts use.
            ("ports of the node that move", node::moved),
            ("a health check port that moves", ports::moved),
        ],
    )
}

fn settings(healthz: u16, metrics: u16) -> String {
    let period = PERIOD.as_secs();
    proxy_config(&[
        &format!("sync: {{period: {period}s}}"),
        &format!("healthz: {{port: {healthz}}}"),
        &format!("metrics: {{port: {metrics}}}"),
    ])
}

/// Slices of `shop/counted`: all pods of the node and one of the other node. Of the node's pods,
/// these are ready over IPv4, and only the first of them over IPv6.
fn endpoints(ready: &[u8]) -> String {
    let mut text = String::new();
    for family in Family::ALL {
        let count = match family {
            Family::IPv4 => ready.len(),
            Family::IPv6 => ready.len().min(1),
        };
        let ready = &ready[..count];
        let _: std::fmt::Result = write!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  {{name: \
             counted-{name}, namespace: shop, labels: {{kubernetes.io/service-name: counted}}}}\n\
             addressType: {family}\nports:\n- {{name: http, protocol: TCP, port: 8080}}\nendpoints:\n",
            name = family.to_string().to_lowercase(),
        );
        for pod in Pod::all().filter(|pod| pod.node == NODE || pod.number == 1) {
            let (address, node) = (pod.address(family), pod.node.name());
            let ready = pod.node != NODE || ready.contains(&pod.number);
            text += &format!(
                "- {{addresses: [\"{address}\"], nodeName: {node}, conditions: {{ready: {ready}}}}}\n"
            );
        }
    }
    text
}

/// Another Service, which has nothing to do with `shop/counted`.
fn other(round: usize) -> String {
    let pod = 11 + round % 3;
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: other, namespace: shop}}\nspec:\n  \
         clusterIP: 10.96.4.2\n  clusterIPs: [10.96.4.2]\n  ports:\n  - {{name: http, protocol: TCP, \
         port: 80, targetPort: 8080}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata:\n  {{name: other, namespace: shop, labels: {{kubernetes.io/service-name: other}}}}\n\
         addressType: IPv4\nports:\n- {{name: http, protocol: TCP, port: 8080}}\nendpoints:\n\
         - {{addresses: [\"10.244.1.{pod}\"], nodeName: node-a, conditions: {{ready: true}}}}\n"
    )
}

/// The balancer's address of `shop/counted`.
fn balancer(family: Family) -> IpAddr {
    match family {
        Family::IPv4 => [203, 0, 113, 71].into(),
        Family::IPv6 => [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 0x71].into(),
    }
}

/// The expected response of a port.
#[derive(Debug, Clone, Copy)]
struct Says {
    status: u16,
    count: u32,
    healthy: bool,
}

/// Whether a response is that of the health check port of `shop/counted`, whole (S-137, S-138).
fn says(response: &Response, says: Says) -> Result<()> {
    let Says {
        status,
        count,
        healthy,
    } = says;
    let body = format!(
        "{{\"service\":{{\"namespace\":\"shop\",\"name\":\"counted\"}},\"localEndpoints\":{count},\
         \"serviceProxyHealthy\":{healthy}}}"
    );
    let weight = format!("x-load-balancing-endpoint-weight: {count}\r\n");
    let right = response.status == status && response.body == body;
    ensure!(
        right && response.head.contains(&weight),
        "{} {} {}",
        response.status,
        response.head,
        response.body
    );
    Ok(())
}

/// The answer of the node's own health port at this path.
fn ask_node(lab: &Lab<'_>, path: &str) -> Result<Response> {
    let target = (NODE.address(Family::IPv4), HEALTHZ).into();
    lab.get(Resident::Outside, target, path)
}

/// The answer of the health check port of `shop/counted` over a family.
fn ask_port(lab: &Lab<'_>, family: Family) -> Result<Response> {
    let target = (NODE.address(family), PORT).into();
    lab.get(Resident::Outside, target, "/")
}

/// Names and types of all metrics in a text.
fn types(text: &str) -> BTreeSet<&str> {
    let types = text.lines().map(|line| line.strip_prefix("# TYPE "));
    types.flatten().collect()
}
