//! A CNI that marks packets and routes by its mark: our bit comes and goes, its bit stays.

use anyhow::{Context, Result, ensure};

use super::ask::{OPEN_PODS, Question, all_clients_are_served};
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Node, OUTSIDE};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;

/// Marks whatever comes in and whatever the node sends.
const MARKS: [&str; 2] = [
    "-t mangle -I PREROUTING 1 -j MARK --set-xmark 0x80000/0x80000",
    "-t mangle -I OUTPUT 1 -j MARK --set-xmark 0x80000/0x80000",
];

/// Counts packets that leave node-a, by destination and mark.
const COUNTERS: [(Counter, &str); 5] = [
    (
        Counter::BackendTheirs,
        "-d 10.244.2.11 -m mark --mark 0x80000/0x80000",
    ),
    (
        Counter::BackendOurs,
        "-d 10.244.2.11 -m mark --mark 0x4000/0x4000",
    ),
    (
        Counter::OuterTheirs,
        "-p udp --dport 8472 -m mark --mark 0x80000/0x80000",
    ),
    (
        Counter::OuterOurs,
        "-p udp --dport 8472 -m mark --mark 0x4000/0x4000",
    ),
    (
        Counter::OuterCaptured,
        "-p udp --dport 8472 -m mark --mark 0x1000/0x1000",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    /// Packets to a backend with the CNI's mark.
    BackendTheirs,
    /// Packets to a backend with Portolan's mark, before they are masqueraded.
    BackendOurs,
    /// Encapsulated packets of the overlay, with the CNI's mark.
    OuterTheirs,
    /// The same with Portolan's mark.
    OuterOurs,
    /// The same with the mark that leads packets to IPVS.
    OuterCaptured,
}

/// Reachable only through the routing table that the mark selects.
const FAR: &str = "198.51.100.77";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let node = lab.node(Node::A)?;
    let rules = |line: &str, delete: bool| {
        let line = if delete {
            let line = line.replace("-I PREROUTING 1", "-D PREROUTING");
            line.replace("-I OUTPUT 1", "-D OUTPUT")
        } else {
            line.to_owned()
        };
        lab.tool(Node::A, Program::Iptables, &format!("-w {line}"))
    };
    let counting = |act: &str| -> Result<()> {
        for (_, matches) in COUNTERS {
            rules(&format!("-t mangle -{act} POSTROUTING {matches}"), false)?;
        }
        Ok(())
    };
    for line in MARKS {
        rules(line, false)?;
    }
    counting("A")?;
    let what = "where a CNI marks every IPv4 packet, Services serve all clients (S-172)";
    checks.check(what, all_clients_are_served(lab));
    let counts = counts(
        &node.inside(|| Program::Iptables.run(&["-w", "-t", "mangle", "-nvxL", "POSTROUTING"]))?,
    )?;
    checks.check(
        "its mark stays on packets to backends, and encapsulated packets do not have ours (S-72, \
         S-172)",
        judge(&counts, lab.stage.dataplane),
    );
    counting("D")?;
    policy_routing(lab, checks)?;
    for line in MARKS {
        rules(line, true)?;
    }
    Ok(())
}

/// Packet counts of our counters, in their order.
fn counts(listed: &str) -> Result<Vec<u64>> {
    let rows = listed.lines().filter(|line| line.contains("mark match"));
    let count = |row: &str| {
        let first = row.split_whitespace().next().context("an empty row")?;
        first.parse().with_context(|| format!("count in {row:?}"))
    };
    let counts = rows.map(count).collect::<Result<Vec<u64>>>()?;
    let all = COUNTERS.len();
    ensure!(counts.len() == all, "{all} counters, not these: {listed}");
    Ok(counts)
}

fn judge(counts: &[u64], dataplane: Dataplane) -> Result<()> {
    for ((counter, _), count) in COUNTERS.iter().zip(counts) {
        let wants_some = match counter {
            Counter::BackendTheirs | Counter::OuterTheirs => true,
            // The tables of nftables mark no packet.
            Counter::BackendOurs => dataplane == Dataplane::Ipvs,
            Counter::OuterOurs | Counter::OuterCaptured => false,
        };
        ensure!((*count > 0) == wants_some, "{counter:?}: {count} packets");
    }
    Ok(())
}

fn policy_routing(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let ip = |node, line: &str| lab.tool(node, Program::Ip, line);
    ip(Node::B, &format!("address add {FAR}/32 dev lo"))?;
    let rule = |act: &str| {
        let line = format!("rule {act} fwmark 0x80000/0x80000 lookup 100 priority 99");
        ip(Node::A, &line)
    };
    ip(
        Node::A,
        &format!("route add {FAR}/32 via 192.168.50.12 table 100"),
    )?;
    let far = Question {
        from: "node-a",
        to: "198.51.100.77:9999",
        protocol: Protocol::Tcp,
    };
    let lost = far.ask(lab)?;
    checks.require(
        "without the ip rule, no client reaches an address that only it leads to",
        !matches!(lost, Outcome::Answered { .. }),
        &format!("{lost} without the rule"),
    );
    rule("add")?;
    let reached = far.is_answered(lab, &["daemon-of-node-b"]);
    checks.check("an ip rule on the CNI's mark leads there (S-172)", reached);
    let from = OUTSIDE;
    let (to, protocol) = ("192.168.50.11:30080", Protocol::Tcp);
    let served = Question { from, to, protocol }.is_answered(lab, &OPEN_PODS);
    let served = served.and_then(|()| all_clients_are_served(lab));
    checks.check("… and Services still serve all clients", served);
    rule("del").map(drop)
}
