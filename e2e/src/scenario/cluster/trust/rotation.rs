//! Certificates and their authority are replaced while agents hold their streams.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::authority::{Authority, Identity, replace};
use super::lab::Lab;
use super::refusals::wait_planned;
use crate::light_agents::LightAgents;
use crate::scenario::Checks;

/// Until the controller has looked at its files twice and an agent has connected, on hardware.
const SEEN: Duration = Duration::from_secs(40);

/// Something that changes in every plan.
fn service(number: usize) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: traffic-{number}, namespace: default}}
spec: {{ports: [{{name: http, port: 80}}]}}
"
    )
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let before = lab.rig.agents()?.streams();
    lab.rig.plane.apply(&service(1))?;
    let renewed = lab.authority.controller()?;
    let same = shown(lab, &renewed, "another certificate is shown from now on", 1);
    checks.check("a renewed certificate is taken from its files", same);
    // The authority: agents believe both, then the controller changes, then the old one goes.
    let next = Authority::new("second")?;
    replace(&lab.ca, &(lab.authority.pem() + &next.pem()))?;
    let identity = next.controller()?;
    let rotated = shown(
        lab,
        &identity,
        "another certificate is shown from now on",
        2,
    );
    checks.check("so is one of another authority", rotated);
    replace(&lab.ca, &next.pem())?;
    lab.rig.plane.apply(&service(2))?;
    checks.check(
        "a new agent that knows only the new authority is let in",
        newcomer(lab),
    );
    let bad = bad_pair(lab, &identity);
    checks.check("a bad pair is told, and the old one stays in force", bad);
    lab.files.write(&identity.certificate, &identity.key)?;
    checks.check(
        "agents follow changes all the time",
        lab.rig.wait_equal(SEEN),
    );
    let streams = lab.rig.agents()?.streams() - before;
    checks.check(
        "and no stream of theirs was opened anew",
        (|| {
            ensure!(streams == 0, "{streams} were");
            Ok(())
        })(),
    );
    lab.authority = next;
    Ok(())
}

/// Replaces the files and waits until the controller says so for this time.
fn shown(lab: &Lab<'_>, identity: &Identity, words: &str, times: usize) -> Result<()> {
    lab.files.write(&identity.certificate, &identity.key)?;
    wait_logged(lab, words, times)
}

fn wait_logged(lab: &Lab<'_>, words: &str, times: usize) -> Result<()> {
    lab.rig.eventually(words, SEEN, || {
        let count = lab.rig.controller_said()?.matches(words).count();
        ensure!(count >= times, "the controller says it {count} times");
        Ok(())
    })
}

/// An agent of another node connects and has its plan.
fn newcomer(lab: &Lab<'_>) -> Result<()> {
    let (node, token) = lab.tokens.get(40).context("no such node")?;
    let agents = LightAgents::start_with([(node.clone(), lab.access("newcomer", Some(token))?)])?;
    wait_planned(lab, &agents, node)
}

fn bad_pair(lab: &Lab<'_>, good: &Identity) -> Result<()> {
    let other = Authority::new("third")?.controller()?;
    lab.files.write(&good.certificate, &other.key)?;
    wait_logged(lab, "the certificate that was in force stays", 1)?;
    let log = lab.rig.controller_said()?;
    ensure!(
        log.contains("do not belong together"),
        "the log does not say what is wrong"
    );
    ensure!(!log.contains("PRIVATE KEY"), "the log holds a key");
    newcomer(lab)
}
