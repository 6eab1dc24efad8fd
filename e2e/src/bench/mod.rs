//! Cost of the node agent, measured beside the kernel's own limit.
//!
//! - **raw**: the datagrams that the agent sends to IPVS and to sets for a plan, recorded in a separate run and
//!   replayed from memory into an empty kernel, from the first byte to the last acknowledgement. Nothing can program
//!   the plan faster with these messages.
//! - **agent**: the agent's programmer, from the moment it has the plan until all of it is in force in an empty
//!   kernel. It does more than the raw writer: it reads the kernel, computes the desired state, writes the ownership
//!   record, and writes settings, the device, the route and the rules (through the tools of iptables). The table lists
//!   the parts separately.
//!
//! Both run in this process, by turns, each in a network namespace of its own that is made afresh: a
//! kernel that was emptied keeps removed real servers for a while, and each addition looks through
//! them. Memory and processor time are those of the agent as a program, which gets its plan from a
//! controller. Built without optimisation none of the times means anything.

pub mod agent;
mod figure;
mod node;
pub mod peers;
pub mod plan;
mod process;
mod recording;
mod report;
pub mod scale;
pub mod stream;
mod tables;
mod watched;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use portolan_agent::kernel::linux::Datagram;
use portolan_reconcile::OpKind;

pub use self::agent::{Agent, Outcome};
pub use self::node::{Nodes, wait_held};
pub use self::watched::Asked;

use self::plan::Plan;
use self::process::Controller;
use self::recording::{Recorder, Recording};
use self::report::{Measured, Parts};
use self::scale::Scale;
use crate::dataplane::Dataplane;
use crate::stage::Stage;
use crate::work_folder::WorkFolder;
use crate::{stop, witness};

/// How large, how often, and what is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct Options {
    /// Services of the cluster.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    services: u32,
    /// Endpoints of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=5000))]
    endpoints: u32,
    /// How often each thing is measured; an odd number has a middle.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// What the agent programs.
    #[arg(long, value_enum, default_value_t = Measures::Ipvs)]
    dataplane: Measures,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// The measured dataplane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measures {
    /// IPVS, with ipset and iptables.
    Ipvs,
    /// nftables only.
    Nftables,
}

impl Measures {
    fn dataplane(self) -> Dataplane {
        match self {
            Self::Ipvs => Dataplane::Ipvs,
            Self::Nftables => Dataplane::Nftables,
        }
    }
}

impl Options {
    fn scale(self) -> Scale {
        Scale {
            services: self.services,
            endpoints: self.endpoints,
        }
    }
}

/// How figures are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people, with the budget beside each.
    Table,
    /// One JSON object.
    Json,
}

/// How many changes follow each programming of the whole plan.
const CHANGES: u32 = 5;

/// Measures and prints.
///
/// # Errors
/// Something could not be measured, or the kernel did not hold what it should.
pub fn run(stage: &Stage, options: Options) -> Result<()> {
    if options.dataplane == Measures::Nftables {
        return tables::run(stage, options);
    }
    witness::require_ipvs()?;
    let quiet = options.output == Form::Json;
    let say = |text: &str| {
        if !quiet {
            stage.console.line(text);
        }
    };
    let bench = Bench::prepare(stage, options.scale(), "ipvs")?;
    let mut nodes = Nodes::new(stage.waits);
    let (recording, mut measured) = bench.record(&mut nodes)?;
    let (datagrams, bytes) = recording.size();
    say(&format!(
        "the agent sent {datagrams} datagrams, {bytes} bytes, to IPVS and to sets"
    ));
    for run in 1..=options.runs {
        stop::check()?;
        measured.add_raw(bench.raw(&mut nodes, &recording, &measured)?);
        bench.agent(&mut nodes, &mut measured)?;
        say(&format!(
            "run {run} of {}: {}",
            options.runs,
            measured.last()
        ));
    }
    // Free the memory of this process's plans: the guest is small.
    drop(recording);
    let mut controller = Controller::start(&bench.folder.path.join(MANIFESTS), stage.waits)?;
    for run in 1..=options.runs {
        stop::check()?;
        let node = nodes.fresh()?;
        let cost = controller.measure(node.namespace(), run)?;
        say(&format!(
            "program {run} of {}: {:.1} MB, {:.2} s of processor",
            options.runs, cost.rss_mb, cost.cpu_s
        ));
        measured.processes.push(cost);
    }
    if quiet {
        stage
            .console
            .line(&serde_json::to_string(&measured.report()?)?);
    } else {
        report::table(stage.console, &measured)?;
    }
    Ok(())
}

