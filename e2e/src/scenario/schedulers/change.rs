//! One Service goes through every scheduler of the kernel, back and forth under load, and to one
//! that the kernel lacks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{Checks, POD, Scene, Service, counted};
use crate::program::Program;
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::Protocol;
use crate::traffic::client::{self, Outcome};
use crate::traffic::load::{Load, Rate};

/// Every scheduler of the kernel, and how it spreads the connections of one client that come one
/// after the other.
const SCHEDULERS: [(&str, Spread); 13] = [
    ("wrr", Spread::Even),
    ("lc", Spread::Some),
    ("wlc", Spread::Some),
    ("lblc", Spread::Some),
    ("lblcr", Spread::Some),
    ("sh", Spread::One),
    ("dh", Spread::One),
    ("sed", Spread::Some),
    ("nq", Spread::Some),
    ("mh", Spread::Some),
    ("fo", Spread::One),
    ("ovf", Spread::Some),
    ("rr", Spread::Even),
];

/// Modules that no agent asks IPVS to load: it can deadlock over them.
pub(super) const LOADED_BY_HAND: [&str; 2] = ["ip_vs_lblc", "ip_vs_lblcr"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// To each equally often.
    Even,
    /// To one and the same.
    One,
    /// To any of them.
    Some,
}

/// Behind the Service `turn`.
const BACKENDS: [&str; 4] = ["pod-a1", "pod-a2", "pod-b1", "pod-b2"];
/// How often each client connects under each scheduler: a multiple of the backends.
const TIMES: usize = 8;
const LASTS: Duration = Duration::from_secs(20);
const PER_SECOND: u32 = 20;
/// Between two changes, as somebody who tries schedulers one after the other.
const PAUSE: Duration = Duration::from_millis(1500);
/// A load that reaches less than this share of its rate has shown nothing. Attempts that wait for a
/// retransmission are slow, and the next ones late.
const ENOUGH: f64 = 0.5;
/// Clients send again after one, three and seven seconds: whoever is held three times in a row is
/// answered all the same.
const PATIENCE: Duration = Duration::from_secs(9);

pub(super) fn run(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("schedulers");
    let mut now = "rr";
    for (scheduler, spread) in SCHEDULERS {
        turn(scene, now, scheduler)?;
        now = scheduler;
        let result = shows(scene, scheduler);
        checks.check(
            &format!("{scheduler}: virtual servers show it (S-101, S-102)"),
            result,
        );
        let what =
            format!("{scheduler}: every connection is answered by the right pods (S-101, S-112)");
        checks.check(&what, spreads(scene, spread));
    }
    under_load(scene, checks)?;
    unloaded(scene, checks)?;
    missing(scene, checks)
}

/// Changes the scheduler, and waits until both nodes have applied it.
fn turn(scene: &mut Scene<'_>, from: &str, to: &str) -> Result<()> {
    scene.change_services(&annotation(from), &annotation(to))
}

fn annotation(scheduler: &str) -> String {
    format!("proxy.portolan.dev/scheduler: {scheduler:?}")
}

fn shows(scene: &Scene<'_>, scheduler: &str) -> Result<()> {
    let wanted = match scheduler {
        "mh" => "mh (mh-port)",
        other => other,
    };
    for family in Family::ALL {
        let shown = scene.shown("TCP", Service::Turn.at(family, 80))?;
        ensure!(shown == wanted, "{family}: {shown:?}, not {wanted:?}");
    }
    Ok(())
}

fn spreads(scene: &Scene<'_>, spread: Spread) -> Result<()> {
    for family in Family::ALL {
        for from in [POD, Resident::Node(Node::A), Resident::Outside] {
            let names = scene.ask(from, Service::Turn.at(family, 80), TIMES)?;
            let met = counted(&names);
            let known = met.keys().all(|name| BACKENDS.contains(name));
            let as_meant = match spread {
                Spread::Even => {
                    met.len() == BACKENDS.len()
                        && met.values().all(|n| *n == TIMES / BACKENDS.len())
                }
                Spread::One => met.len() == 1,
                Spread::Some => true,
            };
            let client = from.name();
            ensure!(
                known && as_meant,
                "{client} over {family} met {met:?}, not {spread:?}"
            );
        }
    }
    Ok(())
}

