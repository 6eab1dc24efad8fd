//! A Service with 5,000 pods is rolled out while agents join: each agent receives its whole plan once, and all have the
//! last change soon after it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use portolan_agent::receive::{Access, Address};
use serde_json::{Value, json};

use super::bulk::Bulk;
use super::memory::object;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::run_parts;
use crate::light_agents::LightAgents;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::traffic::http;
use crate::waits::{LATER, SOON, sleep_until};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "rolling",
    shows: "agents join while a Service with 5,000 pods is rolled out: each receives one whole plan",
    run,
};

const NODES: u32 = 200;
const SLICES: u32 = 50;
const PODS_A_SLICE: u32 = 100;
/// Replaced pods, one after the other.
const CHANGES: u32 = 1000;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(20);
const NAME: &str = "rolled";

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    // The scenario writes the slices itself.
    let options = Options {
        controllers: vec!["namespace-controller".into()],
        ..Options::default()
    };
    let mut rig = Rig::start(stage, options, u8::try_from(NODES)?, 1)?;
    run_parts(&mut rig, checks, &[("a rollout", rolled)])
}

fn rolled(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    let stage = rig.stage;
    let bulk = Bulk::new(&rig.plane.kubeconfig(Reach::Here))?;
    bulk.create("default", [service()])?;
    bulk.create("default", (0..SLICES).map(slice))?;
    let socket = rig.file("rolling.sock");
    let listen = format!("unix:{}", socket.display());
    rig.start_controller_with(&["--listen", &listen, "--insecure", "--admin", "127.0.0.1:0"])?;
    let access = Access::insecure(Address::Unix(socket));
    let mut agents = LightAgents::start_with([("node-1".to_owned(), access.clone())])?;
    rig.eventually("a first plan", LATER, || has(&agents, pod(CHANGES, 0)))?;
    let mut joining = (2..=NODES).map(|number| format!("node-{number}"));
    let start = Instant::now();
    for change in 1..=CHANGES {
        bulk.run(async |client| replace(client, change).await)?;
        if change % (CHANGES / NODES) == 0
            && let Some(node) = joining.next()
        {
            agents.add(node, "light", access.clone())?;
        }
        sleep_until(start + PAUSE * change)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    stage.console.line(&format!(
        "{CHANGES} of {} pods replaced in {seconds:.0} s",
        SLICES * PODS_A_SLICE
    ));
    let ended = Instant::now();
    checks.check(
        "all agents have the last change soon after it",
        rig.eventually("the last change", SOON, || {
            has(&agents, pod(CHANGES - 1, CHANGES))
        }),
    );
    let seconds = ended.elapsed().as_secs_f64();
    stage
        .console
        .line(&format!("all agents had it after {seconds:.1} s"));
    let first = whole_plans(rig, "first")?;
    let others = whole_plans(rig, "outdated")? + whole_plans(rig, "rejected")?;
    checks.require(
        "each agent received its whole plan once",
        first == u64::from(NODES) && others == 0,
        &format!("{first} first plans, {others} others"),
    );
    Ok(())
}

/// The number of whole plans by their cause.
fn whole_plans(rig: &Rig<'_>, cause: &str) -> Result<u64> {
    let said = rig.controller_said()?;
    let line = said
        .lines()
        .find(|line| line.contains("health and metrics"));
    let address = line.and_then(|line| line.split_once("address=")?.1.split_whitespace().next());
    let address = address.context("the controller has no pages")?.parse()?;
    let page = http::get(address, "/metrics", rig.stage.waits.limit(SOON))?;
    let series = format!("portolan_controller_whole_plans_total{{cause=\"{cause}\"}} ");
    let value = page
        .body
        .lines()
        .find_map(|line| line.strip_prefix(&series));
    Ok(value.context("no such series")?.parse()?)
}

/// Fails unless the plans of all agents have this endpoint.
fn has(agents: &LightAgents, address: IpAddr) -> Result<()> {
    for node in agents.nodes() {
        let plan = agents.plan(node).context("no plan")?;
        let mut ports = plan
            .services
            .iter()
            .filter(|service| &*service.name == NAME)
            .flat_map(|service| &service.ports);
        let has = ports.any(|port| {
            let mut endpoints = port.internal.endpoints.iter();
            endpoints.any(|endpoint| endpoint.address == address)
        });
        ensure!(has, "the plan of {node} has no {address}");
    }
    Ok(())
}

fn service() -> Service {
    object(json!({
        "metadata": {"name": NAME},
        "spec": {
            "type": "NodePort", "externalTrafficPolicy": "Local",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    }))
}

/// The address of a pod once this number of pods was replaced.
fn pod(index: u32, replaced: u32) -> IpAddr {
    let [_, _, high, low] = index.to_be_bytes();
    Ipv4Addr::new(10, 128 + u8::from(index < replaced), high, low).into()
}

fn endpoints(slice: u32, replaced: u32) -> Vec<Value> {
    let first = slice * PODS_A_SLICE;
    let pods = first..first + PODS_A_SLICE;
    pods.map(|index| {
        json!({
            "addresses": [pod(index, replaced)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", index % NODES + 1),
        })
    })
    .collect()
}

fn slice_name(slice: u32) -> String {
    format!("{NAME}-{slice}")
}

fn slice(number: u32) -> EndpointSlice {
    object(json!({
        "metadata": {
            "name": slice_name(number),
            "labels": {
                "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": "scenario",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints(number, 0),
    }))
}

/// Replaces a pod, the first one as number 1.
async fn replace(client: Client, number: u32) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    let slice = (number - 1) / PODS_A_SLICE;
    let patch = Patch::Merge(json!({"endpoints": endpoints(slice, number)}));
    let name = slice_name(slice);
    drop(slices.patch(&name, &PatchParams::default(), &patch).await?);
    Ok(())
}
