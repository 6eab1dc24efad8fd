//! The lab of a scenario on kernels: the network, servers in its pods, and a controller and agents that
//! follow manifests.

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::servers::Servers;
use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::topology::world::Node;
use crate::topology::{Network, Topology};

/// Everything that runs, and the state of its scenario. Dropping it ends everything.
///
/// A scenario sets it up step by step: [`Lab::new`], [`Lab::serve_pods`], [`Lab::add_files`],
/// [`Lab::start`].
pub(crate) struct Lab<'a, S = ()> {
    // The order matters: programs end before the namespaces in which they run go.
    pub(crate) cluster: Cluster,
    /// State of the scenario beside the lab.
    pub(crate) state: S,
    pub(crate) servers: Servers,
    pub(crate) topology: Arc<Topology>,
    pub(crate) stage: &'a Stage,
}

impl<'a> Lab<'a> {
    /// Builds the network. Nothing runs on it yet, and the cluster has no manifests.
    ///
    /// # Errors
    /// When this kernel lacks the dataplane, or as [`Topology::build`].
    pub(crate) fn new(stage: &'a Stage, network: Network) -> Result<Self> {
        stage.dataplane.require()?;
        let topology = Arc::new(Topology::build(network, stage.waits)?);
        Ok(Self {
            cluster: Cluster::new(&topology, stage.waits, stage.dataplane, [])?,
            state: (),
            servers: Servers::default(),
            topology,
            stage,
        })
    }
}

impl<'a, S> Lab<'a, S> {
    /// The same lab with another state.
    pub(crate) fn with<T>(self, state: T) -> Lab<'a, T> {
        Lab {
            cluster: self.cluster,
            state,
            servers: self.servers,
            topology: self.topology,
            stage: self.stage,
        }
    }

    /// Starts a server in every pod.
    pub(crate) fn serve_pods(&mut self) -> Result<()> {
        self.servers.pods = Servers::in_pods(&self.topology)?;
        Ok(())
    }

    /// Starts a daemon on every node.
    pub(crate) fn serve_nodes(&mut self) -> Result<()> {
        self.servers.daemons = Servers::on_nodes(&self.topology)?;
        Ok(())
    }

    /// Adds checked-in files to the manifests, each under [`manifest_name`].
    pub(crate) fn add_files<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Result<()> {
        paths.into_iter().try_for_each(|path| {
            let text = self.stage.files.text(path)?;
            self.write(&manifest_name(path), &text)
        })
    }

    /// Adds a manifest or replaces it. Agents follow some time later.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        self.cluster.write_manifest(name, text)
    }

    /// Replaces a manifest and waits until the agents of both nodes have applied a plan that came later.
    pub(crate) fn put(&self, name: &str, text: &str) -> Result<()> {
        let before = self.applied()?;
        self.write(name, text)?;
        self.wait_applied_after(before)
    }

    /// The same for one node.
    pub(crate) fn put_on(&self, node: Node, name: &str, text: &str) -> Result<()> {
        let before = self.cluster.applied(node)?.len();
        self.write(name, text)?;
        self.cluster.wait_applied(node, before).map(drop)
    }

    /// How many plans the agent of each node has applied.
    pub(crate) fn applied(&self) -> Result<[usize; 2]> {
        let [a, b] = Node::ALL.map(|node| self.cluster.applied(node));
        Ok([a?.len(), b?.len()])
    }

    /// Waits until the agent of each node has applied more plans than that.
    pub(crate) fn wait_applied_after(&self, before: [usize; 2]) -> Result<()> {
        for (node, before) in Node::ALL.into_iter().zip(before) {
            self.cluster.wait_applied(node, before)?;
        }
        Ok(())
    }

    /// Starts the controller and both agents, and waits until both have applied a plan.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.cluster.start()?;
        self.wait_applied_after([0, 0])
    }

    /// Ends the agent of a node and starts it again with these arguments beside the usual ones.
    pub(crate) fn restart_agent(&mut self, node: Node, more: &[&str]) -> Result<()> {
        self.cluster.stop_agent(node)?;
        self.cluster.start_agent_with(node, more)
    }

    /// Starts the agent of a node and waits until it has applied a plan; returns the operations of each.
    pub(crate) fn start_agent(&mut self, node: Node) -> Result<Vec<u64>> {
        let before = self.cluster.applied(node)?.len();
        self.cluster.start_agent(node)?;
        self.cluster.wait_applied(node, before)
    }

    /// Kills the agent of a node and starts it again, as [`Lab::start_agent`].
    pub(crate) fn crash_agent(&mut self, node: Node) -> Result<Vec<u64>> {
        self.cluster.kill_agent(node)?;
        self.start_agent(node)
    }

    /// Runs `portolan-agent cleanup` on a node, where no agent runs.
    pub(crate) fn clean_up(&self, node: Node) -> Result<()> {
        let ended = self.cluster.clean_up(node)?;
        let success = ended.status.success();
        ensure!(
            success,
            "it ended with {}: {}",
            ended.status,
            ended.errors.trim()
        );
        Ok(())
    }

    /// Ends the agents of both nodes.
    pub(crate) fn stop_agents(&mut self) -> Result<()> {
        let mut nodes = Node::ALL.into_iter();
        nodes.try_for_each(|node| self.cluster.stop_agent(node))
    }
}

/// Fails unless each plan was applied without an operation.
pub(crate) fn wrote_nothing(operations: &[u64]) -> Result<()> {
    let nothing = operations.iter().all(|count| *count == 0);
    ensure!(nothing, "{operations:?} operations");
    Ok(())
}

/// A manifest of the default ProxyConfig with these settings, a line each.
pub(crate) fn proxy_config(settings: &[&str]) -> String {
    let lines = settings.iter().map(|line| format!("    {line}\n"));
    "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {name: default}\n\
     spec:\n  settings:\n"
        .to_owned()
        + &lines.collect::<String>()
}

/// The name of a checked-in file in the folder of manifests, which has no folders inside.
pub(crate) fn manifest_name(path: &str) -> String {
    path.replace('/', "-")
}
