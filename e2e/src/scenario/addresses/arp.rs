//! ARP and NDP for a load balancer's address: no node answers unless it has the address on an
//! interface. The result is read from the neighbour table of the asking kernel.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Checks, Lab, NODE_B, WEB};
use crate::topology::world::{Node, Resident};
use crate::traffic::client::Outcome;

/// Addresses of the Service on the nodes' LAN: as a target, and bare.
const ON_THE_LAN: [(&str, &str); 2] = [
    ("192.168.50.200:80", "192.168.50.200"),
    ("[fd00:50::200]:80", "fd00:50::200"),
];
const ASKS: &str = "outside";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for (target, address) in ON_THE_LAN {
        checks.check(
            &format!("no node answers ARP or NDP of {ASKS} for {address} (S-18)"),
            no_node_answers(lab, target, address),
        );
        checks.check(
            &format!("pods and nodes reach {address} all the same (S-17)"),
            lab.answers(super::POD_A3, target, WEB)
                .and_then(|()| lab.answers(NODE_B, target, WEB)),
        );
    }
    let bits = |address: &str| {
        if address.contains(':') {
            "128 nodad"
        } else {
            "32"
        }
    };
    for (target, address) in ON_THE_LAN {
        let device = format!("{address}/{} dev eth0", bits(address));
        let device = device.replace(" nodad dev eth0", " dev eth0 nodad");
        lab.ip(NODE_B, &format!("address add {device}"))?;
        checks.check(
            &format!(
                "a node that has {address} on an interface answers for it and serves it (S-18, \
                 S-25)"
            ),
            owner_answers(lab, target, address),
        );
        lab.ip(
            NODE_B,
            &format!("address del {}", device.replace(" nodad", "")),
        )?;
    }
    Ok(())
}

/// Dials from outside and reads the link address that the kernel there resolved.
fn ask(lab: &Lab<'_>, target: &str, address: &str) -> Result<(Outcome, Option<String>)> {
    lab.ip(
        Resident::Outside,
        &format!("neighbour flush to {address} dev eth0"),
    )?;
    // The kernel asks three times, one second apart, whatever the speed of the machine.
    let outcome = lab.dial(Resident::Outside, target.parse()?, Duration::from_secs(6))?;
    let line = lab.ip(
        Resident::Outside,
        &format!("neighbour show to {address} dev eth0"),
    )?;
    let mut words = line.split_whitespace();
    let link = words
        .find(|word| *word == "lladdr")
        .and_then(|_| words.next());
    Ok((outcome, link.map(str::to_owned)))
}

fn no_node_answers(lab: &Lab<'_>, target: &str, address: &str) -> Result<()> {
    let (outcome, link) = ask(lab, target, address)?;
    ensure!(
        link.is_none(),
        "{link:?} answered; the connection: {outcome}"
    );
    ensure!(outcome == Outcome::Unreachable, "the connection: {outcome}");
    Ok(())
}

fn owner_answers(lab: &Lab<'_>, target: &str, address: &str) -> Result<()> {
    let (outcome, link) = ask(lab, target, address)?;
    let owner = link_address(lab, Node::B)?;
    ensure!(
        link.as_ref() == Some(&owner),
        "{link:?} answered, not node-b with {owner}; the connection: {outcome}"
    );
    ensure!(super::is_by(&outcome, WEB), "the connection: {outcome}");
    Ok(())
}

fn link_address(lab: &Lab<'_>, node: Node) -> Result<String> {
    let line = lab.ip(Resident::Node(node), "-o link show dev eth0")?;
    let mut words = line.split_whitespace();
    let address = words
        .find(|word| *word == "link/ether")
        .and_then(|_| words.next());
    address
        .map(str::to_owned)
        .with_context(|| format!("eth0 of {} has no link address: {line}", node.name()))
}
