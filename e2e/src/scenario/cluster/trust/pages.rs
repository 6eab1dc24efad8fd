//! Pages over TLS with the certificate for agents: only accounts that the API server authorizes may
//! read them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::files::replace;
use super::lab::Lab;
use super::{FEW, PLANS};
use crate::checks::Checks;
use crate::control_plane::Reach;
use crate::credentials::{Authority, NAME};
use crate::program::Program;

/// Until the plugin has asked a controller at least once, on hardware.
const ASKED: Duration = Duration::from_secs(5);
const ACCESS: &str = include_str!("../../../../api/convergence.yaml");

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.rig.plane.apply(ACCESS)?;
    checks.check(
        "kubectl proxyplan asks over TLS on which nodes a Service is",
        believed(lab),
    );
    checks.check(
        "and sends no token to a server whose certificate it does not trust",
        unbelieved(lab),
    );
    Ok(())
}

/// Waits for `kubernetes`, which is always there; how it ended, and what it printed.
fn wait(lab: &Lab<'_>, ca: &Path, seconds: u64) -> Result<(i32, Value)> {
    let words = ["create", "token", "pipeline", "-n", "portolan"];
    let token = lab.rig.file("token-of-pipeline");
    replace(&token, lab.rig.plane.kubectl(&words)?.trim())?;
    let controller = format!("https://{}", lab.pages()?);
    let kubeconfig = lab.rig.plane.kubeconfig(Reach::Here);
    let [ca, kubeconfig, token] = [ca, &kubeconfig, &token].map(|path| path.display().to_string());
    let seconds = seconds.to_string();
    let words = [
        "wait",
        "--service",
        "default/kubernetes",
        "--controller",
        &controller,
        "--controller-ca",
        &ca,
        "--controller-name",
        NAME,
        "--token-file",
        &token,
        "--kubeconfig",
        &kubeconfig,
        "--timeout",
        &seconds,
        // Most nodes have no agent here.
        "--unseen",
        "0",
        "-o",
        "json",
    ];
    let ended = Program::ProxyPlan.try_with_input(&words, "")?;
    let code = ended.status.code().context("it was killed")?;
    let verdict = serde_json::from_str(&ended.output)
        .with_context(|| format!("{}{}", ended.output, ended.errors))?;
    Ok((code, verdict))
}

fn believed(lab: &Lab<'_>) -> Result<()> {
    let seconds = lab.rig.stage.waits.limit(PLANS).as_secs();
    let (code, verdict) = wait(lab, &lab.ca, seconds)?;
    ensure!(code == 0, "it ended with {code}: {verdict}");
    ensure!(verdict["inForce"] == u64::from(FEW), "{verdict}");
    Ok(())
}

fn unbelieved(lab: &Lab<'_>) -> Result<()> {
    let ca = lab.rig.file("other-ca.crt");
    replace(&ca, &Authority::new("another CA")?.pem())?;
    let seconds = lab.rig.stage.waits.limit(ASKED).as_secs();
    let (code, verdict) = wait(lab, &ca, seconds)?;
    ensure!(code == 1, "it ended with {code}: {verdict}");
    let held_up = verdict["heldUp"].to_string();
    ensure!(held_up.contains("certificate"), "{verdict}");
    ensure!(verdict["inForce"] == 0, "{verdict}");
    Ok(())
}
