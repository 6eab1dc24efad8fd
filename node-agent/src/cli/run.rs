//! `portolan-agent run`.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

use super::StateArguments;
use super::trust::TrustArguments;
use crate::doctor;
use crate::health::Health;
use crate::heartbeat::Heartbeat;
use crate::http;
use crate::kernel::linux::{Events, SettingsWatch, loaded_schedulers};
use crate::kernel::{IptablesChoice, LinuxKernel, Missing};
use crate::loopback;
use crate::metrics::{Metrics, Sources};
use crate::open_files;
use crate::pages::Pages;
use crate::plan_watch::PlanWatch;
use crate::programmer::{Applied, Programmer};
use crate::receive::{Address, Addresses, Controllers, LinkSender, NetworkDialer, Receiver};
use crate::record::Record;
use crate::saved::{Keeper, SavedPlan};
use crate::watchdog;
use crate::watermark::Remembered;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Arguments of `portolan-agent run`.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Name of this node's Node object; trimmed and lower-cased. Default: the host name.
    #[arg(long, env = "PORTOLAN_NODE", value_name = "NAME")]
    node: Option<String>,
    /// Addresses of all controllers, comma-separated: `IP:PORT`, `[IPv6]:PORT` or `unix:PATH`. Required unless
    /// --controllers-file is given.
    #[arg(
        long,
        env = "PORTOLAN_CONTROLLER",
        value_name = "ADDRESS,...",
        value_delimiter = ',',
        required_unless_present = "controllers_file"
    )]
    controller: Vec<Address>,
    /// File with one controller address per line, read before each connection.
    #[arg(
        long,
        env = "PORTOLAN_CONTROLLERS_FILE",
        value_name = "FILE",
        conflicts_with = "controller"
    )]
    controllers_file: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArguments,
    /// Variant of iptables that holds the rules; auto selects the one in use on the node.
    #[arg(
        long,
        env = "PORTOLAN_IPTABLES",
        value_enum,
        default_value = "auto",
        value_name = "VARIANT"
    )]
    iptables: IptablesChoice,
    /// Number of Services with their own traffic metrics; the rest are summed. 0 disables them.
    ///
    /// The busiest Services get their own series and keep them until they are removed or the agent restarts. Each has
    /// five series, updated at each read of the kernel (`settings.sync.period`).
    #[arg(
        long,
        env = "PORTOLAN_SERVICE_METRICS",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=10_000),
        value_name = "SERVICES"
    )]
    service_metrics: u32,
    #[command(flatten)]
    state: StateArguments,
}

impl Run {
    pub(super) fn execute(self) -> anyhow::Result<()> {
        let node = node_name(self.node.as_deref(), &host_name())?;
        let addresses = addresses(self.controller, self.controllers_file);
        let controllers = Controllers::new(addresses, self.trust.required()?);
        let record = Record::open(&self.state.state_dir)?;
        let named = NonZeroU32::new(self.service_metrics);
        let kernel = open_kernel(self.iptables, &self.state.state_dir, named.is_some())?;
        set_limits();
        let plans = Arc::new(PlanWatch::default());
        let events = events(&kernel, &plans)?;
        let mut keeper = Keeper::new(SavedPlan::new(&self.state.state_dir, &node), plans.clone());
        let (applied, applied_receiver) = watch::channel(Applied::default());
        let (drains, draining) = watch::channel(BTreeSet::new());
        let health: Arc<Health> = Arc::default();
        let mut programmer = Programmer::new(
            kernel,
            plans.clone(),
            record,
            applied,
            drains,
            health.clone(),
        );
        let metrics = Metrics::new(Sources {
            health: health.clone(),
            applied: applied_receiver.clone(),
            flows: programmer.flow_counters(),
            draining: draining.clone(),
            traffic: named.map(|most| programmer.traffic(most)),
        });
        let pages = Arc::new(Pages::new(health.clone(), metrics, programmer.drains()));
        let thread = start(programmer)?;
        log_start(&node, &controllers);
        let link = LinkSender::default();
        let way = link.subscribe();
        let receiver = Receiver {
            remembered: Remembered::open(&self.state.state_dir, &node),
            node,
            version: VERSION.into(),
            controllers,
            dialer: Arc::new(NetworkDialer),
            plans: plans.clone(),
            applied: applied_receiver.clone(),
            draining,
            health: health.clone(),
            schedulers: loaded_schedulers,
            link,
        };
        let loopback = loopback::serve(plans.clone(), applied_receiver.clone(), health.clone());
        let beside = async { tokio::join!(keeper.run(applied_receiver, way.clone()), loopback) };
        let signalled = follow(receiver, beside, plans.clone(), pages, &health);
        keeper.finish(way.borrow().outdated);
        drop(events);
        plans.stop();
        let ended = thread.join();
        ensure!(
            ended.is_ok(),
            "the thread that programs the kernel panicked; please report the panic message above"
        );
        signalled?;
        info!("stopped; the programmed state stays in the kernel");
        Ok(())
    }
}

