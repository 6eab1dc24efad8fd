//! A tenant creates the largest Services that the API server accepts. They are cut and reported, and changes to other
//! Services reach every node as fast as before (S-228).

use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::bulk::Bulk;
use super::memory::object;
use super::probes::{Probes, SLOWER, p99};
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "limits",
    shows: "the largest Services that the API server accepts cost only themselves",
    run,
};

const NODES: u8 = 4;
/// Services of other tenants.
const HONEST: usize = 20;
/// Changes of their endpoints in each measurement. These last many times as long as the tenant's Services take to plan.
const CHANGES: usize = 1200;
/// Until everything that the tenant created is planned, on hardware.
const PLANNED: Duration = Duration::from_secs(90);
/// Ports with source ranges, and the number of ranges: 191,000 set entries.
const GUARDED_PORTS: u16 = 191;
const RANGES: u16 = 1000;
/// Ports of the Services with many endpoints, and their endpoints: 300,000 real servers.
const PORTS: u16 = 1000;
const ENDPOINTS: u16 = 300;
/// Endpoints on one node, of which each has all ports.
const ON_ONE_NODE: u16 = 110;
/// The tenant's Services: many source ranges, many endpoints, and many endpoints on one node.
const LARGE: [&str; 3] = ["large-guarded", "large-listed", "large-local"];

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let options = Options {
        controllers: vec!["namespace-controller".into()],
        ..Options::default()
    };
    let mut rig = Rig::start(stage, options, NODES, 1)?;
    rig.start_controller()?;
    rig.start_agents(NODES)?;
    rig.wait_first_plans()?;
    run_parts(&mut rig, checks, &[("a tenant at all limits", tenant)])
}

fn tenant(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    let bulk = Bulk::new(&rig.plane.kubeconfig(Reach::Here))?;
    let mut probes = Probes::create(&bulk, HONEST)?;
    rig.wait_equal(PLANNED)?;
    let streams = rig.agents()?.streams();
    // Half of the quiet measurement is before and half after the other one, because the speed of a machine varies.
    let mut quiet = probes.measure(rig, &bulk, CHANGES / 2)?;
    create_large(rig, &bulk)?;
    let beside = probes.measure(rig, &bulk, CHANGES)?;
    delete_large(rig)?;
    rig.wait_equal(PLANNED)?;
    quiet.extend(probes.measure(rig, &bulk, CHANGES / 2)?);
    create_large(rig, &bulk)?;
    let (quiet, beside) = (p99(&quiet)?, p99(&beside)?);
    rig.stage.console.line(&format!(
        "99 % of changes reach {NODES} agents within {quiet:.1} ms, beside the largest Services within {beside:.1} ms"
    ));
    checks.require(
        &format!(
            "changes to other Services reach every node within {SLOWER} times the time without them"
        ),
        beside <= quiet * SLOWER,
        &format!("{quiet:.1} ms alone, {beside:.1} ms beside the largest Services"),
    );
    checks.check(
        "every agent has the largest Services",
        every_agent_has_them(rig),
    );
    checks.check(
        "every agent's plan equals one made from scratch",
        rig.wait_equal(PLANNED),
    );
    checks.check(
        "each cut is a warning on its Service, and on no other",
        warned(rig, &LARGE),
    );
    let after = rig.agents()?.streams();
    let opened = format!("{} were opened", after - streams);
    checks.require("no stream ended", after == streams, &opened);
    rig.start_agents(NODES)?;
    checks.check(
        "agents that start beside them have the same plans",
        rig.wait_equal(PLANNED),
    );
    checks.check(
        "no warning is left once they are deleted",
        delete_large(rig),
    );
    checks.check(
        "every agent's plan equals one made from scratch again",
        rig.wait_equal(PLANNED),
    );
    Ok(())
}

fn create_large(rig: &Rig<'_>, bulk: &Bulk) -> Result<()> {
    let listed = [LARGE[1], LARGE[2]].map(|name| many_ports(name, PORTS));
    bulk.create("default", [guarded()].into_iter().chain(listed))?;
    let spread = (0..ENDPOINTS).map(|number| (number, format!("node-{}", number % 4 + 1)));
    let local = (0..ON_ONE_NODE).map(|number| (number, "node-1".to_owned()));
    bulk.create(
        "default",
        [
            slice(LARGE[1], spread.collect()),
            slice(LARGE[2], local.collect()),
        ],
    )?;
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::9"}]}}});
    let words = [
        "patch",
        "service",
        LARGE[0],
        "--subresource=status",
        "--type=merge",
        "-p",
        &ingress.to_string(),
    ];
    rig.plane.kubectl(&words)?;
    Ok(())
}

/// Deletes the tenant's Services, and waits until no warning is left.
fn delete_large(rig: &Rig<'_>) -> Result<()> {
    for name in LARGE {
        rig.plane.kubectl(&[
            "delete",
            "service,endpointslice",
            name,
            "--ignore-not-found",
        ])?;
    }
    warned(rig, &[])
}

fn every_agent_has_them(rig: &Rig<'_>) -> Result<()> {
    rig.eventually("every agent to have the largest Services", PLANNED, || {
        let agents = rig.agents()?;
        for node in agents.nodes() {
            for name in LARGE {
                let ports = agents.ports(node, "default", name);
                ensure!(ports > 0, "{node} does not have {name}");
            }
        }
        Ok(())
    })
}

/// Waits until the ProxyConfig's warnings are about exactly these Services.
fn warned(rig: &Rig<'_>, wanted: &[&str]) -> Result<()> {
    rig.eventually("the warnings to be published", PLANNED, || {
        let text = rig
            .plane
            .kubectl(&["get", "proxyconfig", "default", "-o", "json"])?;
        let config: Value = serde_json::from_str(&text)?;
        let warnings = config.pointer("/status/warnings").and_then(Value::as_array);
        let mut found: Vec<_> = warnings
            .into_iter()
            .flatten()
            .filter_map(|warning| warning["object"].as_str()?.strip_prefix("Service default/"))
            .collect();
        found.sort_unstable();
        found.dedup();
        ensure!(found == wanted, "there are warnings about {found:?}");
        Ok(())
    })
}

fn ports(count: u16) -> Vec<Value> {
    let port = |number: u16| json!({"name": format!("port-{number}"), "port": 2000 + number});
    (0..count).map(port).collect()
}

fn guarded() -> Service {
    let range = |number: u16| format!("2001:db8:{number:x}::/48");
    let ranges: Vec<_> = (0..RANGES).map(range).collect();
    object(json!({
        "metadata": {"name": LARGE[0]},
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": false,
            "ipFamilies": ["IPv6"],
            "ports": ports(GUARDED_PORTS),
            "loadBalancerSourceRanges": ranges,
        },
    }))
}

fn many_ports(name: &str, count: u16) -> Service {
    object(json!({
        "metadata": {"name": name},
        "spec": {"ipFamilies": ["IPv6"], "ports": ports(count)},
    }))
}

/// A slice in which every endpoint has every port.
fn slice(name: &str, endpoints: Vec<(u16, String)>) -> EndpointSlice {
    let endpoint = |(number, node): (u16, String)| {
        let address = Ipv6Addr::new(0xfd00, 0x10, 0x244, 9, 0, 0, 0, 1 + number);
        json!({"addresses": [address], "nodeName": node})
    };
    let endpoints: Vec<_> = endpoints.into_iter().map(endpoint).collect();
    object(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv6",
        "ports": ports(PORTS),
        "endpoints": endpoints,
    }))
}
