//! A node with rules in the kernel's legacy tables: the same traffic, and a cleanup that leaves
//! nothing in either variant.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::{Checks, Lab, Service};
use crate::program::Program;
use crate::topology::Topology;
use crate::topology::world::{Family, Node, Resident};
use crate::witness;

const NODE: Node = Node::B;
/// The node port of the Service `steady`.
const NODE_PORT: u16 = 30091;

/// All that an agent could write on a node, in both variants of iptables.
pub(super) fn everything(
    topology: &Topology,
    node: Node,
) -> Result<BTreeMap<&'static str, String>> {
    let namespace = topology.node(node)?;
    let mut all = witness::everything(namespace)?;
    let older = |program: Program| namespace.inside(|| program.run(&[]));
    all.insert(
        "older IPv4 rules",
        rules(&older(Program::IptablesLegacySave)?),
    );
    all.insert(
        "older IPv6 rules",
        rules(&older(Program::Ip6tablesLegacySave)?),
    );
    Ok(all)
}

/// Rules and chains; built-in chains are left out, since they appear once any program has used
/// their table.
fn rules(saved: &str) -> String {
    let ours =
        |line: &&str| line.starts_with("-A") || line.starts_with(':') && !line.contains(" ACCEPT ");
    saved.lines().filter(ours).collect::<Vec<_>>().join("\n")
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("older iptables");
    let batches = lab.cluster.applied(NODE)?.len();
    lab.restart_agent(NODE, &["--iptables", "legacy"])?;
    lab.cluster.wait_applied(NODE, batches)?;
    let now = everything(&lab.topology, NODE)?;
    let has = |what: &str| now.get(what).is_some_and(|text| text.contains("PORTOLAN-"));
    let found = [
        "older IPv4 rules",
        "older IPv6 rules",
        "IPv4 rules",
        "IPv6 rules",
    ]
    .map(has);
    checks.require(
        "rules move to the older tables, and none of ours stay in the newer (S-170)",
        found == [true, true, false, false],
        &format!("older IPv4, older IPv6, IPv4, IPv6: {found:?}"),
    );
    for family in Family::ALL {
        for (what, from, to) in dialled(family) {
            let what = format!("older iptables, {family}: {what} (S-170)");
            checks.check(&what, lab.ask(from, to, 4).map(drop));
        }
        for (what, from, to) in unused(family) {
            let what = format!("older iptables, {family}: {what} (S-27, S-170)");
            checks.check(&what, lab.refused(from, to));
        }
    }
    lab.cluster.stop_agent(NODE)?;
    let left = lab.clean_up(NODE);
    let same = || witness::must_equal(&lab.state.before, &everything(&lab.topology, NODE)?);
    checks.check(
        "cleanup leaves nothing in either variant of iptables (S-170, S-196)",
        left.and_then(|()| same()),
    );
    Ok(())
}

fn balancer(family: Family) -> IpAddr {
    match family {
        Family::IPv4 => [203, 0, 113, 62].into(),
        Family::IPv6 => [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 0x62].into(),
    }
}

type Dialled = (&'static str, Resident, SocketAddr);

fn dialled(family: Family) -> [Dialled; 7] {
    let pod = Resident::Pod(NODE.pod(3));
    let own = Resident::Node(NODE);
    let cluster = Service::Steady.at(family, 80);
    let port = SocketAddr::new(NODE.address(family), NODE_PORT);
    let balancer = SocketAddr::new(balancer(family), 80);
    [
        ("a pod reaches a cluster IP", pod, cluster),
        ("the node reaches a cluster IP", own, cluster),
        ("a pod reaches a node port", pod, port),
        (
            "an external client reaches a node port",
            Resident::Outside,
            port,
        ),
        (
            "the other node reaches a node port",
            Resident::Node(Node::A),
            port,
        ),
        ("a pod reaches a balancer's address", pod, balancer),
        ("the node reaches a balancer's address", own, balancer),
    ]
}

fn unused(family: Family) -> [Dialled; 1] {
    [(
        "a port of no Service is refused on a cluster IP",
        Resident::Pod(NODE.pod(3)),
        Service::Steady.at(family, 81),
    )]
}
