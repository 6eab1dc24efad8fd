//! What an uninstall deletes and keeps, and a new install afterwards.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::super::release::{NAMESPACE, RELEASE};
use super::lab::Lab;
use crate::checks::Checks;

/// Until the garbage collector has deleted the dependents, on hardware.
const TAKEN: Duration = Duration::from_secs(60);
/// Kinds of the objects of a release.
const KINDS: &str = "deployments,daemonsets,poddisruptionbudgets,secrets,configmaps,leases,roles,rolebindings,serviceaccounts";
const IN_CLUSTER: &str = "clusterroles,clusterrolebindings";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.end_controller()?;
    let said = lab.helm(&["uninstall", RELEASE])?;
    let prints_it = || {
        ensure!(said.contains("ProxyConfig"), "helm said {said}");
        Ok(())
    };
    checks.check(
        "an uninstall prints that it keeps the ProxyConfig",
        prints_it(),
    );
    checks.check(
        "and deletes everything else of the release, including the DaemonSet",
        gone(lab),
    );
    checks.check("CRDs, settings and plans are kept", stays(lab));
    checks.check(
        "it can be installed again with them in place",
        lab.install(&[]).map(drop),
    );
    checks.check(
        "another release prints who owns them, and how to keep or replace them",
        another(lab),
    );
    Ok(())
}

/// A release of another name, as after a move to another namespace.
fn another(lab: &Lab<'_>) -> Result<()> {
    lab.upgrade(&["--set", "config.spec.settings.scheduler=wrr"])?;
    lab.helm(&["uninstall", RELEASE])?;
    gone(lab)?;
    let refused = match lab.install_as("other", &[]) {
        Ok(said) => bail!("the release was installed: {said}"),
        Err(error) => format!("{error:#}"),
    };
    for words in [
        "created by release portolan in namespace proxy",
        "config.create=false",
        "config.takeOwnership=true",
    ] {
        ensure!(refused.contains(words), "{words:?} is not in {refused}");
    }
    let scheduler = || {
        let path = "jsonpath={.spec.settings.scheduler}";
        let words = ["get", "proxyconfig", "default", "-o", path];
        lab.plane.kubectl(&words)
    };
    lab.install_as("other", &["--set", "config.create=false"])?;
    let kept = scheduler()?;
    ensure!(kept == "wrr", "the scheduler is {kept:?}");
    lab.helm(&["uninstall", "other"])?;
    gone(lab)?;
    let take = [
        "--take-ownership",
        "--set",
        "config.takeOwnership=true",
        "--set",
        "config.spec.settings.scheduler=sh",
    ];
    lab.install_as("other", &take)?;
    let replaced = scheduler()?;
    ensure!(replaced == "sh", "the scheduler is {replaced:?}");
    let path = "jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-name}";
    let words = ["get", "proxyconfig", "default", "-o", path];
    let release = lab.plane.kubectl(&words)?;
    ensure!(release == "other", "it is of {release:?}");
    Ok(())
}

fn gone(lab: &Lab<'_>) -> Result<()> {
    lab.eventually("nothing to be left", TAKEN, || {
        let words = ["get", KINDS, "-n", NAMESPACE, "-o", "name"];
        let mut left = lab.plane.kubectl(&words)?;
        left += &lab.plane.kubectl(&["get", IN_CLUSTER, "-o", "name"])?;
        let ours = left.lines().filter(|name| name.contains("portolan"));
        let ours: Vec<_> = ours.collect();
        ensure!(ours.is_empty(), "{ours:?} are left");
        Ok(())
    })
}

fn stays(lab: &Lab<'_>) -> Result<()> {
    let definitions = lab.plane.kubectl(&["get", "crd", "-o", "name"])?;
    ensure!(definitions.lines().count() == 3, "{definitions}");
    let path = "jsonpath={.spec.settings.scheduler}";
    let scheduler = lab
        .plane
        .kubectl(&["get", "proxyconfig", "default", "-o", path])?;
    ensure!(scheduler == "lc", "the scheduler is {scheduler}");
    let plans = lab.plane.kubectl(&["get", "pp", "-o", "name"])?;
    ensure!(plans.lines().count() > 0, "plans are gone");
    Ok(())
}