const MANIFESTS: &str = "manifests";

/// State shared by all runs.
#[derive(Debug)]
struct Bench<'a> {
    stage: &'a Stage,
    scale: Scale,
    folder: WorkFolder,
}

impl<'a> Bench<'a> {
    fn prepare(stage: &'a Stage, scale: Scale, dataplane: &str) -> Result<Self> {
        let folder = WorkFolder::private()?;
        let settings = format!(
            "dataplane: {dataplane}, sync: {{period: {}}}",
            process::PERIOD
        );
        write_manifests(&folder.path.join(MANIFESTS), &scale, &settings)?;
        Ok(Self {
            stage,
            scale,
            folder,
        })
    }

    fn plan(&self) -> Result<Plan> {
        Plan::of(&self.folder.path.join(MANIFESTS))
    }

    fn state(&self) -> Result<PathBuf> {
        let state = self.folder.path.join("state");
        if state.exists() {
            std::fs::remove_dir_all(&state)?;
        }
        Ok(state)
    }

    /// The first run, which loads modules and is not measured: keeps what the agent sends, and shows
    /// what it writes after a restart.
    fn record(&self, nodes: &mut Nodes) -> Result<(Recording, Measured)> {
        let node = nodes.fresh()?;
        let state = self.state()?;
        let recorder = Recorder::default();
        let mut plan = self.plan()?;
        let agent = Agent::start(
            node.namespace(),
            &state,
            self.stage.waits,
            Some(recorder.tap()),
        )?;
        let whole = agent.program(plan.whole())?;
        let recording = recorder.take();
        let changed = agent.program(plan.move_endpoints([self.scale.services / 2])?)?;
        let (servers, backends) = self.scale.servers();
        wait_held(node.namespace(), servers, backends, self.stage.waits)?;
        agent.stop()?;
        let agent = Agent::start(node.namespace(), &state, self.stage.waits, NO_TAP)?;
        let again = agent.program(plan.whole())?;
        agent.stop()?;
        ensure!(
            again.applied.operations as u64 == again.asked.operations.values().sum::<u64>(),
            "the programmer counts other operations than the kernel"
        );
        let measured = Measured::new(self.scale, &whole.asked, &changed.asked, &again.asked);
        Ok((recording, measured))
    }

    fn raw(
        &self,
        nodes: &mut Nodes,
        recording: &Recording,
        measured: &Measured,
    ) -> Result<Duration> {
        let node = nodes.fresh()?;
        let (took, refused) = node.namespace().inside(|| recording.replay())?;
        ensure!(
            refused == measured.probes(),
            "the kernel refused {refused} messages that the agent had sent before"
        );
        let (servers, backends) = self.scale.servers();
        wait_held(node.namespace(), servers, backends, self.stage.waits)
            .context("after the raw writer")?;
        Ok(took)
    }

    fn agent(&self, nodes: &mut Nodes, measured: &mut Measured) -> Result<()> {
        let node = nodes.fresh()?;
        let mut plan = self.plan()?;
        let whole = plan.whole();
        let agent = Agent::start(node.namespace(), &self.state()?, self.stage.waits, NO_TAP)?;
        let outcome = agent.program(whole)?;
        measured.add_agent(outcome.applied.took, Parts::of(&outcome));
        measured.set_steps(outcome.applied.steps);
        for change in 0..CHANGES {
            let service = self.scale.services / CHANGES * change;
            let outcome = agent.program(plan.move_endpoints([service])?)?;
            measured.add_change(outcome.applied.took);
        }
        agent.stop()
    }
}

/// No tap.
pub const NO_TAP: Option<fn(Datagram<'_>)> = None;

/// Writes the manifests of a cluster with these settings into a folder of its own.
///
/// # Errors
/// It cannot be written.
pub fn write_manifests(folder: &Path, scale: &Scale, settings: &str) -> Result<()> {
    std::fs::create_dir(folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, text) in scale.manifests(settings) {
        std::fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// Operations of an agent on IPVS and sets, in the unit of the raw writer.
fn netlink_operations(asked: &Asked) -> u64 {
    asked.of(OpKind::Ipvs) + asked.of(OpKind::Scheduler) + asked.of(OpKind::Set)
}
