//! Who answers when the LAN asks for the link address of a balancer's address: nobody, unless
//! somebody has it on an interface. What was learnt is read from the asking kernel's own table.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Checks, Lab, NODE_B, WEB};
use crate::topology::world::{Node, Resident};
use crate::traffic::client::Outcome;

/// Addresses of the Service on the nodes' own LAN: in a target and alone.
const ON_THE_LAN: [(&str, &str); 2] = [
    ("192.168.50.200:80", "192.168.50.200"),
    ("[fd00:50::200]:80", "fd00:50::200"),
];
const ASKS: &str = "outside";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for (target, address) in ON_THE_LAN {
        let rows = if address.contains(':') {
            "S-18"
        } else {
            "S-18, S-176, S-177"
        };
        checks.check(
            &format!("nobody tells {ASKS} a link address for {address} ({rows})"),
            nobody_answers(lab, target, address),
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
                "whoever has {address} on an interface answers for it, and serves it (S-18, S-25)"
            ),
            owner_answers(lab, target, address),
        );
        lab.ip(
            NODE_B,
            &format!("address del {}", device.replace(" nodad", "")),
        )?;
    }
    checks.check(
        "a new interface is told at once (S-176)",
        new_interface(lab),
    );
    checks.check("cables to pods are left as they are (S-177)", cables(lab));
    without_strict_arp(lab, checks)
}

/// The contrast, which shows that the question is a real one.
fn without_strict_arp(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.set("strictARP: false")?;
    let off = [
        ("net/ipv4/conf/eth0/arp_ignore".to_owned(), "0"),
        ("net/ipv4/conf/eth0/arp_announce".to_owned(), "0"),
    ];
    for node in Node::ALL {
        lab.node(node)?.set(&off)?;
    }
    let (target, address) = ON_THE_LAN[0];
    let answered = ask(lab, target, address).and_then(|(outcome, link)| {
        let link = link.with_context(|| format!("nobody answered: {outcome}"))?;
        let nodes = [link_address(lab, Node::A)?, link_address(lab, Node::B)?];
        ensure!(nodes.contains(&link), "{link} answered, which is no node");
        Ok(())
    });
    checks.check(
        "with strictARP off a node answers for it, as the kernel does by itself (S-176)",
        answered,
    );
    let untouched = setting(lab, Node::A, "eth0").and_then(|value| {
        ensure!(value == "0", "arp_ignore of eth0 is {value}");
        Ok(())
    });
    checks.check(
        "with strictARP off settings are left alone (S-176)",
        untouched,
    );
    lab.set("nodePortAddresses: []")?;
    checks.check(
        "switched on again it is silent again (S-176, S-177)",
        nobody_answers(lab, target, address),
    );
    Ok(())
}

/// Dials from outside, and reads which link address the kernel there has learnt.
fn ask(lab: &Lab<'_>, target: &str, address: &str) -> Result<(Outcome, Option<String>)> {
    lab.ip(
        Resident::Outside,
        &format!("neighbour flush to {address} dev eth0"),
    )?;
    // Three questions, a second between them, whatever the machine's speed.
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

fn nobody_answers(lab: &Lab<'_>, target: &str, address: &str) -> Result<()> {
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

fn setting(lab: &Lab<'_>, node: Node, interface: &str) -> Result<String> {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/arp_ignore");
    lab.node(node)?.inside(|| {
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        Ok(text.trim().to_owned())
    })
}

/// An interface whose name holds a dot, as those of VLANs do.
fn new_interface(lab: &Lab<'_>) -> Result<()> {
    let since = Instant::now();
    lab.ip(NODE_B, "link add lan0.7 type bridge")?;
    let result = lab.soon("a new interface", since, || {
        let value = setting(lab, Node::B, "lan0.7")?;
        ensure!(value == "1", "arp_ignore is {value}");
        Ok(())
    });
    lab.ip(NODE_B, "link del lan0.7")?;
    result
}

fn cables(lab: &Lab<'_>) -> Result<()> {
    for (interface, wanted) in [
        ("pod1", "0"),
        ("lo", "0"),
        ("kube-ipvs0", "0"),
        ("eth0", "1"),
    ] {
        let value = setting(lab, Node::A, interface)?;
        ensure!(value == wanted, "arp_ignore of {interface} is {value}");
    }
    Ok(())
}