/// S-104: slow by a retransmission is allowed, refused is not.
fn under_load(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    let start = Instant::now() + Duration::from_millis(200);
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: Family::ALL
            .map(|family| Service::Turn.at(family, 80))
            .into(),
        per_second: PER_SECOND,
        lasts: LASTS,
        deadline: scene.stage.waits.limit(PATIENCE),
    };
    let mut loads = Vec::new();
    for client in [POD, Resident::Node(Node::A), Resident::Outside] {
        let load = Load::start(scene.topology.of(client)?, &rate, start)?;
        loads.push((client.name(), load));
    }
    let changes = turn_again_and_again(scene, start)?;
    for (client, load) in loads {
        let tally = load.finish()?;
        let made = f64::from(tally.made) >= ENOUGH * f64::from(rate.wanted());
        scene.stage.console.line(&format!(
            "{client}: {} of {} connections during {changes} changes, {} failed, slowest {} ms",
            tally.made,
            rate.wanted(),
            tally.failures.len(),
            tally.slowest.as_millis(),
        ));
        let what = format!("{client}: no connection fails while the scheduler changes (S-104)");
        let result = match tally.failures.first() {
            Some((when, to, how)) => Err(anyhow::anyhow!(
                "{} failed, the first after {:.3} s to {to}: {how}",
                tally.failures.len(),
                when.as_secs_f64()
            )),
            None if !made => Err(anyhow::anyhow!("only {} were made", tally.made)),
            None if changes < 5 => Err(anyhow::anyhow!("there were only {changes} changes")),
            None => Ok(()),
        };
        checks.check(&what, result);
    }
    let what = "nothing is held once schedulers have changed (S-104)";
    checks.check(what, nothing_held(scene));
    Ok(())
}

/// Changes the scheduler until the load is over, ends with `rr`, and says how often it did.
fn turn_again_and_again(scene: &mut Scene<'_>, start: Instant) -> Result<u32> {
    let (mut now, mut changes) = ("rr", 0u32);
    while start.elapsed() < LASTS - Duration::from_secs(1) {
        let next = if now == "rr" { "mh" } else { "rr" };
        turn(scene, now, next)?;
        now = next;
        changes += 1;
        crate::waits::sleep_until(start + PAUSE * changes)?;
    }
    if now != "rr" {
        turn(scene, now, "rr")?;
    }
    Ok(changes)
}

fn nothing_held(scene: &Scene<'_>) -> Result<()> {
    for node in Node::ALL {
        for set in ["PORTOLAN-HOLD", "PORTOLAN-6-HOLD"] {
            let held = entries(scene, node, set)?;
            ensure!(held.is_empty(), "{}: {set}: {held:?}", node.name());
        }
    }
    Ok(())
}

fn entries(scene: &Scene<'_>, node: Node, set: &str) -> Result<Vec<String>> {
    let saved = scene
        .topology
        .node(node)?
        .inside(|| Program::Ipset.run(&["save", set]))?;
    let added = saved.lines().filter(|line| line.starts_with("add "));
    Ok(added.map(str::to_owned).collect())
}

/// One whose module blocks IPVS when IPVS loads it: somebody else has to.
const UNLOADED: &str = "lblcr";

fn unloaded(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    // It was there a moment ago, and the agents know that.
    turn(scene, "rr", UNLOADED)?;
    turn(scene, UNLOADED, "rr")?;
    Program::Modprobe.run(&["-r", "ip_vs_lblcr"])?;
    let node = Node::A;
    let (before, batches) = (scene.cluster.said(node)?.len(), applied(scene)?);
    let text = super::replaced(&scene.services, &annotation("rr"), &annotation(UNLOADED))?;
    scene
        .cluster
        .write_manifest(&super::file_name(crate::files::SCHEDULERS[0]), &text)?;
    let words = [
        "load scheduler lblcr: its module has to be loaded",
        "modprobe ip_vs_lblcr",
        "the plan is not in force",
    ];
    checks.check(
        "a scheduler whose module could stop IPVS is named and not asked for (S-101)",
        says(scene, node, before, &words).and_then(|()| shows(scene, "rr")),
    );
    Program::Modprobe.run(&["ip_vs_lblcr"])?;
    for (node, before) in batches {
        scene.cluster.wait_applied(node, before)?;
    }
    checks.check(
        "once somebody has loaded it, it is used without a restart (S-101)",
        shows(scene, UNLOADED).and_then(|()| spreads(scene, Spread::Some)),
    );
    scene.services = text;
    turn(scene, UNLOADED, "rr")
}

