//! The lab itself, without any Service: all residents reach each other where they should, with the
//! expected source address, over every network. It needs no IPVS, so a failure here is one of the
//! lab, not of Portolan.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Checks, Scenario, Stage};
use crate::topology::world::{Family, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::Protocol;
use crate::traffic::client::{self, Outcome};
use crate::traffic::server::Server;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "topology",
    shows: "pods, nodes and external clients reach each other without any Service",
    run,
};

const PORTS: [(Protocol, u16); 3] = [
    (Protocol::Tcp, 8080),
    (Protocol::Udp, 5353),
    (Protocol::Sctp, 13868),
];

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    for network in Network::ALL {
        let topology = Topology::build(network, stage.waits)?;
        let mut servers = Vec::new();
        for resident in Resident::all() {
            servers.push(Server::start(
                topology.of(resident)?,
                &resident.name(),
                &PORTS,
            )?);
        }
        for from in Resident::all() {
            for family in Family::ALL {
                let what = format!(
                    "{}: {} reaches all residents over {family}",
                    network.name(),
                    from.name()
                );
                checks.check(&what, reaches_all_residents(stage, &topology, from, family));
            }
        }
        for server in servers {
            server.end()?;
        }
    }
    Ok(())
}

fn reaches_all_residents(
    stage: &Stage,
    topology: &Topology,
    from: Resident,
    family: Family,
) -> Result<()> {
    let deadline = stage.waits.limit(Duration::from_secs(2));
    topology.of(from)?.inside(|| {
        for to in Resident::all().filter(|to| should_reach(from, *to)) {
            for (protocol, port) in PORTS {
                // A datagram server on all addresses of a node answers from another one.
                if protocol == Protocol::Udp && matches!(to, Resident::Node(_)) {
                    continue;
                }
                let target = SocketAddr::new(to.address(family), port);
                let attempt = client::attempt(protocol, target, deadline);
                let right = match &attempt.outcome {
                    Outcome::Answered { by, seen } => {
                        *by == to.name() && may_see(from, to, family, *seen)
                    }
                    _ => false,
                };
                if !right {
                    bail!(
                        "{protocol} to {} at {target}: {}",
                        to.name(),
                        attempt.outcome
                    );
                }
            }
        }
        Ok(())
    })
}

/// External clients know no route to pods.
fn should_reach(from: Resident, to: Resident) -> bool {
    from != to && !matches!((from, to), (Resident::Outside, Resident::Pod(_)))
}

/// The node masquerades packets of its pods to addresses outside the cluster, and other nodes count
/// as outside.
fn may_see(from: Resident, to: Resident, family: Family, seen: std::net::IpAddr) -> bool {
    match (from, to) {
        (Resident::Node(node), _) => node.all_addresses(family).contains(&seen),
        (Resident::Pod(pod), Resident::Node(node)) if node != pod.node => {
            seen == pod.node.address(family)
        }
        (Resident::Pod(pod), Resident::Outside) => seen == pod.node.address(family),
        _ => seen == from.address(family),
    }
}
