//! The controller creates its own CA and certificate, and finds them again after a restart.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::files::replace;
use super::lab::Lab;
use crate::checks::Checks;
use crate::credentials::NAMESPACE;

/// Until agents are back, on hardware.
const BACK: Duration = Duration::from_secs(60);
pub(super) const AGENTS: u8 = 5;
pub(super) const KEPT: [&str; 4] = [
    "--tls-secret",
    "portolan/controller-tls",
    "--ca-configmap",
    "portolan/controller-ca",
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.rig.kill_controller()?;
    lab.start_controller_showing(&KEPT)?;
    let what = "the controller to publish its CA";
    let bundle = lab.rig.eventually(what, BACK, || {
        let bundle = bundle(lab)?;
        ensure!(bundle.contains("BEGIN CERTIFICATE"), "{bundle}");
        Ok(bundle)
    })?;
    replace(&lab.ca, &bundle)?;
    lab.start_agents(usize::from(AGENTS))?;
    checks.check(
        "agents trust a controller with its own CA by the CA in its ConfigMap",
        lab.wait_streams(BACK, u64::from(AGENTS)),
    );
    lab.rig.kill_controller()?;
    lab.start_controller_showing(&KEPT)?;
    checks.check(
        "and again after a restart: it finds the CA that it created",
        lab.wait_streams(BACK, 2 * u64::from(AGENTS)),
    );
    let same = || {
        ensure!(self::bundle(lab)? == bundle, "the ConfigMap is another one");
        let said = lab.rig.controller_said()?;
        let made = said
            .matches("creating a CA, since there is none yet")
            .count();
        ensure!(made == 1, "a CA was created {made} times");
        ensure!(!said.contains("PRIVATE KEY"), "the log holds a key");
        Ok(())
    };
    checks.check("made once", same());
    Ok(())
}

/// The CAs that the controller has published.
pub(super) fn bundle(lab: &Lab<'_>) -> Result<String> {
    lab.rig.plane.kubectl_line(&format!(
        "get configmap controller-ca -n {NAMESPACE} -o jsonpath={{.data.ca\\.crt}}"
    ))
}
