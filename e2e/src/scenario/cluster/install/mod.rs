//! The chart with the real helm on a fresh API server, and the controller with the rendered
//! arguments and RBAC permissions: install, managed objects, upgrade, uninstall.

mod alerts;
mod chart;
mod conditions;
mod lab;
mod leaving;
mod rights;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::release::NAMESPACE;
use crate::checks::Checks;
use crate::control_plane::Reach;
use crate::harness::{Environment as _, run_parts};
use crate::program::Program;
use crate::scenario::Scenario;
use crate::stage::Stage;
pub(in crate::scenario) use chart::SCENARIO as CHART;
use lab::{Lab, NODES, SET};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "install",
    shows: "helm installs, upgrades and uninstalls the chart; the controller with its arguments \
        and permissions manages the agents' DaemonSet",
    run,
};

/// Until the controller has corrected something that it checks every 5 s, on hardware.
const KEPT: Duration = Duration::from_secs(30);
/// Until plans are in the store.
const WRITTEN: Duration = Duration::from_secs(60);

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let chart = stage.files.beside("charts/portolan")?;
    let mut lab = Lab::start(stage, chart)?;
    checks.check(
        "before the install, kubectl proxyplan already shows and explains what Portolan would do",
        before(&lab),
    );
    installed(&lab, checks)?;
    lab.start_controller()?;
    run_parts(
        &mut lab,
        checks,
        &[
            ("what the controller manages", kept),
            ("changes by hand", hands),
            ("conditions about agents", conditions::run),
            ("an upgrade", upgrade),
            ("rights", rights::run),
        ],
    )?;
    leaving::run(&mut lab, checks).map_err(|error| lab.with_logs(error))
}

fn kept(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check("kubectl get pp has a row for each node", plans(lab));
    let where_they_are = lab.wait_controllers(KEPT);
    checks.check(
        "agents get the addresses of the controllers",
        where_they_are,
    );
    let made = lab.wait_set("{.spec.template.spec.containers[0].image}", KEPT, |image| {
        image == "registry.example.com/portolan/portolan-agent:0.1.0"
    });
    checks.check("the controller creates the agents' DaemonSet", made);
    checks.check(
        "an agent of it is authenticated and gets its plan",
        lab.agent_connects(),
    );
    Ok(())
}

/// The plugin works without Portolan in the cluster.
fn before(lab: &Lab<'_>) -> Result<()> {
    let config = lab.plane.kubeconfig(Reach::Here).display().to_string();
    for words in [
        &["show", "node-1"][..],
        &[
            "explain",
            "--node",
            "node-1",
            "--service",
            "default/kubernetes",
        ],
    ] {
        let words = [words, &["--kubeconfig", &config]].concat();
        let ended = Program::ProxyPlan.try_with_input(&words, "")?;
        ensure!(
            ended.status.success() && ended.output.contains("default/kubernetes"),
            "{words:?}: {}{}",
            ended.output,
            ended.errors
        );
    }
    Ok(())
}

/// The API server accepts everything that helm renders.
fn installed(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "helm installs on a fresh API server",
        lab.install(&[]).map(drop),
    );
    checks.check(
        "everything that the chart can render is valid, including the agents' DaemonSet",
        chart::validate(lab),
    );
    Ok(())
}

fn plans(lab: &Lab<'_>) -> Result<()> {
    lab.eventually("a ProxyPlan for each node", WRITTEN, || {
        let plans = lab.plane.kubectl(&["get", "pp", "-o", "name"])?;
        ensure!(plans.lines().count() == usize::from(NODES), "{plans}");
        Ok(())
    })
}

/// Manual changes.
fn hands(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let set_image = || {
        let line = format!("set image {SET} agent=somebody/else:1 -n {NAMESPACE}");
        lab.plane.kubectl_line(&line)?;
        lab.wait_set("{.spec.template.spec.containers[0].image}", KEPT, |image| {
            image.ends_with("/portolan-agent:0.1.0")
        })
    };
    checks.check("an image that was changed by hand is restored", set_image());
    let elsewhere = || {
        let patch = r#"{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}"#;
        lab.plane
            .kubectl(&["patch", SET, "-n", NAMESPACE, "-p", patch])?;
        lab.wait_set("{.spec.template.spec.nodeSelector}", KEPT, |selector| {
            !selector.contains("nowhere")
        })
    };
    checks.check("and so is a node selector", elsewhere());
    let deleted = || {
        let path = "{.metadata.uid}";
        let before = lab.set(path)?;
        lab.plane.kubectl(&["delete", SET, "-n", NAMESPACE])?;
        lab.wait_set(path, KEPT, |uid| !uid.is_empty() && uid != before)
    };
    checks.check("a deleted DaemonSet is created again", deleted());
    let forgotten = || {
        let line = format!("delete configmap portolan-controllers -n {NAMESPACE}");
        lab.plane.kubectl_line(&line)?;
        lab.wait_controllers(KEPT)
    };
    checks.check("and so is the list of controllers", forgotten());
    checks.check(
        "a correct DaemonSet is not written, and a requested restart is kept",
        steady(lab),
    );
    Ok(())
}

/// Fields that the template does not set belong to others.
fn steady(lab: &Lab<'_>) -> Result<()> {
    lab.plane
        .kubectl(&["rollout", "restart", SET, "-n", NAMESPACE])?;
    let path = "{.metadata.generation} {.spec.template.metadata.annotations}";
    let before = lab.set(path)?;
    // Two checks of the controller.
    std::thread::sleep(Duration::from_secs(11));
    let after = lab.set(path)?;
    ensure!(before == after, "{before} became {after}");
    ensure!(
        after.contains("restartedAt"),
        "there is no restart: {after}"
    );
    Ok(())
}

fn upgrade(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let definitions = lab.chart.join("charts/crds/crds").display().to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "-f"];
    lab.plane
        .kubectl(&[&apply[..], &[&definitions]].concat())
        .context("apply definitions as docs/install/helm.md says")?;
    let upgraded = || {
        lab.upgrade(&[
            "--set",
            "agents.log=debug",
            "--set",
            "config.spec.settings.scheduler=lc",
        ])?;
        lab.wait_set("{.spec.template.spec.containers[0].env}", KEPT, |env| {
            env.contains(r#""value":"debug""#)
        })
    };
    checks.check("an upgrade reaches the DaemonSet", upgraded());
    let accepted = || {
        let path = "jsonpath={.spec.settings.scheduler} {.status.observedGeneration} {.status.conditions[?(@.type==\"Accepted\")].status}";
        let words = ["get", "proxyconfig", "default", "-o", path];
        lab.eventually("the settings to be accepted", WRITTEN, || {
            let found = lab.plane.kubectl(&words)?;
            ensure!(found == "lc 2 True", "{found:?}");
            Ok(())
        })
    };
    checks.check("and its settings are in force", accepted());
    Ok(())
}
