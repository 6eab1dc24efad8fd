//! Traffic servers of the lab: one in every pod, and daemons on the nodes.

use anyhow::{Result, ensure};

use crate::topology::Topology;
use crate::topology::world::{Node, Pod, Resident};
use crate::traffic::Protocol;
use crate::traffic::server::Server;

/// The ports that every pod serves.
pub(crate) const POD_PORTS: [(Protocol, u16); 4] = [
    (Protocol::Tcp, 8080),
    (Protocol::Tcp, 5353),
    (Protocol::Udp, 5353),
    (Protocol::Sctp, 13868),
];
/// The ports of the daemons on the nodes, on all addresses: no Service may lead there (S-27).
pub(crate) const DAEMON_PORTS: [(Protocol, u16); 2] =
    [(Protocol::Tcp, 9999), (Protocol::Udp, 9999)];

/// Servers that run until they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    pub(crate) pods: Vec<Server>,
    pub(crate) daemons: Vec<Server>,
}

impl Servers {
    /// Starts a server in every pod, for all protocols that this kernel has.
    pub(crate) fn in_pods(topology: &Topology) -> Result<Vec<Server>> {
        let mut ports = POD_PORTS.to_vec();
        ports.retain(|(protocol, _)| protocol.is_spoken_here());
        let start = |pod: Pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &ports);
        Pod::all().map(start).collect()
    }

    /// Starts a daemon on every node.
    pub(crate) fn on_nodes(topology: &Topology) -> Result<Vec<Server>> {
        let start = |node: Node| {
            let name = format!("daemon-of-{}", node.name());
            Server::start(topology.node(node)?, &name, &DAEMON_PORTS)
        };
        Node::ALL.into_iter().map(start).collect()
    }

    /// Fails if a daemon answered a client.
    pub(crate) fn no_daemon_was_reached(&self) -> Result<()> {
        let reached: u64 = self.daemons.iter().map(Server::answered).sum();
        ensure!(reached == 0, "{reached} did");
        Ok(())
    }
}
