//! The agent as a program: controller and agent as on a node, and the figures of the agent in
//! `/proc`.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::scale::NODE;
use crate::namespace::Namespace;
use crate::program::{Program, Running};
use crate::waits::{Waits, sleep_until};
use crate::work_folder::WorkFolder;

/// Until the controller has read and planned the manifests, and the agent programmed the plan, on
/// hardware.
const LIMIT: Duration = Duration::from_secs(300);
/// How long the agent is idle before its memory is read: it reads the whole kernel at least once
/// meanwhile ([`PERIOD`]), which needs the most memory.
const REST: Duration = Duration::from_secs(25);
/// The setting `sync.period` of these runs.
pub(super) const PERIOD: &str = "10s";

/// Measurements of one agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Resident memory in MB after it has programmed its plan and then verified it.
    pub(super) rss_mb: f64,
    /// Of that, its private memory in MB; the rest is the program and its libraries.
    pub(super) own_mb: f64,
    /// The most that was ever resident, in MB.
    pub(super) peak_mb: f64,
    /// Processor time from its start until its plan was in force, in seconds.
    pub(super) cpu_s: f64,
    /// Number of write operations after a restart with a correct kernel state, as logged by the
    /// agent.
    pub(super) restart_operations: u64,
}

/// A controller that serves the plan to agents.
#[derive(Debug)]
pub(super) struct Controller {
    // Ends before its folder goes.
    running: Running,
    folder: WorkFolder,
    waits: Waits,
}

impl Controller {
    /// Starts one on these manifests.
    ///
    /// # Errors
    /// The program is not there.
    pub(super) fn start(manifests: &Path, waits: Waits) -> Result<Self> {
        let folder = WorkFolder::make()?;
        let log = File::create(folder.path.join("controller.log"))?;
        let manifests = manifests.display().to_string();
        let listen = listen(&folder);
        let words = [
            "run",
            "--manifests",
            &manifests,
            "--listen",
            &listen,
            "--insecure",
        ];
        let running = Program::Controller.start(&words, &log)?;
        Ok(Self {
            running,
            folder,
            waits,
        })
    }

    /// Runs an agent in this namespace, measures it, and starts it once more.
    ///
    /// # Errors
    /// A program ended, or said nothing of a plan in time.
    pub(super) fn measure(&mut self, namespace: &Namespace, number: u32) -> Result<Cost> {
        let name = format!("agent-{number}");
        let mut agent = self.agent(namespace, &name)?;
        self.wait_applied(&mut agent, &name)?;
        let cpu_s = agent.cpu_seconds().context("the agent ended")?;
        sleep_until(std::time::Instant::now() + self.waits.limit(REST))?;
        let memory = |agent: &Running| {
            let (now, own) = (agent.memory_kb()?, agent.own_memory_kb()?);
            Some((now, own, agent.peak_memory_kb()?))
        };
        let (now, own, peak) = memory(&agent).context("the agent ended")?;
        agent.kill()?;
        let again = format!("{name}-again");
        // The record of what is its own is that of the one before.
        std::fs::rename(self.state(&name), self.state(&again))?;
        let mut agent = self.agent(namespace, &again)?;
        let restart_operations = self.wait_applied(&mut agent, &again)?;
        agent.kill()?;
        Ok(Cost {
            rss_mb: megabytes(now),
            own_mb: megabytes(own),
            peak_mb: megabytes(peak),
            cpu_s,
            restart_operations,
        })
    }

    fn agent(&self, namespace: &Namespace, name: &str) -> Result<Running> {
        let log = File::create(self.log(name))?;
        let listen = listen(&self.folder);
        let state = self.state(name).display().to_string();
        let words = [
            "run",
            "--node",
            NODE,
            "--controller",
            &listen,
            "--insecure",
            "--state-dir",
            &state,
        ];
        namespace.inside(|| Program::Agent.start(&words, &log))
    }

    /// The operations of the first plan that the agent says to be in force.
    fn wait_applied(&mut self, agent: &mut Running, name: &str) -> Result<u64> {
        let log = self.log(name);
        let read =
            || String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
        self.waits.until(
            "the agent to have its plan in force",
            LIMIT,
            Duration::from_millis(10),
            || {
                for running in [&mut self.running, &mut *agent] {
                    if let Some(status) = running.ended()? {
                        bail!("{} ended with {status}", running.line());
                    }
                }
                Ok(read().lines().find_map(crate::cluster::operations))
            },
            || format!("it said: {}", read()),
        )
    }

    fn state(&self, name: &str) -> std::path::PathBuf {
        self.folder.path.join(format!("{name}.state"))
    }

    fn log(&self, name: &str) -> std::path::PathBuf {
        self.folder.path.join(format!("{name}.log"))
    }
}

fn listen(folder: &WorkFolder) -> String {
    format!("unix:{}", folder.path.join("controller.socket").display())
}

pub(super) fn megabytes(kilobytes: u64) -> f64 {
    let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
    f64::from(kilobytes) * 1024.0 / 1e6
}
