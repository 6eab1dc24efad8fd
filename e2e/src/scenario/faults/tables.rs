//! Rules that cannot be loaded or read: somebody holds the lock of the older tables, or wrote rules with nft
//! that iptables cannot read.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::{Checks, SOON, Scene};
use crate::program::Program;
use crate::topology::world::Family;
use crate::waits;

/// A rule whose like iptables does not have, in a chain of its own.
const FOREIGN: &str = "FOREIGN fib daddr type local counter";

/// Rules of one family after the other cannot be read, and the other one is not concerned.
pub(super) fn not_read(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("rules that cannot be read");
    let before = rules(scene)?;
    for (family, table) in [(Family::IPv4, "ip filter"), (Family::IPv6, "ip6 filter")] {
        let mark = scene.mark()?;
        scene.tool(Program::Nft, &format!("add chain {table} FOREIGN"))?;
        scene.tool(Program::Nft, &format!("add rule {table} {FOREIGN}"))?;
        let named = format!("read {family} rules: ");
        let what = format!("{family} rules that cannot be read are one failure (S-169)");
        let words = [&named, "is incompatible", "nft list ruleset"];
        checks.check(&what, scene.fails_once(mark, &words));
        let what = format!("{family} rules cannot be read: Services are served, new ones too");
        checks.check(&what, scene.follows(&Family::ALL));
        checks.check(
            &format!("{family} rules cannot be read: no other failure was told"),
            scene.told_once(mark, &words),
        );
        scene.tool(Program::Nft, &format!("flush chain {table} FOREIGN"))?;
        scene.tool(Program::Nft, &format!("delete chain {table} FOREIGN"))?;
        let mark = scene.mark()?;
        let what = format!("the plan is in force once {family} rules can be read (S-169)");
        checks.check(&what, scene.heals(mark));
    }
    checks.check("rules are as they were before they could not be read", {
        let now = rules(scene)?;
        if now == before {
            Ok(())
        } else {
            Err(anyhow!("they were {before:#?} and are {now:#?}"))
        }
    });
    Ok(())
}

/// The rules of both families.
fn rules(scene: &Scene<'_>) -> Result<Vec<String>> {
    let mut rules = Vec::new();
    for program in [Program::IptablesSave, Program::Ip6tablesSave] {
        let saved = scene.tool(program, "-t filter")?;
        let lines = saved.lines().filter(|line| line.starts_with("-A"));
        rules.extend(lines.map(str::to_owned));
    }
    Ok(rules)
}

const LOCK: &str = "/run/xtables.lock";
const HELD: Duration = Duration::from_secs(20);
/// From the release to the end of the pass (S-169).
const PROMPT: Duration = Duration::from_secs(3);

/// An agent begins to use the older tables while somebody holds their lock.
pub(super) fn locked(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("the lock of the older tables");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(LOCK)
        .with_context(|| format!("open {LOCK}"))?;
    lock.lock().with_context(|| format!("lock {LOCK}"))?;
    let (mark, since) = (scene.mark()?, Instant::now());
    scene.restart(&["--iptables", "legacy"])?;
    let words = ["load IPv4 rules: ", LOCK];
    checks.check(
        "a lock that is held is one failure (S-169)",
        scene.fails_once(mark, &words),
    );
    checks.check(
        "the lock is held: Services are served, new ones too",
        scene.follows(&Family::ALL),
    );
    waits::sleep_until(since + HELD)?;
    checks.check(
        "the lock is held: no other failure was told",
        scene.told_once(mark, &words),
    );
    checks.check("the lock is held: no rules are loaded", {
        let saved = scene.tool(Program::IptablesLegacySave, "-t nat");
        saved.and_then(|saved| {
            ensure!(!saved.contains("PORTOLAN-"), "{saved}");
            Ok(())
        })
    });
    free(scene, checks, lock, since)
}

/// The lock is free again.
fn free(scene: &mut Scene<'_>, checks: &mut Checks, lock: File, since: Instant) -> Result<()> {
    let mark = scene.mark()?;
    let released = Instant::now();
    drop(lock);
    let healed = scene.heals(mark);
    let took = released.elapsed();
    scene.stage.console.line(&format!(
        "in force {:.1} s after the release of a lock that was held for {:.0} s",
        took.as_secs_f64(),
        released.duration_since(since).as_secs_f64()
    ));
    checks.check("rules are loaded right after the lock is free (S-169)", {
        let limit = scene.stage.waits.limit(PROMPT);
        healed.and_then(|()| {
            ensure!(took <= limit, "it took {took:?}, more than {limit:?}");
            loaded(scene)
        })
    });
    checks.check("clients are answered by rules in the older tables", {
        let newest = scene.newest;
        scene.answers(newest, &Family::ALL)
    });
    let mark = scene.mark()?;
    scene.restart(&["--iptables", "nft"])?;
    scene.until("rules in the newer tables", SOON, |scene| {
        let said = scene.said(mark)?;
        Ok(if said.contains("applied") {
            Ok(())
        } else {
            Err(said)
        })
    })
}

fn loaded(scene: &Scene<'_>) -> Result<()> {
    for program in [Program::IptablesLegacySave, Program::Ip6tablesLegacySave] {
        let saved = scene.tool(program, "-t nat")?;
        ensure!(saved.contains("PORTOLAN-"), "{}: {saved}", program.name());
    }
    Ok(())
}
