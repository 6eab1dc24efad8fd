//! Rules that cannot be loaded or read: another program holds the lock of the legacy tables, or wrote rules with nft
//! that iptables cannot read.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Checks, Lab, NODE};
use crate::program::Program;
use crate::topology::world::Family;
use crate::waits::{self, SOON};

/// A rule that iptables cannot express, in its own chain.
const FOREIGN: &str = "FOREIGN fib daddr type local counter";

/// Rules of one family after the other cannot be read, and the other one is not concerned.
pub(super) fn not_read(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("rules that cannot be read");
    let before = rules(lab)?;
    for (family, table) in [(Family::IPv4, "ip raw"), (Family::IPv6, "ip6 filter")] {
        let mark = lab.log_end(NODE)?;
        lab.tool(NODE, Program::Nft, &format!("add chain {table} FOREIGN"))?;
        lab.tool(NODE, Program::Nft, &format!("add rule {table} {FOREIGN}"))?;
        let named = format!("read {family} rules: ");
        let what = format!("{family} rules that cannot be read are one failure (S-169)");
        let words = [&named, "is incompatible", "nft list ruleset"];
        checks.check(&what, lab.fails_once(mark, &words));
        let what = format!("{family} rules cannot be read: Services are served, new ones too");
        checks.check(&what, lab.follows(&Family::ALL));
        checks.check(
            &format!("{family} rules cannot be read: no other failure was logged"),
            lab.logged_once(mark, &words),
        );
        // Before the rule is removed: the agent may notice that at once.
        let mark = lab.log_end(NODE)?;
        lab.tool(NODE, Program::Nft, &format!("flush chain {table} FOREIGN"))?;
        lab.tool(NODE, Program::Nft, &format!("delete chain {table} FOREIGN"))?;
        let what = format!("the plan is in force once {family} rules can be read (S-169)");
        checks.check(&what, lab.heals(mark));
    }
    let now = rules(lab)?;
    checks.require(
        "rules are the same as before they could not be read",
        now == before,
        &format!("they were {before:#?} and are {now:#?}"),
    );
    Ok(())
}

/// The rules of both families.
fn rules(lab: &Lab<'_>) -> Result<Vec<String>> {
    let mut rules = Vec::new();
    for program in [Program::IptablesSave, Program::Ip6tablesSave] {
        let saved = lab.tool(NODE, program, "-t filter")?;
        let lines = saved.lines().filter(|line| line.starts_with("-A"));
        rules.extend(lines.map(str::to_owned));
    }
    Ok(rules)
}

const LOCK: &str = "/run/xtables.lock";
const HELD: Duration = Duration::from_secs(20);
/// From the release to the end of the pass (S-169).
const PROMPT: Duration = Duration::from_secs(3);

/// An agent switches to the legacy tables while another program holds their lock.
pub(super) fn locked(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("the lock of the older tables");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(LOCK)
        .with_context(|| format!("open {LOCK}"))?;
    lock.lock().with_context(|| format!("lock {LOCK}"))?;
    let (mark, since) = (lab.log_end(NODE)?, Instant::now());
    lab.restart_agent(NODE, &["--iptables", "legacy"])?;
    let words = ["load IPv4 rules: ", LOCK];
    checks.check(
        "a lock that is held is one failure (S-169)",
        lab.fails_once(mark, &words),
    );
    checks.check(
        "the lock is held: Services are served, new ones too",
        lab.follows(&Family::ALL),
    );
    waits::sleep_until(since + HELD)?;
    checks.check(
        "the lock is held: no other failure was logged",
        lab.logged_once(mark, &words),
    );
    checks.check("the lock is held: no rules are loaded", {
        let saved = lab.tool(NODE, Program::IptablesLegacySave, "-t nat");
        saved.and_then(|saved| {
            ensure!(!saved.contains("PORTOLAN-"), "{saved}");
            Ok(())
        })
    });
    free(lab, checks, lock, since)
}

/// The lock is free again.
fn free(lab: &mut Lab<'_>, checks: &mut Checks, lock: File, since: Instant) -> Result<()> {
    let mark = lab.log_end(NODE)?;
    let released = Instant::now();
    drop(lock);
    let healed = lab.heals(mark);
    let took = released.elapsed();
    lab.line(&format!(
        "in force {:.1} s after the release of a lock held for {:.0} s",
        took.as_secs_f64(),
        released.duration_since(since).as_secs_f64()
    ));
    checks.check("rules are loaded right after the lock is free (S-169)", {
        let limit = lab.limit(PROMPT);
        healed.and_then(|()| {
            ensure!(took <= limit, "it took {took:?}, more than {limit:?}");
            loaded(lab)
        })
    });
    checks.check("clients are answered by rules in the older tables", {
        let newest = lab.state.0;
        lab.answers(newest, &Family::ALL)
    });
    let mark = lab.log_end(NODE)?;
    lab.restart_agent(NODE, &["--iptables", "nft"])?;
    lab.wait_logged(NODE, mark, &["the plan is in force"], SOON)
}

fn loaded(lab: &Lab<'_>) -> Result<()> {
    for program in [Program::IptablesLegacySave, Program::Ip6tablesLegacySave] {
        let saved = lab.tool(NODE, program, "-t nat")?;
        ensure!(saved.contains("PORTOLAN-"), "{}: {saved}", program.name());
    }
    Ok(())
}
