//! The programs under test: one controller for all nodes, and an agent in each node's namespace.
//! They end when the [`Cluster`] is dropped; their output is shown when something fails.

mod agents;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::dataplane::Dataplane;
use crate::logs;
use crate::namespace::Namespace;
use crate::program::{Program, Running};
use crate::topology::Topology;
use crate::topology::world::{Node, Resident};
use crate::waits::{LATER, SOON, Waits};
use crate::witness::{self, VirtualServer, VirtualServers, tables};
use crate::work_folder::WorkFolder;

/// The manifest that selects the dataplane, until another one has settings.
const SELECTION: &str = "dataplane.yaml";

/// The programs under test and their folder.
#[derive(Debug)]
pub struct Cluster {
    // The order matters: programs end before their folder goes.
    agents: BTreeMap<Node, Running>,
    controller: Option<Running>,
    /// The name of the controller's socket.
    socket: String,
    /// Where agents read it, if they do.
    addresses: Option<PathBuf>,
    folder: WorkFolder,
    dataplane: Dataplane,
    topology: Arc<Topology>,
    waits: Waits,
}

impl Cluster {
    /// Writes the manifests and starts nothing yet.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(
        topology: &Arc<Topology>,
        waits: Waits,
        dataplane: Dataplane,
        manifests: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let folder = WorkFolder::make()?;
        let cluster = Self {
            agents: BTreeMap::new(),
            controller: None,
            socket: "controller.socket".into(),
            addresses: None,
            folder,
            dataplane,
            topology: Arc::clone(topology),
            waits,
        };
        std::fs::create_dir(cluster.manifests())?;
        if let Some(text) = dataplane.manifest() {
            cluster.write_manifest(SELECTION, &text)?;
        }
        for (name, text) in manifests {
            cluster.write_manifest(&name, &text)?;
        }
        Ok(cluster)
    }

    /// The folder that the controller watches.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.folder.path.join("manifests")
    }

    /// A file beside the manifests, which goes with them.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }

    /// Puts a manifest in place at once, as a whole. A ProxyConfig in it also selects the dataplane of this run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_manifest(&self, name: &str, text: &str) -> Result<()> {
        if name == SELECTION {
            return self.put(name, text);
        }
        match self.dataplane.selected_in(text)? {
            None => self.put(name, text),
            Some(text) => {
                // There is one ProxyConfig of each name.
                match std::fs::remove_file(self.manifests().join(SELECTION)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)?,
                    _ => self.put(name, &text),
                }
            }
        }
    }

    fn put(&self, name: &str, text: &str) -> Result<()> {
        let draft = self.folder.path.join("draft");
        std::fs::write(&draft, text).with_context(|| format!("write {}", draft.display()))?;
        std::fs::rename(&draft, self.manifests().join(name))
            .with_context(|| format!("put manifest {name} in place"))
    }

    /// Starts the controller and every agent.
    ///
    /// # Errors
    /// If a program is missing.
    pub fn start(&mut self) -> Result<()> {
        self.start_controller()?;
        self.start_agents()
    }

    /// Starts a controller that reads an API server instead of manifests, with further arguments,
    /// and every agent.
    ///
    /// # Errors
    /// If a program is missing.
    pub fn start_on_api_server(&mut self, kubeconfig: &Path, more: &[&str]) -> Result<()> {
        self.start_controller_on(kubeconfig, more)?;
        self.start_agents()
    }

    /// The same without the agents.
    ///
    /// # Errors
    /// If the program is missing.
    pub fn start_controller_on(&mut self, kubeconfig: &Path, more: &[&str]) -> Result<()> {
        self.run_controller("--kubeconfig", kubeconfig, more)
    }

    /// From now on controllers are somewhere else, and agents that are started read from a file where; those
    /// that run have read it before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn move_controllers(&mut self, socket: &str) -> Result<()> {
        socket.clone_into(&mut self.socket);
        let path = self.folder.path.join("addresses");
        let draft = self.folder.path.join("addresses.draft");
        std::fs::write(&draft, format!("{}\n", self.listen()))?;
        std::fs::rename(&draft, &path).with_context(|| format!("write {}", path.display()))?;
        self.addresses = Some(path);
        Ok(())
    }

    fn start_agents(&mut self) -> Result<()> {
        Node::ALL
            .into_iter()
            .try_for_each(|node| self.start_agent(node))
    }

    /// Starts the controller.
    ///
    /// # Errors
    /// If the program is missing.
    pub fn start_controller(&mut self) -> Result<()> {
        self.run_controller("--manifests", &self.manifests(), &[])
    }

    fn run_controller(&mut self, source: &str, path: &Path, more: &[&str]) -> Result<()> {
        let (path, listen) = (path.display().to_string(), self.listen());
        let args = ["run", source, &path, "--listen", &listen, "--insecure"];
        let args = [&args, more].concat();
        self.controller = Some(Program::Controller.start(&args, &self.log("controller")?)?);
        Ok(())
    }

    /// Starts it in the network of a resident, with further arguments. Agents still reach it, because its socket is a
    /// file.
    ///
    /// # Errors
    /// As [`Cluster::start_controller`].
    pub fn start_controller_at(&mut self, place: Resident, more: &[&str]) -> Result<()> {
        let (path, listen) = (self.manifests().display().to_string(), self.listen());
        let args = [
            "run",
            "--manifests",
            &path,
            "--listen",
            &listen,
            "--insecure",
        ];
        let args = [&args[..], more].concat();
        let log = self.log("controller")?;
        let start = || Program::Controller.start(&args, &log);
        self.controller = Some(self.topology.of(place)?.inside(start)?);
        Ok(())
    }

    /// Ends the controller at once.
    ///
    /// # Errors
    /// If it had already ended.
    pub fn kill_controller(&mut self) -> Result<()> {
        self.controller
            .take()
            .context("the controller does not run")?
            .kill()
    }

    /// The plan of a node as the controller prints it.
    ///
    /// # Errors
    /// The error of the controller.
    pub fn plan(&self, node: Node, form: &str) -> Result<String> {
        let manifests = self.manifests().display().to_string();
        Program::Controller.run(&[
            "plan",
            "--manifests",
            &manifests,
            "--node",
            node.name(),
            "-o",
            form,
        ])
    }

    /// Number of operations of each batch that the agent of a node has logged as applied, since its
    /// start.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn applied(&self, node: Node) -> Result<Vec<u64>> {
        Ok(self.said(node)?.lines().filter_map(operations).collect())
    }

    /// Waits until the agent of a node has applied more batches than `before`; returns the
    /// operations of the new ones.
    ///
    /// # Errors
    /// When it does not in time, or ended.
    pub fn wait_applied(&self, node: Node, before: usize) -> Result<Vec<u64>> {
        let what = format!("the agent of {} to apply its plan", node.name());
        // Before its first plan, an agent starts, connects and reads the kernel.
        let limit = if before == 0 { LATER } else { SOON };
        self.eventually(&what, limit, || {
            let applied = self.applied(node)?;
            ensure!(applied.len() > before, "it has said so {before} times");
            Ok(applied[before..].to_vec())
        })
    }

    /// Waits until the kernel of a node gives new connections to exactly these virtual servers.
    ///
    /// # Errors
    /// When it does not in time (says what differs), or a program ended.
    pub fn wait_virtual_servers(&self, node: Node, wanted: &VirtualServers) -> Result<()> {
        self.virtual_servers_within(node, wanted, SOON)
    }

    /// What serves Services in the kernel of a node, with the weights of backends.
    ///
    /// # Errors
    /// When the tool of the dataplane fails, or its output cannot be parsed.
    pub fn virtual_servers(&self, node: Node) -> Result<VirtualServers> {
        self.served()(self.topology.node(node)?)
    }

    fn served(&self) -> fn(&Namespace) -> Result<VirtualServers> {
        match self.dataplane {
            Dataplane::Ipvs => witness::virtual_servers,
            Dataplane::Nftables => tables::served,
        }
    }

    fn virtual_servers_within(
        &self,
        node: Node,
        wanted: &VirtualServers,
        limit: Duration,
    ) -> Result<()> {
        let served = self.served();
        let namespace = self.topology.node(node)?;
        let what = format!("the virtual servers of {}", node.name());
        self.eventually(&what, limit, || {
            let seen = witness::without_draining(served(namespace)?);
            ensure!(seen == *wanted, difference(wanted, &seen));
            Ok(())
        })
    }

    fn eventually<T>(
        &self,
        what: &str,
        limit: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let runs = || self.check_running();
        let waits = self.waits;
        waits
            .eventually_while(what, limit, runs, ask)
            .map_err(|error| self.with_logs(error))
    }

    /// Waits for the first plan: the virtual servers and the end of the batch that made them.
    ///
    /// # Errors
    /// As the other waits.
    pub fn wait_programmed(&self, node: Node, wanted: &VirtualServers) -> Result<()> {
        self.virtual_servers_within(node, wanted, LATER)?;
        self.wait_applied(node, 0).map(drop)
    }

    /// The resident memory of a node's agent in kB.
    #[must_use]
    pub fn agent_memory_kb(&self, node: Node) -> Option<u64> {
        self.agents.get(&node)?.memory_kb()
    }

    /// An error with the last lines of every program's log, unless it has them already.
    #[must_use]
    pub fn with_logs(&self, error: anyhow::Error) -> anyhow::Error {
        logs::attach(error, || {
            let names = [Node::A.name(), Node::B.name(), "controller"];
            let tail = |name| {
                let path = self.folder.path.join(format!("{name}.log"));
                let log = std::fs::read(path).unwrap_or_default();
                logs::tail(name, &String::from_utf8_lossy(&log), 8)
            };
            names.map(tail).concat()
        })
    }

    /// Fails if a program has ended.
    pub(crate) fn check_running(&self) -> Result<()> {
        for running in self.agents.values().chain(&self.controller) {
            if let Some(status) = running.ended()? {
                bail!("{} ended with {status}", running.line());
            }
        }
        Ok(())
    }

    /// Where the controller listens.
    #[must_use]
    pub fn address(&self) -> String {
        self.listen()
    }

    fn listen(&self) -> String {
        format!("unix:{}", self.folder.path.join(&self.socket).display())
    }

    fn state(&self, node: Node) -> String {
        self.folder
            .path
            .join(format!("{}.state", node.name()))
            .display()
            .to_string()
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.folder.path.join(format!("{name}.log"));
        File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))
    }
}

