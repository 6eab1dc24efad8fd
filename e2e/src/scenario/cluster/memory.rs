//! Memory of the controller for a large cluster on a real API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::bulk::Bulk;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::{Environment as _, run_parts};
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "memory",
    shows: "the controller's memory with thousands of Services of 15 endpoints each, from a real API server",
    run,
};

/// Number of Services in the short and in the long form.
const SERVICES: u32 = 3000;
const SERVICES_LONG: u32 = 10_000;
const ENDPOINTS: u32 = 15;
const NODES: u8 = 20;
/// Memory budget of one Service in model and plans, and the share of it at which this fails: memory varies by some
/// per cent from run to run.
const AIM_MB: f64 = 0.01;
const FAILS_AT: f64 = 1.25;
/// Until an agent has the plan of all Services, on hardware.
const PLANNED: Duration = Duration::from_secs(60);

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    // The scenario writes the slices itself: the controller manager would need half an hour.
    let options = Options {
        controllers: vec!["namespace-controller".into()],
        ..Options::default()
    };
    let mut rig = Rig::start(stage, options, NODES, 1)?;
    run_parts(&mut rig, checks, &[("a large cluster", filled)])
}

fn filled(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    let stage = rig.stage;
    let services = match stage.long {
        true => SERVICES_LONG,
        false => SERVICES,
    };
    rig.start_controller()?;
    rig.start_agents(1)?;
    rig.wait_first_plans()?;
    let empty = memory(rig)?;
    rig.kill_controller()?;
    let start = std::time::Instant::now();
    let bulk = Bulk::new(&rig.plane.kubeconfig(Reach::Here))?;
    bulk.create("default", (0..services).map(service))?;
    bulk.create("default", (0..services).map(slice))?;
    let seconds = start.elapsed().as_secs_f64();
    stage.console.line(&format!(
        "{services} Services and their slices stored in {seconds:.1} s"
    ));
    rig.start_controller()?;
    let start = std::time::Instant::now();
    let runs = || rig.check_running();
    let what = "the agent to have all Services";
    stage.waits.eventually_while(what, PLANNED, runs, || {
        let plan = rig.agents()?.plan("node-1");
        let planned = plan.map_or(0, |plan| plan.services.len());
        ensure!(planned >= services as usize, "it has {planned}");
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let full = memory(rig)?;
    let grown = full - empty;
    let endpoint = grown * 1e6 / f64::from(services * ENDPOINTS);
    stage.console.line(&format!(
        "controller: {empty:.0} MB with nothing, {full:.0} MB with {services} x {ENDPOINTS} \
         ({endpoint:.0} bytes an endpoint), {seconds:.1} s from start to an agent with all of it"
    ));
    within(stage, checks, grown, f64::from(services) * AIM_MB);
    checks.check(
        "the agent's plan equals one made from scratch",
        rig.wait_equal(PLANNED),
    );
    Ok(())
}

fn within(stage: &Stage, checks: &mut Checks, grown: f64, aim: f64) {
    let share = grown / aim;
    stage.console.line(&format!(
        "model and plans: {grown:.0} MB, {share:.2} of the {aim:.0} MB aimed at"
    ));
    let most = aim * FAILS_AT;
    checks.require(
        &format!("model and plans stay within {most:.0} MB"),
        share <= FAILS_AT,
        &format!("they take {grown:.0} MB"),
    );
}

/// Resident memory in MB.
fn memory(rig: &Rig<'_>) -> Result<f64> {
    let kb = rig
        .controller()?
        .memory_kb()
        .context("the controller has ended")?;
    ensure!(kb > 0, "the kernel reports no memory size");
    Ok(f64::from(u32::try_from(kb)?) / 1000.0)
}

fn service(number: u32) -> k8s_openapi::api::core::v1::Service {
    object(json!({
        "metadata": {"name": format!("service-{number}")},
        "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    }))
}

fn slice(number: u32) -> k8s_openapi::api::discovery::v1::EndpointSlice {
    let endpoints: Vec<Value> = (0..ENDPOINTS)
        .map(|endpoint| {
            let [_, a, b, c] = (0x0a00_0000 + number * ENDPOINTS + endpoint).to_be_bytes();
            let node = (number + endpoint) % u32::from(NODES) + 1;
            json!({
                "addresses": [format!("10.{}.{b}.{c}", 128 + a)],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": format!("node-{node}"), "zone": format!("zone-{}", 2 - node % 2),
                "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("pod-{number}-{endpoint}")},
            })
        })
        .collect();
    object(json!({
        "metadata": {
            "name": format!("service-{number}-1"),
            "labels": {
                "kubernetes.io/service-name": format!("service-{number}"),
                "endpointslice.kubernetes.io/managed-by": "scenario",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }))
}

/// An object with the given fields.
pub(super) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    #[allow(clippy::expect_used, reason = "the value stands in this file")]
    serde_json::from_value(value).expect("the fields have the right types")
}
