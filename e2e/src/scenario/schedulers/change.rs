//! One Service uses every scheduler of the kernel, back and forth under load, and one that the
//! kernel lacks.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{CLIENTS, Checks, Lab, POD, Service, counted};
use crate::harness::loads::Loads;
use crate::program::Program;
use crate::topology::world::{Family, Node};
use crate::traffic::Protocol;
use crate::traffic::load::Rate;
use crate::waits::SOON;

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

/// Modules that agents never make IPVS load, because it can deadlock.
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
/// Pause between two changes, as if an operator tried one scheduler after the other.
const PAUSE: Duration = Duration::from_millis(1500);
/// A load that reaches less than this share of its rate has shown nothing. Attempts that wait for a
/// retransmission are slow, and the next ones late.
const ENOUGH: f64 = 0.5;
/// Clients retransmit after one, three and seven seconds: a client that is held up three times in a
/// row still gets an answer.
const PATIENCE: Duration = Duration::from_secs(9);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("schedulers");
    let mut now = "rr";
    for (scheduler, spread) in SCHEDULERS {
        turn(lab, now, scheduler)?;
        now = scheduler;
        let result = shows(lab, scheduler);
        checks.check(
            &format!("{scheduler}: virtual servers show it (S-101, S-102)"),
            result,
        );
        let what =
            format!("{scheduler}: every connection is answered by the right pods (S-101, S-112)");
        checks.check(&what, spreads(lab, spread));
    }
    checks.check(
        "of many connections each of four endpoints gets a fifth to three tenths (S-112)",
        shares(lab),
    );
    under_load(lab, checks)?;
    unloaded(lab, checks)?;
    missing(lab, checks)
}

/// Connections of each client in [`shares`].
const MANY: usize = 100;

/// Clients take turns, as on a node with many of them.
fn shares(lab: &Lab<'_>) -> Result<()> {
    for family in Family::ALL {
        let mut names = Vec::new();
        for _ in 0..MANY {
            for from in CLIENTS {
                names.extend(lab.ask(from, Service::Turn.at(family, 80), 1)?);
            }
        }
        let met = counted(&names);
        let fair = names.len() / 5..=names.len() * 3 / 10;
        ensure!(
            met.len() == BACKENDS.len() && met.values().all(|count| fair.contains(count)),
            "over {family}: {met:?}"
        );
    }
    Ok(())
}

/// Changes the scheduler, and waits until both nodes have applied it.
fn turn(lab: &mut Lab<'_>, from: &str, to: &str) -> Result<()> {
    lab.change_services(&annotation(from), &annotation(to))
}

fn annotation(scheduler: &str) -> String {
    format!("proxy.portolan.dev/scheduler: {scheduler:?}")
}

fn shows(lab: &Lab<'_>, scheduler: &str) -> Result<()> {
    let wanted = match scheduler {
        "mh" => "mh (mh-port)",
        other => other,
    };
    for family in Family::ALL {
        let shown = lab.shown("TCP", Service::Turn.at(family, 80))?;
        ensure!(shown == wanted, "{family}: {shown:?}, not {wanted:?}");
    }
    Ok(())
}