/// How many batches each node has applied.
fn applied(scene: &Scene<'_>) -> Result<BTreeMap<Node, usize>> {
    let count = |node| Ok((node, scene.cluster.applied(node)?.len()));
    Node::ALL.into_iter().map(count).collect()
}

/// A name that the controller takes, and that the guest's kernel lacks.
const MISSING: &str = "twos";
const MISSING_WORDS: [&str; 5] = [
    "load scheduler twos: the kernel has no scheduler \"twos\"",
    "modprobe ip_vs_twos",
    "spec.settings.scheduler",
    "proxy.portolan.dev/scheduler",
    "the plan is not in force",
];

fn missing(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    let batches = applied(scene)?;
    let mut lines = BTreeMap::new();
    for node in Node::ALL {
        lines.insert(node, scene.cluster.said(node)?.len());
    }
    let text = super::replaced(&scene.services, &annotation("rr"), &annotation(MISSING))?;
    scene
        .cluster
        .write_manifest(&super::file_name(crate::files::SCHEDULERS[0]), &text)?;
    for node in Node::ALL {
        let what = format!(
            "{}: a scheduler that the kernel lacks is named, and what to do (S-101)",
            node.name()
        );
        checks.check(&what, says(scene, node, lines[&node], &MISSING_WORDS));
    }
    checks.check(
        "virtual servers keep the scheduler that they have (S-104)",
        shows(scene, "rr"),
    );
    checks.check("and are answered (S-104)", spreads(scene, Spread::Even));
    for family in Family::ALL {
        let what = format!("other Services are answered over {family} (S-101)");
        let asked = scene.ask(POD, Service::Steady.at(family, 80), 4).map(drop);
        checks.check(&what, asked);
    }
    for node in Node::ALL {
        let what = format!(
            "{}: the plan does not count as applied (S-101)",
            node.name()
        );
        let now = scene.cluster.applied(node)?.len();
        let before = batches[&node];
        checks.check(
            &what,
            if now == before {
                Ok(())
            } else {
                bail_counts(before, now)
            },
        );
    }
    scene.services = text;
    turn(scene, MISSING, "lc")?;
    let works = shows(scene, "lc").and_then(|()| spreads(scene, Spread::Some));
    checks.check(
        "a scheduler that is put right works without a restart (S-101)",
        works,
    );
    Ok(())
}

fn bail_counts(before: usize, now: usize) -> Result<()> {
    bail!("it was applied {before} times before and {now} times now")
}

/// Waits for the agent's own words behind what it had said before.
fn says(scene: &mut Scene<'_>, node: Node, before: usize, wanted: &[&str]) -> Result<()> {
    let waits = scene.stage.waits;
    let mut said = String::new();
    waits
        .until(
            "words about the scheduler",
            Duration::from_secs(10),
            Duration::from_millis(20),
            || {
                said = scene.cluster.said(node)?.split_off(before);
                Ok(wanted
                    .iter()
                    .all(|words| said.contains(words))
                    .then_some(()))
            },
            String::new,
        )
        .map_err(|error| error.context(said))
}

/// Whether one attempt of a client is refused.
pub(super) fn refused(scene: &Scene<'_>, from: Resident, to: std::net::SocketAddr) -> Result<()> {
    let deadline = scene.stage.waits.limit(Duration::from_secs(2));
    let attempt = scene
        .topology
        .of(from)?
        .inside(|| Ok(client::tcp(to, deadline)))?;
    ensure!(
        attempt.outcome == Outcome::Refused,
        "{to}: not refused but {}",
        attempt.outcome
    );
    Ok(())
}
