//! Operations on an installation, on real kubelets: preview, install, test, roll out another image, restart a node,
//! and clean up nodes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;
use super::inspector::{self, Picture};
use super::load::Load;
use super::proxy::{self, AGENTS, NAMESPACE};
use crate::checks::Checks;
use crate::stage::Stage;

/// Another image is on all nodes; measured: 90 s.
const UPGRADED: Duration = Duration::from_secs(600);
/// A node is back and its agent serves; measured: 60 s.
const RESTARTED: Duration = Duration::from_secs(400);
/// Lines that are shown of what differs.
const SHOWN: usize = 30;
/// The images of Portolan under another tag, in the stores of the nodes.
const OTHER_TAG: &str = "another";
/// Waves that do not wait for long.
const WAVES: &str = r#"config.spec.rollout={"soak": "5s"}"#;

pub(super) fn run(stage: &Stage, cluster: &Cluster, checks: &mut Checks) -> Result<()> {
    let work = Work { stage, cluster };
    inspector::start(stage, cluster)?;
    let before = inspector::pictures(cluster)?;
    stage.console.heading("install");
    // Without an installation nothing else can be seen.
    work.install()?;
    checks.passed("helm installs it with a doctor on each node before");
    checks.check("agents' health is 200 on each node", work.healthy());
    checks.check("helm test passes", work.test());
    stage.console.heading("another image, under load");
    let load = Load::start(stage, cluster)?;
    checks.check("another image is on all nodes", work.upgrade());
    checks.check(
        "and no request through a Service failed meanwhile",
        load.finish(stage),
    );
    stage.console.heading("a node restarts");
    checks.check("its agent serves again", work.restart());
    checks.check("helm test passes again", work.test());
    stage.console.heading("uninstall with cleanup");
    checks.check(
        "helm uninstalls it, with a cleanup of each node",
        work.uninstall(),
    );
    checks.check("nodes are as they were before", work.is_as(&before));
    Ok(())
}

struct Work<'a> {
    stage: &'a Stage,
    cluster: &'a Cluster,
}

impl Work<'_> {
    fn install(&self) -> Result<()> {
        let values = [
            "--set",
            "preflight.enabled=true",
            "--set",
            "cleanup.enabled=true",
            "--set-json",
            WAVES,
        ];
        proxy::install_chart(self.stage, self.cluster, &values).map_err(|error| {
            let words = ["logs", "job/portolan-preflight", "-n", NAMESPACE];
            match self.cluster.plane.kubectl(&words) {
                Ok(said) => error.context(format!("the look at nodes before: {said}")),
                Err(_) => error,
            }
        })
    }

    fn healthy(&self) -> Result<()> {
        let mut nodes = self.cluster.node_names();
        nodes.try_for_each(|node| proxy::healthy(self.cluster, node))
    }

    fn test(&self) -> Result<()> {
        let said = proxy::helm(
            self.cluster,
            &["test", "portolan", "--timeout", "10m", "--logs"],
        )?;
        ensure!(
            said.contains("ok     ProxyConfig default: Accepted True"),
            "{said}"
        );
        Ok(())
    }

    fn upgrade(&self) -> Result<()> {
        let tag = format!("image.tag={OTHER_TAG}");
        let chart = self.cluster.chart.display().to_string();
        let words = [
            "upgrade",
            "portolan",
            &chart,
            "--reuse-values",
            "--set",
            &tag,
        ];
        proxy::helm(self.cluster, &words)?;
        self.until("the other image on all nodes", UPGRADED, || {
            proxy::all_have(self.cluster, OTHER_TAG)
        })
    }

    fn restart(&self) -> Result<()> {
        let node = self
            .cluster
            .node_names()
            .next()
            .context("there is no node")?;
        let boot = || {
            let path = "jsonpath={.status.nodeInfo.bootID}";
            self.cluster
                .plane
                .kubectl(&["get", "node", node, "-o", path])
        };
        let before = boot()?;
        inspector::restart(self.cluster, node)?;
        self.until(
            "the node to be another boot, with an agent that is Ready",
            RESTARTED,
            || {
                let now = boot()?;
                ensure!(now != before, "node {node} is still boot {before}");
                proxy::all_ready(self.cluster)
            },
        )
    }

    fn uninstall(&self) -> Result<()> {
        proxy::helm(
            self.cluster,
            &["uninstall", "portolan", "--timeout", "15m", "--wait"],
        )
        .map(drop)?;
        let words = ["get", AGENTS, "-n", NAMESPACE];
        ensure!(
            self.cluster.plane.kubectl(&words).is_err(),
            "{AGENTS} is still there"
        );
        Ok(())
    }

    fn is_as(&self, before: &[Picture]) -> Result<()> {
        let now = inspector::pictures(self.cluster)?;
        let differences: Vec<String> = before
            .iter()
            .zip(&now)
            .flat_map(|(before, now)| before.differs(now))
            .collect();
        let shown: Vec<&str> = differences.iter().take(SHOWN).map(String::as_str).collect();
        let count = differences.len();
        ensure!(count == 0, "{count} lines differ:\n{}", shown.join("\n"));
        Ok(())
    }

    fn until(&self, what: &str, limit: Duration, ask: impl FnMut() -> Result<()>) -> Result<()> {
        let runs = || self.cluster.check_running();
        self.stage.waits.eventually_while(what, limit, runs, ask)
    }
}