fn spreads(lab: &Lab<'_>, spread: Spread) -> Result<()> {
    for family in Family::ALL {
        for from in CLIENTS {
            let names = lab.ask(from, Service::Turn.at(family, 80), TIMES)?;
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
fn under_load(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let start = Instant::now() + Duration::from_millis(200);
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: Family::ALL
            .map(|family| Service::Turn.at(family, 80))
            .into(),
        per_second: PER_SECOND,
        lasts: LASTS,
        deadline: lab.limit(PATIENCE),
    };
    let mut loads = Loads::at(start);
    for client in CLIENTS {
        loads.add(client.name(), lab.topology.of(client)?, rate.clone())?;
    }
    let changes = turn_again_and_again(lab, start)?;
    for load in loads.finish()? {
        lab.line(&load.summary(&format!("connections during {changes} changes")));
        let result = load.none_failed(ENOUGH).and_then(|()| {
            ensure!(changes >= 5, "there were only {changes} changes");
            Ok(())
        });
        let client = load.name;
        let what = format!("{client}: no connection fails while the scheduler changes (S-104)");
        checks.check(&what, result);
    }
    let what = "no client is held up once schedulers have changed (S-104)";
    checks.check(what, nothing_held(lab));
    Ok(())
}

/// Changes the scheduler until the load is over, ends with `rr`, and returns the number of changes.
fn turn_again_and_again(lab: &mut Lab<'_>, start: Instant) -> Result<u32> {
    let (mut now, mut changes) = ("rr", 0u32);
    while start.elapsed() < LASTS - Duration::from_secs(1) {
        let next = if now == "rr" { "mh" } else { "rr" };
        turn(lab, now, next)?;
        now = next;
        changes += 1;
        crate::waits::sleep_until(start + PAUSE * changes)?;
    }
    if now != "rr" {
        turn(lab, now, "rr")?;
    }
    Ok(changes)
}

fn nothing_held(lab: &Lab<'_>) -> Result<()> {
    for node in Node::ALL {
        for set in ["PORTOLAN-HOLD", "PORTOLAN-6-HOLD"] {
            let held = entries(lab, node, set)?;
            ensure!(held.is_empty(), "{}: {set}: {held:?}", node.name());
        }
    }
    Ok(())
}

fn entries(lab: &Lab<'_>, node: Node, set: &str) -> Result<Vec<String>> {
    let saved = lab.tool(node, Program::Ipset, &format!("save {set}"))?;
    let added = saved.lines().filter(|line| line.starts_with("add "));
    Ok(added.map(str::to_owned).collect())
}

/// Until agents look for a scheduler again, on hardware: the sync period is 30 s.
const WITHIN_PERIOD: Duration = Duration::from_secs(45);
/// A scheduler whose module blocks IPVS when IPVS loads it: it has to be loaded beforehand.
const UNLOADED: &str = "lblcr";

fn unloaded(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    // It was there a moment ago, and the agents know that.
    turn(lab, "rr", UNLOADED)?;
    turn(lab, UNLOADED, "rr")?;
    Program::Modprobe.run(&["-r", "ip_vs_lblcr"])?;
    let [a, b] = Node::ALL.map(|node| lab.log_end(node));
    let log_ends = [a?, b?];
    turn(lab, "rr", UNLOADED)?;
    let words = ["SchedulerMissing", "\"lblcr\"", "modprobe ip_vs_lblcr"];
    checks.check(
        "a scheduler whose module could block IPVS is reported and not used (S-101)",
        lab.wait_logged(Node::A, log_ends[0], &words, SOON)
            .and_then(|()| shows(lab, "rr")),
    );
    Program::Modprobe.run(&["ip_vs_lblcr"])?;
    let again = ["Services are in the kernel as their objects ask again"];
    for (node, end) in Node::ALL.into_iter().zip(log_ends) {
        lab.wait_logged(node, end, &again, WITHIN_PERIOD)?;
    }
    checks.check(
        "once its module is loaded, it is used without a restart (S-101, S-229)",
        shows(lab, UNLOADED).and_then(|()| spreads(lab, Spread::Some)),
    );
    turn(lab, UNLOADED, "rr")
}

/// A name that the controller takes, and that the guest's kernel lacks.
const MISSING: &str = "twos";
const MISSING_WORDS: [&str; 4] = [
    "SchedulerMissing",
    "nodes without the scheduler \"twos\" use that of the settings for this Service",
    "modprobe ip_vs_twos",
    "proxy.portolan.dev/scheduler",
];

/// S-229: the plan with it is in force, or `turn` would not end.
fn missing(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let [a, b] = Node::ALL.map(|node| lab.log_end(node));
    let log_ends = [a?, b?];
    turn(lab, "rr", MISSING)?;
    for (node, end) in Node::ALL.into_iter().zip(log_ends) {
        let what = format!(
            "{}: a scheduler that the kernel lacks is reported, with what to do (S-101)",
            node.name()
        );
        checks.check(&what, lab.wait_logged(node, end, &MISSING_WORDS, SOON));
    }
    checks.check(
        "virtual servers have the scheduler of the settings (S-229)",
        shows(lab, "rr"),
    );
    checks.check("and are answered (S-229)", spreads(lab, Spread::Even));
    for family in Family::ALL {
        let what = format!("other Services are answered over {family} (S-101)");
        let asked = lab.ask(POD, Service::Steady.at(family, 80), 4).map(drop);
        checks.check(&what, asked);
    }
    for (node, end) in Node::ALL.into_iter().zip(log_ends) {
        let what = format!("{}: the node reports no failure (S-229)", node.name());
        let log = lab.log_since(node, end)?;
        let fails = log.contains("the plan is not fully in force");
        checks.require(&what, !fails, &log);
    }
    turn(lab, MISSING, "lc")?;
    let works = shows(lab, "lc").and_then(|()| spreads(lab, Spread::Some));
    checks.check(
        "a corrected scheduler works without a restart (S-101)",
        works,
    );
    Ok(())
}
