//! Certificates and their CA are replaced while agents have open streams.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::files::replace;
use super::lab::Lab;
use super::refusals::wait_planned;
use crate::checks::Checks;
use crate::credentials::{Authority, Identity};
use crate::light_agents::LightAgents;

/// Until the controller has checked its files twice and an agent has connected, on hardware.
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
    let same = shown(lab, &renewed, "serving a new certificate", 1);
    checks.check("a renewed certificate is read from its files", same);
    // The CA: agents trust both, then the controller changes, then the old CA is removed.
    let next = Authority::new("second")?;
    replace(&lab.ca, &(lab.authority.pem() + &next.pem()))?;
    let identity = next.controller()?;
    let rotated = shown(lab, &identity, "serving a new certificate", 2);
    checks.check("and so is one of another CA", rotated);
    replace(&lab.ca, &next.pem())?;
    lab.rig.plane.apply(&service(2))?;
    checks.check(
        "a new agent that trusts only the new CA is accepted",
        newcomer(lab),
    );
    let bad = bad_pair(lab, &identity);
    checks.check(
        "an invalid key pair is logged, and the previous one stays in use",
        bad,
    );
    lab.files.write(&identity.certificate, &identity.key)?;
    checks.check(
        "agents follow changes all the time",
        lab.rig.wait_equal(SEEN),
    );
    let streams = lab.rig.agents()?.streams() - before;
    checks.check(
        "and none of their streams was reopened",
        (|| {
            ensure!(streams == 0, "{streams} were");
            Ok(())
        })(),
    );
    lab.authority = next;
    Ok(())
}

/// Replaces the files and waits until the controller has logged that `times` times.
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
    wait_logged(lab, "keeping the previous certificate", 1)?;
    let log = lab.rig.controller_said()?;
    ensure!(
        log.contains("do not belong together"),
        "the log does not say what is wrong"
    );
    ensure!(!log.contains("PRIVATE KEY"), "the log holds a key");
    newcomer(lab)
}
