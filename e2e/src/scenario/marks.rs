//! Captured packets and other programs: rules that restore the whole mark of a connection (S-243), and a policy rule that
//! is missing until the agent restores it (S-244).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::draining;
use super::packet_path::{cluster_manifests, every_client};
use super::restarts::targets;
use super::{Checks, Scenario, Stage};
use crate::harness::loads::Loads;
use crate::harness::{self, clients_of};
use crate::manifests::Manifests;
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node};
use crate::traffic::Protocol;
use crate::traffic::line::Line;
use crate::traffic::load::Rate;
use crate::waits::{self, ANSWER, SOON};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "marks",
    shows: "others restore whole marks, or remove a policy rule: every client is served, no connection ends",
    run,
};

const NODE: Node = Node::A;
/// The port of the Service whose connections stay open.
const FRONTEND: u16 = 7000;
/// New connections a second of each client.
const PER_SECOND: u32 = 10;
/// How often the policy rules are removed, and how long after each other.
const REMOVALS: u32 = 5;
const APART: Duration = Duration::from_secs(2);
/// A load that reaches less than this share of its rate has shown nothing.
const ENOUGH: f64 = 0.9;

type Lab<'a> = harness::Lab<'a, Manifests>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let manifests = cluster_manifests(&stage.files)?;
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(manifests);
    draining::serve_beside_cluster(&mut lab, stage)?;
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("rules that restore marks", restored),
            ("a missing policy rule", missing),
        ],
    )
}

/// A way in which other programs restore marks: rules of `mangle` PREROUTING in order, and of POSTROUTING.
struct Form {
    name: &'static str,
    /// How they are added: inserted before all others, or appended.
    act: &'static str,
    before_routing: &'static [&'static str],
    after_routing: &'static str,
}

const FORMS: [Form; 3] = [
    Form {
        name: "a full tunnel of wg-quick",
        act: "-I",
        before_routing: &["-p udp -j CONNMARK --restore-mark"],
        after_routing: "-p udp -m mark --mark 0xca6c -j CONNMARK --save-mark",
    },
    Form {
        name: "two uplinks, and Calico's rule before them",
        act: "-I",
        before_routing: &[
            "-m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "-j CONNMARK --restore-mark",
        ],
        after_routing: "-j CONNMARK --save-mark",
    },
    Form {
        name: "two uplinks whose rules were appended",
        act: "-A",
        before_routing: &["-j CONNMARK --restore-mark"],
        after_routing: "-j CONNMARK --save-mark",
    },
];

/// The same in nftables, as wg-quick writes it where it finds nft.
const TUNNEL: &str = "table inet tunnel {
    chain premangle {
        type filter hook prerouting priority mangle;
        meta mark set ct mark
    }
}";

fn restored(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for form in FORMS {
        lab.heading(form.name);
        form.rules(lab, form.act)?;
        lab.eventually("Portolan's rule to be the last", SOON, || is_last(lab))?;
        served(lab, checks, form.name)?;
        form.rules(lab, "-D")?;
    }
    lab.heading("a tunnel in nftables");
    let nft = |words: &[&str], input: &str| {
        let node = lab.node(NODE)?;
        node.inside(|| Program::Nft.run_with_input(words, input).map(drop))
    };
    nft(&["-f", "-"], TUNNEL)?;
    served(lab, checks, "a tunnel in nftables")?;
    nft(&["delete", "table", "inet", "tunnel"], "")
}

/// Whether Portolan's rule follows the rules that restore marks.
fn is_last(lab: &Lab<'_>) -> Result<()> {
    for program in [Program::Iptables, Program::Ip6tables] {
        let listed = lab.tool(NODE, program, "-w -t mangle -S PREROUTING")?;
        let last = listed.lines().last().unwrap_or_default();
        ensure!(last.ends_with("-j PORTOLAN-PREROUTING"), "{listed}");
    }
    Ok(())
}

fn served(lab: &Lab<'_>, checks: &mut Checks, beside: &str) -> Result<()> {
    let mut cells = Checks::new(lab.stage.console);
    every_client(lab, &mut cells, &lab.state)?;
    checks.add(&cells);
    checks.require(
        &format!("every client is served beside {beside} (S-243)"),
        cells.all_passed(),
        &cells.to_string(),
    );
    Ok(())
}

impl Form {
    /// Inserts or deletes the rules of both families.
    fn rules(&self, lab: &Lab<'_>, act: &str) -> Result<()> {
        // Each is inserted before the one that follows it.
        let before = self.before_routing.iter().rev();
        let before = before.map(|rule| format!("-w -t mangle {act} PREROUTING {rule}"));
        let after = format!("-w -t mangle {act} POSTROUTING {}", self.after_routing);
        for line in before.chain([after]) {
            for program in [Program::Iptables, Program::Ip6tables] {
                lab.tool(NODE, program, &line)?;
            }
        }
        Ok(())
    }
}

fn missing(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("policy rules are removed again and again");
    let mut lines = open(lab)?;
    let start = Instant::now() + Duration::from_millis(200);
    let mut loads = Loads::at(start);
    for client in clients_of(NODE) {
        let rate = Rate {
            protocol: Protocol::Tcp,
            targets: targets(&lab.state, "web", Protocol::Tcp)?,
            per_second: PER_SECOND,
            lasts: APART * (REMOVALS + 1),
            // A lost packet is sent again after a second.
            deadline: lab.limit(ANSWER),
        };
        loads.add(client.name(), lab.topology.of(client)?, rate)?;
    }
    let mut ended = Vec::new();
    for number in 1..=REMOVALS {
        waits::sleep_until(start + APART * number)?;
        for line in ["rule del pref 91", "-6 rule del pref 91"] {
            lab.tool(NODE, Program::Ip, line)?;
        }
        for (name, line) in &mut lines {
            if let Err(error) = line.lives() {
                ended.push(format!("{name}: {error:#}"));
            }
        }
    }
    for load in loads.finish()? {
        lab.line(&load.summary("new connections"));
        let what = format!("{}: no new connection fails (S-244)", load.name);
        checks.check(&what, load.none_failed(ENOUGH));
    }
    checks.require(
        "open connections continue (S-244)",
        ended.is_empty(),
        &ended.join("; "),
    );
    checks.check("packets were without their rule meanwhile", dropped(lab));
    Ok(())
}

/// That a packet for IPVS would have left the node.
fn dropped(lab: &Lab<'_>) -> Result<()> {
    let list = "-w -t mangle -L PORTOLAN-FORWARD -n -v -x";
    let listed = lab.tool(NODE, Program::Iptables, list)?;
    let rule = listed.lines().find(|line| line.contains("DROP"));
    let count = rule.and_then(|line| line.split_whitespace().next());
    let count: u64 = count.context("no rule drops")?.parse()?;
    ensure!(count > 0, "none was dropped: {listed}");
    Ok(())
}

/// A connection of each client over each family.
fn open(lab: &Lab<'_>) -> Result<Vec<(String, Line)>> {
    let mut lines = Vec::new();
    for family in Family::ALL {
        for client in clients_of(NODE) {
            let to: SocketAddr = draining::at(family, FRONTEND);
            let name = format!("{} to {to}", client.name());
            let line = Line::open(lab.topology.of(client)?, to, lab.limit(ANSWER));
            lines.push((name.clone(), line.context(name)?));
        }
    }
    Ok(lines)
}
