//! Agents: start in their node's namespace, end, and logs.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Cluster;
use crate::program::{Ended, Program};
use crate::topology::world::Node;
use crate::waits::SOON;

impl Cluster {
    /// Starts the agent of a node.
    ///
    /// # Errors
    /// If the program is missing.
    pub fn start_agent(&mut self, node: Node) -> Result<()> {
        self.start_agent_with(node, &[])
    }

    /// The same, with more on its command line.
    ///
    /// # Errors
    /// As [`Cluster::start_agent`].
    pub fn start_agent_with(&mut self, node: Node, more: &[&str]) -> Result<()> {
        self.start_agent_after(node, more, || Ok(()))
    }

    /// The same, in what the thread that starts it has made of itself.
    ///
    /// # Errors
    /// As [`Cluster::start_agent`], and those of the preparation.
    pub fn start_agent_after(
        &mut self,
        node: Node,
        more: &[&str],
        prepare: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        self.run_agent(node, more, &[], prepare)
    }

    /// As [`Cluster::start_agent_with`]; the agent finds its tools in this folder first.
    ///
    /// # Errors
    /// As [`Cluster::start_agent`], or the path of the folder cannot be in a search path.
    pub fn start_agent_with_tools(
        &mut self,
        node: Node,
        more: &[&str],
        folder: &Path,
    ) -> Result<()> {
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&usual));
        let path = std::env::join_paths(folders).context("make a search path")?;
        self.run_agent(node, more, &[("PATH", Path::new(&path))], || Ok(()))
    }

    fn run_agent(
        &mut self,
        node: Node,
        more: &[&str],
        environment: &[(&str, &Path)],
        prepare: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        let state = self.state(node);
        let (flag, value) = match &self.addresses {
            Some(file) => ("--controllers-file", file.display().to_string()),
            None => ("--controller", self.listen()),
        };
        let args = [
            "run",
            "--node",
            node.name(),
            flag,
            &value,
            "--insecure",
            "--state-dir",
            &state,
        ];
        let args = [&args[..], more].concat();
        let log = self.log(node.name())?;
        let start = || {
            prepare()?;
            Program::Agent.start_with(&args, environment, &log)
        };
        let running = self.topology.node(node)?.inside(start)?;
        self.agents.insert(node, running);
        Ok(())
    }

    /// Ends the agent of a node at once.
    ///
    /// # Errors
    /// If it had already ended.
    pub fn kill_agent(&mut self, node: Node) -> Result<()> {
        self.agents
            .remove(&node)
            .with_context(|| no_agent(node))?
            .kill()
    }

    /// Stops the agent of a node where it is, as a machine that is overloaded does.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause_agent(&mut self, node: Node) -> Result<()> {
        let agent = self.agents.get_mut(&node);
        agent.with_context(|| no_agent(node))?.pause()
    }

    /// Resumes the agent of a node.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume_agent(&mut self, node: Node) -> Result<()> {
        let agent = self.agents.get_mut(&node);
        agent.with_context(|| no_agent(node))?.resume()
    }

    /// Asks the agent of a node to end and waits until it has, with status 0.
    ///
    /// # Errors
    /// When it does not, or had ended before.
    pub fn stop_agent(&mut self, node: Node) -> Result<()> {
        let agent = self.agents.remove(&node).with_context(|| no_agent(node))?;
        agent.ask_to_end()?;
        let what = format!("the agent of {} to end after SIGTERM", node.name());
        let ended = || agent.ended()?.context("it runs on");
        let status = self.waits.eventually(&what, SOON, ended)?;
        if !status.success() {
            bail!(
                "the agent of {} ended after SIGTERM with {status}",
                node.name()
            );
        }
        Ok(())
    }

    /// Waits until the agent of a node has ended by itself.
    ///
    /// # Errors
    /// When it does not, or does not run.
    pub fn wait_agent_end(&mut self, node: Node, deadline: Duration) -> Result<ExitStatus> {
        let agent = self.agents.get(&node).with_context(|| no_agent(node))?;
        let what = format!("the agent of {} to end by itself", node.name());
        let ended = || agent.ended()?.context("it runs on");
        let status = self.waits.eventually(&what, deadline, ended)?;
        self.agents.remove(&node);
        Ok(status)
    }

    /// Runs `portolan-agent cleanup` on a node.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn clean_up(&self, node: Node) -> Result<Ended> {
        let state = self.state(node);
        let args = ["cleanup", "--state-dir", &state];
        self.topology
            .node(node)?
            .inside(|| Program::Agent.try_with_input(&args, ""))
    }

    /// The process of a node's agent.
    ///
    /// # Errors
    /// When it does not run.
    pub fn agent_pid(&self, node: Node) -> Result<u32> {
        let agent = self.agents.get(&node).with_context(|| no_agent(node))?;
        Ok(agent.pid())
    }

    /// The folder in which the agent of a node keeps what it has to remember.
    #[must_use]
    pub fn state_folder(&self, node: Node) -> PathBuf {
        self.state(node).into()
    }

    /// Removes the ownership record of an agent, as if its disk was lost.
    ///
    /// # Errors
    /// When there is none.
    pub fn lose_record(&self, node: Node) -> Result<()> {
        let record = Path::new(&self.state(node)).join("virtual-servers");
        std::fs::remove_file(&record).with_context(|| format!("remove {}", record.display()))
    }

    /// All that the agents of a node have printed since the beginning.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn said(&self, node: Node) -> Result<String> {
        let path = self.folder.path.join(format!("{}.log", node.name()));
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn no_agent(node: Node) -> String {
    format!("{} has no agent that runs", node.name())
}
