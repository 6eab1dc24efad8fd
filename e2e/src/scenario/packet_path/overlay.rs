//! Encapsulated packets of the overlay in connection tracking. They inherit the mark of the packet
//! that they carry: if that mark is not cleared in time, they are masqueraded once more. Clients
//! may not notice, so this check is separate.

use anyhow::{Context, Result, bail, ensure};

use crate::program::Program;
use crate::topology::Topology;
use crate::topology::world::Node;

/// The port that every node's overlay listens on.
const PORT: &str = "8472";

/// That no flow of the overlay has another port outside than its sender gave it.
pub(super) fn keeps_its_ports(topology: &Topology) -> Result<()> {
    for node in Node::ALL {
        let list = ["-L", "-p", "udp", "--dport", PORT];
        let flows = topology
            .node(node)?
            .inside(|| Program::Conntrack.run(&list))?;
        ensure!(
            flows.lines().count() > 0,
            "{} has no flow of the overlay: nothing was seen",
            node.name()
        );
        for flow in flows.lines() {
            let (given, seen) = ports(flow).with_context(|| format!("read the flow {flow:?}"))?;
            if given != seen {
                bail!(
                    "{}: the overlay's port {given} was masqueraded to {seen}",
                    node.name()
                );
            }
        }
    }
    Ok(())
}

/// The port that packets of a flow are sent from, and the one that answers have to go to.
fn ports(flow: &str) -> Option<(&str, &str)> {
    let given = flow
        .split_whitespace()
        .find_map(|word| word.strip_prefix("sport="));
    let seen = flow
        .split_whitespace()
        .rev()
        .find_map(|word| word.strip_prefix("dport="));
    given.zip(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_was_masqueraded_has_two_ports() {
        let flow = |answers: &str| {
            format!(
                "udp      17 29 src=192.168.50.11 dst=192.168.50.12 sport=43423 dport=8472 \
                 [UNREPLIED] src=192.168.50.12 dst=192.168.50.11 sport=8472 dport={answers} mark=0 use=1"
            )
        };
        assert_eq!(ports(&flow("43423")), Some(("43423", "43423")));
        assert_eq!(ports(&flow("61001")), Some(("43423", "61001")));
        assert_eq!(ports("conntrack v1.4.7"), None);
    }
}
