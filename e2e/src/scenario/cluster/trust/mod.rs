//! Authentication between the controller and agents, with tokens of a real API server: which agents are accepted,
//! what both sides report about a refused one, replaced certificates under open streams, and how often tokens are
//! reviewed.

mod clocks;
mod files;
mod flood;
mod lab;
mod own;
mod pages;
mod refusals;
mod rotation;
mod tokens;

use std::time::Duration;

use anyhow::{Result, ensure};

use super::bulk::Bulk;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::credentials::{ACCOUNT, ACCOUNTS, AUDIENCE, NAMESPACE, OTHER, pod};
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;
use lab::Lab;

pub(in crate::scenario) use flood::SCENARIO as FLOOD;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "trust",
    shows: "agents with tokens of a real API server over TLS: refusals and their messages; \
        certificates replaced under traffic",
    run,
};

/// Number of agents that reconnect together. There is one more, whose pod is deleted.
const NODES: u8 = 200;
/// Number of agents while certificates are replaced.
const FEW: u8 = 24;
/// Until all of them have a plan, on hardware.
const PLANS: Duration = Duration::from_secs(60);

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = prepare(stage, NODES + 1)?;
    lab.bulk.create(NAMESPACE, [pod(OTHER, "node-1")])?;
    lab.start_controller(&["--token-review-period", "5"])?;
    lab.start_agents(usize::from(FEW))?;
    run_parts(
        &mut lab,
        checks,
        &[
            ("agents with tokens", connected),
            ("pages", pages::run),
            ("refusals", refusals::run),
            ("replaced certificates", rotation::run),
            ("agents that reconnect together", storm),
            ("a certificate of its own", own::run),
            ("a certificate from the future", clocks::run),
            ("rights", rights),
        ],
    )
}

/// A control plane with nodes, and a token for the agent of each.
fn prepare(stage: &Stage, count: u8) -> Result<Lab<'_>> {
    // The control plane makes no endpoints.
    let options = Options {
        controllers: vec!["namespace-controller".into()],
        ..Options::default()
    };
    let rig = Rig::start(stage, options, count, 2)?;
    rig.plane.apply(ACCOUNTS)?;
    let bulk = Bulk::new(&rig.plane.kubeconfig(Reach::Here))?;
    let nodes: Vec<_> = (1..=count).map(|number| format!("node-{number}")).collect();
    let pods = nodes.iter().map(|node| pod(ACCOUNT, node));
    bulk.create(NAMESPACE, pods)?;
    let issued = tokens::issue_in(&bulk, ACCOUNT, &nodes, AUDIENCE)?;
    let tokens = nodes.into_iter().zip(issued).collect();
    Lab::new(rig, bulk, tokens)
}

fn connected(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let connected = lab.rig.wait_first_plans();
    checks.check(
        &format!("{FEW} agents with tokens of their own pods have their plans"),
        connected,
    );
    Ok(())
}

/// All agents lose their controller and connect to a new one with an empty token cache.
fn storm(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.start_agents(usize::from(NODES))?;
    lab.wait_streams(PLANS, u64::from(NODES))?;
    let before = lab.reviews()?;
    lab.rig.kill_controller()?;
    lab.start_controller(&[])?;
    let together = lab.wait_streams(PLANS, 2 * u64::from(NODES));
    checks.check(
        &format!("{NODES} agents come back to a controller that was started again"),
        together,
    );
    let reviews = lab.reviews()? - before;
    lab.rig.stage.console.line(&format!(
        "{NODES} agents that came back together cost {reviews} TokenReviews"
    ));
    let most = usize::from(NODES);
    checks.check(
        "which costs the API server at most one TokenReview per agent",
        (|| {
            ensure!(reviews <= most, "it was asked for {reviews} reviews");
            ensure!(reviews > 0, "no token was reviewed");
            Ok(())
        })(),
    );
    Ok(())
}

fn rights(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "the controller needs no more permissions than it has",
        lab.rig.audit()?.nothing_forbidden(),
    );
    Ok(())
}
