//! Controllers and agents of different revisions: an installation of an earlier revision is upgraded to this one and
//! back. In both directions the rollout is paused while the controller has one revision and the agents have the
//! other.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::cluster::Cluster;
use super::load::{Load, new_service_answers};
use super::proxy::{self, NAMESPACE};
use crate::checks::Checks;
use crate::stage::Stage;

/// The tag of the earlier images.
const EARLIER: &str = "earlier";
/// Until the controller is replaced, or all agents are; measured: 90 s.
const REPLACED: Duration = Duration::from_secs(600);
/// Changes of Services must reach nodes in each state; a port of its own for each.
const PORTS: [u16; 3] = [30081, 30082, 30083];
const ROLLOUT: &str = r#"config.spec.rollout={"soak": "5s", "paused": PAUSED}"#;

pub(super) fn run(
    stage: &Stage,
    cluster: &Cluster,
    earlier: &Path,
    checks: &mut Checks,
) -> Result<()> {
    let [before, upgraded, downgraded] = PORTS;
    let now = env!("CARGO_PKG_VERSION");
    let work = Work { stage, cluster };
    let tag = format!("image.tag={EARLIER}");
    let rollout = rollout(false);
    let values = ["--set", &tag, "--set-json", &rollout];
    proxy::install_chart_from(stage, cluster, earlier, &values)?;
    checks.passed("helm installs it, and all agents are Ready");
    let load = Load::start(stage, cluster)?;
    checks.check("a new Service answers on each node", work.serves(before));

    stage.console.heading("controller of now, agents of before");
    let replaced = work.replace_controller(&cluster.chart, now);
    checks.check("the controller is of now", replaced);
    let stay = proxy::all_have(cluster, EARLIER);
    checks.check("the agents are of before", stay);
    checks.check("a new Service answers on each node", work.serves(upgraded));
    let replaced = work.replace_agents(&cluster.chart, now);
    checks.check("the agents are of now", replaced);

    stage.console.heading("controller of before, agents of now");
    let replaced = work.replace_controller(earlier, EARLIER);
    checks.check("the controller is of before", replaced);
    let stay = proxy::all_have(cluster, now);
    checks.check("the agents are of now", stay);
    checks.check(
        "a new Service answers on each node",
        work.serves(downgraded),
    );
    let replaced = work.replace_agents(earlier, EARLIER);
    checks.check("the agents are of before", replaced);
    checks.check(
        "and no request through a Service failed meanwhile",
        load.finish(stage),
    );
    Ok(())
}

fn rollout(paused: bool) -> String {
    ROLLOUT.replace("PAUSED", &paused.to_string())
}

struct Work<'a> {
    stage: &'a Stage,
    cluster: &'a Cluster,
}

impl Work<'_> {
    /// Brings a chart with the rollout held: controllers are replaced at once, agents are not.
    fn replace_controller(&self, chart: &Path, tag: &str) -> Result<()> {
        self.upgrade(chart, tag, true)?;
        let limit = self.stage.waits.limit(REPLACED);
        let words = [
            "rollout",
            "status",
            "deployment/portolan-controller",
            "-n",
            NAMESPACE,
            &format!("--timeout={}s", limit.as_secs()),
        ];
        self.cluster.plane.kubectl(&words).map(drop)
    }

    fn replace_agents(&self, chart: &Path, tag: &str) -> Result<()> {
        self.upgrade(chart, tag, false)?;
        let runs = || self.cluster.check_running();
        let have = || proxy::all_have(self.cluster, tag);
        let waits = self.stage.waits;
        waits.eventually_while("all agents of the revision", REPLACED, runs, have)
    }

    fn upgrade(&self, chart: &Path, tag: &str, paused: bool) -> Result<()> {
        let chart = chart.display().to_string();
        let words = [
            "upgrade",
            "portolan",
            &chart,
            "--reset-then-reuse-values",
            "--set",
            &format!("image.tag={tag}"),
            "--set-json",
            &rollout(paused),
            "--timeout",
            "10m",
        ];
        proxy::helm(self.cluster, &words).map(drop)
    }

    /// Whether changes reach nodes, and nothing is reported as broken.
    fn serves(&self, port: u16) -> Result<()> {
        new_service_answers(self.stage, self.cluster, port)?;
        for node in self.cluster.node_names() {
            proxy::healthy(self.cluster, node)?;
            let path = "jsonpath={.status.conditions[?(@.type==\"Applied\")].status}";
            let words = ["get", "proxyplan", node, "-o", path];
            let applied = self.cluster.plane.kubectl(&words)?;
            ensure!(
                applied == "True",
                "ProxyPlan {node}: Applied is {applied:?}"
            );
        }
        Ok(())
    }
}
