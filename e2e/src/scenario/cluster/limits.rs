//! A tenant creates the largest Services that the API server accepts. They are cut and reported, and changes to other
//! Services reach every node as fast as before (S-228).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::bulk::Bulk;
use super::memory::object;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::waits;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "limits",
    shows: "the largest Services that the API server accepts cost only themselves",
    run,
};

const NODES: u8 = 4;
/// Services of other tenants, and changes of their endpoints in each measurement.
const HONEST: usize = 20;
const CHANGES: usize = 100;
/// The compared share of the changes, and how much slower it may become.
const SHARE: f64 = 0.95;
const SLOWER: f64 = 1.5;
/// Pause between two changes. Their sum is several times what the tenant's Services take to plan.
const EVERY: Duration = Duration::from_millis(60);
/// Limits of waits, on hardware: one change, and everything that the tenant created.
const CHANGED: Duration = Duration::from_secs(20);
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
    bulk.create("default", (0..HONEST).map(honest))?;
    bulk.create("default", (0..HONEST).map(|number| honest_slice(number, 0)))?;
    rig.wait_equal(PLANNED)?;
    let quiet = changes(rig, &bulk, 1)?;
    let streams = rig.agents()?.streams();
    create_large(rig, &bulk)?;
    let beside = changes(rig, &bulk, 2)?;
    rig.stage.console.line(&format!(
        "{:.0} % of changes reach {NODES} agents within {quiet:.1} ms, beside the largest Services within {beside:.1} ms",
        SHARE * 100.0
    ));
    checks.require(
        &format!("changes to other Services reach every node within {SLOWER} times the usual time"),
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
    for name in LARGE {
        rig.plane.kubectl(&[
            "delete",
            "service,endpointslice",
            name,
            "--ignore-not-found",
        ])?;
    }
    checks.check("no warning is left once they are deleted", warned(rig, &[]));
    checks.check(
        "every agent's plan equals one made from scratch again",
        rig.wait_equal(PLANNED),
    );
    Ok(())
}

/// Changes the endpoints of the honest Services one by one. Milliseconds from the answer of the API server until
/// every agent has the change, for the given share of them.
fn changes(rig: &Rig<'_>, bulk: &Bulk, round: u8) -> Result<f64> {
    let mut taken = Vec::new();
    let mut next = Instant::now();
    for change in 0..CHANGES {
        let number = change % HONEST;
        let version = u16::from(round) * 1000 + u16::try_from(change)?;
        let endpoint = endpoint(number, version);
        let patch = json!({"endpoints": [{"addresses": [endpoint], "nodeName": "node-1"}]});
        bulk.run(async |client: Client| {
            let slices: Api<EndpointSlice> = Api::default_namespaced(client);
            let params = PatchParams::default();
            slices
                .patch(&name(number), &params, &Patch::Merge(patch))
                .await?;
            Ok(())
        })?;
        let stored = Instant::now();
        arrived(rig, &name(number), endpoint)?;
        taken.push(stored.elapsed().as_secs_f64() * 1000.0);
        next = (next + EVERY).max(Instant::now());
        waits::sleep_until(next)?;
    }
    taken.sort_by(f64::total_cmp);
    let behind = taken.iter().rev().nth(CHANGES / 20);
    behind.copied().context("no change was measured")
}

/// Waits until every agent has this endpoint of a Service.
fn arrived(rig: &Rig<'_>, service: &str, endpoint: IpAddr) -> Result<()> {
    let agents = rig.agents()?;
    let limit = rig.stage.waits.limit(CHANGED);
    let start = Instant::now();
    loop {
        let has = |node: &str| {
            agents
                .endpoints(node, "default", service)
                .contains(&endpoint)
        };
        let Some(without) = agents.nodes().find(|node| !has(node)) else {
            return Ok(());
        };
        ensure!(
            start.elapsed() < limit,
            "{without} does not have endpoint {endpoint} of {service} after {limit:?}"
        );
        waits::sleep_until(Instant::now() + Duration::from_millis(1))?;
    }
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

fn name(number: usize) -> String {
    format!("honest-{number}")
}

/// An address that no other Service and no other version has.
fn endpoint(number: usize, version: u16) -> IpAddr {
    let [high, low] = version.to_be_bytes();
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    [10, 100 + number, high, low].into()
}

fn honest(number: usize) -> Service {
    object(json!({
        "metadata": {"name": name(number)},
        "spec": {"ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80}]},
    }))
}

fn honest_slice(number: usize, version: u16) -> EndpointSlice {
    object(json!({
        "metadata": {
            "name": name(number),
            "labels": {"kubernetes.io/service-name": name(number)},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [endpoint(number, version)], "nodeName": "node-1"}],
    }))
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
    let endpoint = |(number, node): (u16, String)| json!({"addresses": [format!("fd00:10:244:9::{number:x}")], "nodeName": node});
    let endpoints: Vec<_> = endpoints.into_iter().map(endpoint).collect();
    object(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv6",
        "ports": ports(PORTS),
        "endpoints": endpoints,
    }))
}
