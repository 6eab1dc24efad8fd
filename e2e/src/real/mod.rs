//! A cluster of emulated machines with real kubelets: `portolan-scenarios real up`, `down` and `test`.
//!
//! Programs of this machine serve the control plane in a separate network namespace; nodes boot in QEMU from disks
//! that `cargo lab real` prepares, and DNS runs in pods. The cluster has no access to outside networks.

mod cluster;
mod compare;
mod host_port;
mod inspector;
mod load;
mod names;
mod network;
mod node;
mod node_files;
mod operations;
mod proxy;
mod skew;
mod suite;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, value_parser};

use crate::checks::Checks;
use crate::stage::Stage;
use crate::stop;
use cluster::Cluster;
use network::Pods;
use proxy::Proxy;

/// Nodes have a digit as their number.
const MOST_NODES: u8 = 3;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Arguments of the command, and the files that the lab has prepared.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    kit: Kit,
}

/// Files that nodes are made of.
#[derive(Debug, Clone, Args)]
pub(crate) struct Kit {
    /// The model of their processors.
    #[arg(long, global = true, default_value = "none", hide = true)]
    cpu: String,
    /// For the command line of their kernel.
    #[arg(long, global = true, default_value = "none", hide = true)]
    boot: String,
    /// The kernel of the nodes.
    #[arg(long, global = true, default_value = "none", hide = true)]
    kernel: PathBuf,
    /// Their first file system.
    #[arg(long, global = true, default_value = "none", hide = true)]
    initrd: PathBuf,
    /// The disk with their system.
    #[arg(long, global = true, default_value = "none", hide = true)]
    system: PathBuf,
    /// The disk with images of containers.
    #[arg(long, global = true, default_value = "none", hide = true)]
    store: PathBuf,
    /// The chart.
    #[arg(long, global = true, default_value = "none", hide = true)]
    chart: PathBuf,
    /// The chart of an earlier revision.
    #[arg(long, global = true, default_value = "none", hide = true)]
    earlier: PathBuf,
    /// Tables of tests.
    #[arg(long, global = true, hide = true)]
    files: Option<PathBuf>,
}

impl Arguments {
    /// The folder of tables.
    #[must_use]
    pub(crate) fn files(&self) -> Option<PathBuf> {
        self.kit.files.clone()
    }
}

#[derive(Debug, Subcommand)]
enum What {
    /// Starts a cluster and prints how to reach it; runs until Ctrl-C or `down`.
    Up(Choice),
    /// Ends a cluster that stands, and removes what one has left.
    Down,
    /// Starts a cluster, runs Kubernetes' own network tests on it, and removes it.
    Test(Test),
    /// Starts a cluster and runs operations of Portolan: preview and install, a new image under load, a node restart,
    /// and an uninstall that restores the nodes.
    Operations(Choice),
    /// Starts a cluster with an installation of an earlier revision, upgrades it to this one, and rolls it back.
    Skew(Skew),
    /// Prints the results of several runs beside each other, as a table of Markdown.
    Compare {
        /// Files that `test --results` wrote, each named after its proxy.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// The service proxy.
    #[arg(long, value_enum, default_value_t = Proxy::Portolan)]
    proxy: Proxy,
    /// The pod network between nodes.
    #[arg(long, value_enum, default_value_t = Pods::Bridge)]
    network: Pods,
    /// Number of nodes.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u8).range(1..=i64::from(MOST_NODES)))]
    nodes: u8,
    /// Where logs go, which stay; by default a folder that goes with the cluster.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Skew {
    #[command(flatten)]
    cluster: Choice,
    /// The earlier revision, as git names it; by default the one in `e2e/real/earlier`.
    #[arg(long, default_value = "the usual one")]
    revision: String,
}

#[derive(Debug, Args)]
struct Test {
    #[command(flatten)]
    cluster: Choice,
    /// Runs ten tests instead of all.
    #[arg(long, conflicts_with = "focus")]
    short: bool,
    /// Runs the tests whose names match this regular expression.
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Number of tests that run in parallel.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u8).range(1..=8))]
    streams: u8,
    /// Writes the verdict of each test to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// Runs the command; returns whether it succeeded.
///
/// # Errors
/// When something is missing, or a part does not come up in time.
pub(crate) fn run(stage: &Stage, arguments: &Arguments) -> Result<bool> {
    match &arguments.what {
        What::Down => network::remove(stage).map(|()| true),
        What::Compare { files } => {
            stage.console.line(&compare::table(files)?);
            Ok(true)
        }
        What::Up(choice) => {
            let cluster = Cluster::start(stage, &arguments.kit, choice)?;
            cluster.announce(stage);
            while !stop::asked() {
                cluster.check_running()?;
                std::thread::sleep(LOOK_AGAIN);
            }
            Ok(true)
        }
        What::Test(test) => {
            let cluster = Cluster::start(stage, &arguments.kit, &test.cluster)?;
            judged(stage, &cluster, |checks| {
                run_tests(stage, &cluster, test, checks)
            })
        }
        What::Skew(skew) => {
            let cluster = Cluster::without_portolan(stage, &arguments.kit, &skew.cluster)?;
            let earlier = &arguments.kit.earlier;
            let title = format!("an earlier revision: {}", skew.revision);
            stage.console.heading(&title);
            judged(stage, &cluster, |checks| {
                skew::run(stage, &cluster, earlier, checks)
            })
        }
        What::Operations(choice) => {
            let cluster = Cluster::without_portolan(stage, &arguments.kit, choice)?;
            judged(stage, &cluster, |checks| {
                operations::run(stage, &cluster, checks)
            })
        }
    }
}

/// Runs checks and closes with their sum.
fn judged(
    stage: &Stage,
    cluster: &Cluster,
    run: impl FnOnce(&mut Checks) -> Result<()>,
) -> Result<bool> {
    let mut checks = Checks::new(stage.console);
    run(&mut checks).map_err(|error| cluster.with_logs(error))?;
    stage.console.line("");
    stage.console.line(&checks.to_string());
    Ok(checks.all_passed())
}

fn run_tests(stage: &Stage, cluster: &Cluster, test: &Test, checks: &mut Checks) -> Result<()> {
    let table = table::Table::read(stage)?;
    let chosen = match (&test.focus, test.short) {
        (Some(focus), _) => table::Chosen::matching(focus),
        (None, true) => table.short(),
        (None, false) => table.all(),
    };
    let outcomes = suite::run(stage, cluster, &chosen, test.streams)?;
    suite::judge(stage, &outcomes, &chosen, checks);
    if test.focus.is_none() && test.cluster.nodes > 1 {
        host_port::run(stage, cluster, checks)?;
    }
    for node in cluster.node_names() {
        let healthy = proxy::healthy(cluster, node);
        checks.check(
            &format!("{node}: /healthz of its service proxy answers 200"),
            healthy,
        );
    }
    cluster.check_running()?;
    if let Some(path) = &test.results {
        let text = serde_json::to_string_pretty(&outcomes)?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
