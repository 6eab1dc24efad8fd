//! A node that lets nothing in or through by default, and a firewall manager that puts its own rules first.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::ask::{OPEN_PODS, Question, all_clients_are_served};
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Family, Node, OUTSIDE, Resident};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;
use crate::{waits, witness};

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    forward_drop(lab, checks)?;
    input_drop(lab, checks)?;
    manager(lab, checks)
}

/// The tool of each family.
pub(super) const TOOLS: [(Family, Program); 2] = [
    (Family::IPv4, Program::Iptables),
    (Family::IPv6, Program::Ip6tables),
];

/// Changes rules of both families on node-a, as a person would.
pub(super) fn rules(lab: &Lab<'_>, words: &str) -> Result<()> {
    let line = format!("-w {words}");
    lab.tools(Node::A, &TOOLS.map(|(_, tool)| (tool, line.as_str())))
}

fn forward_drop(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let straight = Question {
        from: OUTSIDE,
        to: "10.244.1.11:8080",
        protocol: Protocol::Tcp,
    };
    lab.inside(Resident::Outside, || {
        Program::Ip.run(&["route", "add", "10.244.1.0/24", "via", "192.168.50.11"])
    })?;
    let forwards = straight.is_answered(lab, &["pod-a1"]);
    checks.check("node-a forwards to its pods by default", forwards);
    rules(lab, "-P FORWARD DROP")?;
    let silent = straight.ends(lab, &Outcome::Silent);
    checks.check("with FORWARD policy DROP, it does not", silent);
    match lab.stage.dataplane {
        Dataplane::Ipvs => {
            let what = "with FORWARD policy DROP, Services serve all clients (S-81)";
            checks.check(what, all_clients_are_served(lab));
        }
        Dataplane::Nftables => {
            pods_are_forwarded(lab, "-A")?;
            let what = "with FORWARD policy DROP for all but pods, Services serve all clients";
            checks.check(what, all_clients_are_served(lab));
            pods_are_forwarded(lab, "-D")?;
        }
    }
    rules(lab, "-P FORWARD ACCEPT")
}

/// Rules by which CNIs accept traffic of pods. The tables of nftables cannot do that for other tables (S-81).
fn pods_are_forwarded(lab: &Lab<'_>, act: &str) -> Result<()> {
    for ((_, tool), range) in TOOLS.into_iter().zip(["10.244.0.0/16", "fd00:10:244::/48"]) {
        for direction in ["-s", "-d"] {
            let line = format!("-w {act} FORWARD {direction} {range} -j ACCEPT");
            lab.tool(Node::A, tool, &line)?;
        }
    }
    Ok(())
}

/// Usual exceptions of hosts with INPUT policy DROP: replies, and IPv6 neighbour discovery.
const LET_IN: [&str; 3] = [
    "INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
    "INPUT -p ipv6-icmp -j ACCEPT",
    // The overlay's tunnel.
    "INPUT -p udp --dport 8472 -j ACCEPT",
];

/// S-213: `hostFirewall` is `Open` here, so node ports are let in too.
fn input_drop(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let line = |act: &str| LET_IN.map(|rule| format!("{act} {rule}"));
    for rule in line("-A") {
        rules(lab, &rule)?;
    }
    rules(lab, "-P INPUT DROP")?;
    let daemon = Question {
        from: OUTSIDE,
        to: "192.168.50.11:9999",
        protocol: Protocol::Tcp,
    };
    let silent = daemon.ends(lab, &Outcome::Silent);
    checks.check(
        "with INPUT policy DROP, no client reaches a daemon of node-a",
        silent,
    );
    let what = "with INPUT policy DROP, Services serve all clients (S-213)";
    checks.check(what, all_clients_are_served(lab));
    let what = "with INPUT policy DROP, unused ports are refused (S-27)";
    checks.check(what, unused_ports_are_refused(lab));
    rules(lab, "-P INPUT ACCEPT")?;
    for rule in line("-D") {
        rules(lab, &rule)?;
    }
    Ok(())
}

/// Rules of a firewall manager, in their order from the top.
const INSERTED: [&str; 7] = [
    "-N FIREWALL",
    "-A FIREWALL -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A FIREWALL -i lo -j ACCEPT",
    "-A FIREWALL -m conntrack --ctstate INVALID -j DROP",
    "-I INPUT 1 -j FIREWALL",
    "-I FORWARD 1 -j FIREWALL",
    "-t nat -I PREROUTING 1 -p tcp --dport 2222 -j REDIRECT --to-ports 9999",
];
const REMOVED: [&str; 5] = [
    "-t nat -D PREROUTING -p tcp --dport 2222 -j REDIRECT --to-ports 9999",
    "-D FORWARD -j FIREWALL",
    "-D INPUT -j FIREWALL",
    "-F FIREWALL",
    "-X FIREWALL",
];

fn manager(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    INSERTED.into_iter().try_for_each(|line| rules(lab, line))?;
    let inserted = lab.everything(Node::A)?;
    let what = "below a firewall manager's rules, Services serve all clients (S-165)";
    checks.check(what, all_clients_are_served(lab));
    let what = "… unused ports are refused (S-27)";
    checks.check(what, unused_ports_are_refused(lab));
    let what = "… and clients outside the source ranges get no answer (S-86)";
    checks.check(what, guarded_is_silent(lab));
    // Three sync periods.
    let period = lab.limit(std::time::Duration::from_secs(1));
    waits::sleep_until(std::time::Instant::now() + 3 * period)?;
    let what = "no rule of the manager is changed and none of ours is duplicated (S-165, S-168)";
    let unchanged = witness::must_equal(&unordered(inserted), &unordered(lab.everything(Node::A)?));
    checks.check(what, unchanged);
    if lab.stage.dataplane == Dataplane::Ipvs {
        let what = "our jump of nat is before the manager's rule again (S-166)";
        checks.check(what, nat_is_ours_first(lab));
    }
    REMOVED.into_iter().try_for_each(|line| rules(lab, line))
}

/// The same lines, whatever their order.
fn unordered(seen: BTreeMap<&'static str, String>) -> BTreeMap<&'static str, String> {
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    seen.into_iter()
        .map(|(what, text)| (what, sorted(text)))
        .collect()
}

pub(super) fn nat_is_ours_first(lab: &Lab<'_>) -> Result<()> {
    for (_, tool) in TOOLS {
        for chain in ["PREROUTING", "OUTPUT"] {
            let all = lab.tool(Node::A, tool, &format!("-w -t nat -S {chain}"))?;
            let first = all.lines().nth(1).unwrap_or_default();
            let ours = format!("-A {chain} -j PORTOLAN-{chain}");
            ensure!(first == ours, "{first:?} is the first rule of {chain}");
        }
    }
    Ok(())
}

pub(super) fn unused_ports_are_refused(lab: &Lab<'_>) -> Result<()> {
    for (to, protocol) in [
        ("10.96.1.1:9999", Protocol::Tcp),
        ("10.96.1.1:9999", Protocol::Udp),
        ("[fd00:10:96::101]:9999", Protocol::Tcp),
    ] {
        let from = OUTSIDE;
        Question { from, to, protocol }.ends(lab, &Outcome::Refused)?;
    }
    Ok(())
}

fn guarded_is_silent(lab: &Lab<'_>) -> Result<()> {
    let to = "203.0.113.41:80";
    let protocol = Protocol::Tcp;
    let question = |from| Question { from, to, protocol };
    question(OUTSIDE).is_answered(lab, &OPEN_PODS[..1])?;
    question("pod-a3").ends(lab, &Outcome::Silent)
}
