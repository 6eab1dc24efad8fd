//! Source ranges of load balancers where they are easy to get wrong: on a node that has the address itself, and
//! while another program flushes all rules.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::ask::{OPEN_PODS, Question, all_clients_are_served};
use crate::checks::Checks;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Node, OUTSIDE, Resident};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;
use crate::traffic::load::{Load, Rate};
use crate::waits;

/// Addresses of the Service `guarded`, which the external client and node-a may use, and of `closed`, which they may
/// not.
const GUARDED: (&str, &str) = ("203.0.113.41:80", "203.0.113.41/32");
const CLOSED: (&str, &str) = ("203.0.113.51:80", "203.0.113.51/32");

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    held_by_the_node(lab, checks)?;
    flushed(lab, checks)
}

/// The source of the node's own connections is the address itself then.
fn held_by_the_node(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let ip = |line: &str| lab.tool(Node::A, Program::Ip, line).map(drop);
    let question = |from, to| Question {
        from,
        to,
        protocol: Protocol::Tcp,
    };
    for (_, address) in [GUARDED, CLOSED] {
        ip(&format!("address add {address} dev eth0"))?;
    }
    let own = lab.eventually(
        "the node to reach an address of its own",
        waits::SOON,
        || question("node-a", GUARDED.0).is_answered(lab, &OPEN_PODS[..1]),
    );
    checks.check(
        "a node that has a guarded address itself reaches it if another of its addresses may \
         (S-223)",
        own,
    );
    checks.check(
        "… and not if none of its addresses may (S-86, S-223)",
        question("node-a", CLOSED.0).ends(lab, &Outcome::Silent),
    );
    checks.check(
        "… and others are admitted as before (S-86)",
        question(OUTSIDE, GUARDED.0)
            .is_answered(lab, &OPEN_PODS[..1])
            .and_then(|()| question("pod-a3", GUARDED.0).ends(lab, &Outcome::Silent)),
    );
    for (_, address) in [GUARDED, CLOSED] {
        ip(&format!("address del {address} dev eth0"))?;
    }
    Ok(())
}

/// Within this time after a flush the rules are back.
const BACK: Duration = Duration::from_secs(1);
/// Attempts of a client that may not connect, a second.
const PER_SECOND: u32 = 40;
/// More than an answer takes. While clients wait for silence they make no other attempts.
const PATIENCE: Duration = Duration::from_millis(100);
/// Attempts that have to be made for the time to mean something.
const ENOUGH: u32 = 20;

/// S-226: for how long a client that may not connect can, after another program has flushed all rules.
fn flushed(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let back = lab.limit(BACK);
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: vec![GUARDED.0.parse()?],
        per_second: PER_SECOND,
        lasts: back * 3,
        deadline: lab.limit(PATIENCE),
    };
    let start = Instant::now();
    let client = Resident::named("pod-a3").context("find pod-a3")?;
    let load = Load::start(lab.topology.of(client)?, &rate, start)?;
    waits::sleep_until(start + back)?;
    let flushed = start.elapsed();
    lab.tool(Node::A, Program::Nft, "flush ruleset")?;
    let tally = load.finish()?;
    let open = tally.last_answered.map(|last| last.saturating_sub(flushed));
    lab.line(&match open {
        None => format!(
            "none of {} attempts was let in, before and after a flush of all rules",
            tally.made
        ),
        Some(open) => format!(
            "of {} attempts the last one that was let in began {} ms after a flush of all rules",
            tally.made,
            open.as_millis()
        ),
    });
    checks.require(
        "source ranges hold before a flush of all rules, and again within a second after it (S-226)",
        tally.made > ENOUGH
            && tally.last_answered.is_none_or(|last| last > flushed)
            && open.is_none_or(|open| open < back),
        &format!("{tally:?}, flushed at {flushed:?}"),
    );
    checks.check(
        "… and Services serve all clients (S-226)",
        all_clients_are_served(lab),
    );
    Ok(())
}