/// Wakes the programmer when another program changes the network, the rules or kernel settings.
fn events(
    kernel: &LinuxKernel,
    plans: &Arc<PlanWatch>,
) -> anyhow::Result<([Events; 3], SettingsWatch)> {
    let [network, rules, tables, settings] = [(); 4].map(|()| plans.clone());
    let events = [
        Events::of_network(kernel.port(), move || network.disturb())?,
        Events::of_rules(move || rules.disturb())?,
        Events::of_tables(kernel.table_changes(), move || tables.disturb())?,
    ];
    let watch = SettingsWatch::start(kernel.known_settings(), move || settings.disturb())?;
    Ok((events, watch))
}

fn open_kernel(
    iptables: IptablesChoice,
    state_dir: &Path,
    counts: bool,
) -> Result<LinuxKernel, Missing> {
    let mut kernel = LinuxKernel::open(iptables, state_dir)?;
    if counts {
        kernel.count_traffic();
    }
    Ok(kernel)
}

fn start(programmer: Programmer<LinuxKernel>) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(watchdog::PROGRAMMER.into())
        .spawn(move || programmer.run())
        .context("start the thread that programs the kernel")
}

fn log_start(node: &str, controllers: &Controllers) {
    info!(%node, %controllers, version = VERSION, "started");
    if let Some(hint) = doctor::hint() {
        info!("{hint}");
    }
}

fn host_name() -> String {
    let host = rustix::system::uname();
    host.nodename().to_string_lossy().into_owned()
}

/// The node's name: the argument, else the host name (S-201).
fn node_name(argument: Option<&str>, host: &str) -> anyhow::Result<Arc<str>> {
    let name = argument.unwrap_or(host).trim().to_lowercase();
    if name.is_empty() {
        bail!("--node: the name is empty; give this node's name as `kubectl get nodes` shows it");
    }
    Ok(name.into())
}

fn addresses(listed: Vec<Address>, file: Option<PathBuf>) -> Addresses {
    match file {
        Some(path) => Addresses::File(path),
        None => Addresses::Listed(listed),
    }
}

/// Raises the limit of open files, and lowers `oom_score_adj`, so that the kernel kills this program last when memory
/// runs out. Without an agent the node keeps its state but applies no changes (S-210). Without the permission the agent
/// runs with the default score.
fn set_limits() {
    open_files::raise_limit();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-999") {
        info!(%error, "could not lower oom_score_adj; the kernel may kill this program early when memory runs out");
    }
}

/// Follows the controller, runs the background tasks and serves HTTP until a signal arrives.
fn follow<T>(
    receiver: Receiver,
    beside: impl Future<Output = T>,
    plans: Arc<PlanWatch>,
    pages: Arc<Pages>,
    health: &Health,
) -> std::io::Result<()> {
    let heartbeat = Heartbeat::default();
    let _watchdog = watchdog::start(plans, heartbeat.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            () = receiver.run() => {}
            _ = beside => {}
            () = watchdog::show(heartbeat) => {}
            () = http::serve(pages, health.pass_counts()) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_name_is_the_argument_or_the_host_name() {
        for (argument, host, name) in [
            (Some(" Node-1\n"), "other", "node-1"),
            (None, "Worker-7.Example.ORG", "worker-7.example.org"),
            (Some("node.with.dots"), "", "node.with.dots"),
        ] {
            assert_eq!(&*node_name(argument, host).unwrap(), name);
        }
        for (argument, host) in [(Some(" "), "host"), (None, "")] {
            let error = node_name(argument, host).unwrap_err().to_string();
            assert!(error.starts_with("--node: the name is empty"), "{error}");
        }
    }
}