/// The operations of a line that says "the plan is in force" and `operations=N`, coloured or not.
pub(crate) fn operations(line: &str) -> Option<u64> {
    let mut plain = String::new();
    let mut escaped = false;
    for c in line.chars() {
        match c {
            '\x1b' => escaped = true,
            'm' if escaped => escaped = false,
            _ if escaped => {}
            _ => plain.push(c),
        }
    }
    let rest = plain
        .contains("the plan is in force")
        .then(|| plain.split_once("operations="))??
        .1;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Missing and superfluous virtual servers of the kernel, as text.
fn difference(wanted: &VirtualServers, seen: &VirtualServers) -> String {
    let name = |key: &VirtualServer| format!("{} {}", key.protocol, key.address);
    let keys: BTreeSet<_> = wanted.keys().chain(seen.keys()).collect();
    let mut words = Vec::new();
    for key in keys {
        match (wanted.get(key), seen.get(key)) {
            (Some(want), Some(have)) if want == have => {}
            (Some(want), Some(have)) => {
                words.push(format!("{} has {have:?}, not {want:?}", name(key)));
            }
            (Some(_), None) => words.push(format!("{} is missing", name(key))),
            (None, _) => words.push(format!("{} is too much", name(key))),
        }
    }
    let more = words.len().saturating_sub(4);
    words.truncate(4);
    format!("{}; {more} more differences", words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_from_plain_and_coloured_lines() {
        let line = "2026-11-21T11:00:00Z  INFO the plan is in force services=3 operations=17 ms=4";
        assert_eq!(operations(line), Some(17));
        let line = "\x1b[32m INFO\x1b[0m the plan is in force \x1b[3moperations\x1b[0m\x1b[2m=\x1b[0m0 hash=ab";
        assert_eq!(operations(line), Some(0));
        for other in [
            "received",
            "the saved plan is in force",
            "the plan is not fully in force",
        ] {
            assert_eq!(operations(&format!("INFO {other} operations=3")), None);
        }
    }
}
