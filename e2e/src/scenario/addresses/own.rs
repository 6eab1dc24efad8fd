//! External IPs that are in use already: as the node's own address, as another node's, and as the
//! cluster IP of another Service.

use anyhow::{Result, ensure};

use super::{Checks, Lab, NODE_A, NODE_B, POD_A3, WEB};
use crate::topology::world::{Node, Resident};

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let daemons = ["daemon-of-node-a", "daemon-of-node-b"];
    for (name, address, daemon) in [
        ("node-a", "192.168.50.11", daemons[0]),
        ("node-b", "192.168.50.12", daemons[1]),
    ] {
        let service = format!("{address}:8081");
        checks.check(
            &format!("an external IP that is {name}'s own address answers there (S-25)"),
            lab.answers(Resident::Outside, &service, WEB),
        );
        let other = format!("{address}:9999");
        for from in [Resident::Outside, POD_A3, NODE_A, NODE_B] {
            checks.check(
                &format!("{name}'s daemon answers {} on it (S-25)", from.name()),
                lab.answers(from, &other, &[daemon]),
            );
        }
    }
    checks.check(
        "both nodes have the frontends of both addresses (S-25)",
        frontends_are_on_every_node(lab),
    );
    checks.check(
        "a cluster IP takes precedence over an older external IP of another Service (S-14)",
        cluster_ip_goes_first(lab),
    );
    Ok(())
}

fn frontends_are_on_every_node(lab: &Lab<'_>) -> Result<()> {
    for node in [Node::A, Node::B] {
        let servers = lab.cluster.virtual_servers(node)?;
        let texts: Vec<_> = servers.keys().map(|key| key.address.to_string()).collect();
        for own in ["192.168.50.11:8081", "192.168.50.12:8081"] {
            ensure!(
                texts.iter().any(|text| text == own),
                "{} has no virtual server {own}: {texts:?}",
                node.name()
            );
        }
    }
    Ok(())
}

fn cluster_ip_goes_first(lab: &Lab<'_>) -> Result<()> {
    for from in [POD_A3, NODE_B] {
        // More requests than the two Services have endpoints together.
        for _ in 0..6 {
            lab.answers(from, "10.96.2.1:80", WEB)?;
        }
    }
    Ok(())
}
