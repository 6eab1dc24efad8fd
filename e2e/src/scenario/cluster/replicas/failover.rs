//! The leader of two controllers is killed while endpoints change. Its agents move to the other one, which lists
//! nothing again for all of them (S-192), and no agent returns to an older plan (S-193).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::audit::since;
use super::super::bulk::Bulk;
use super::super::probes::{Probes, p99};
use super::returning::connected;
use super::{MOVED, NAMES, NODES, Replicas, TAKEN};
use crate::checks::Checks;
use crate::control_plane::Reach;
use crate::waits::sleep_until;

/// Services whose endpoints change.
const SERVICES: usize = 6;
/// Changes one by one, each until every agent has it, before and after the controller is killed.
const CHANGES: usize = 40;
/// Changes without a wait for their arrival, before the controller is killed, and between two reads of the lease.
const MORE_CHANGES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(25);
/// Lists of a kind by the remaining controller: one, if its watch does not deliver in time what an agent has.
const MOST_LISTS: usize = 1;

pub(super) fn run(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let [.., away] = NAMES;
    replicas.stop(away)?;
    let killed = replicas.wait_leader(Some(away), TAKEN)?;
    wait_connected(replicas)?;
    let bulk = Bulk::new(&replicas.rig.plane.kubeconfig(Reach::Here))?;
    let mut probes = Probes::create(&bulk, SERVICES)?;
    let quiet = p99(&probes.measure(&replicas.rig, &bulk, CHANGES)?)?;
    let moved = served(replicas, killed)?;
    let agents = replicas.rig.agents()?;
    agents.begin_history();
    let streams = agents.streams();
    change(&mut probes, &bulk)?;
    let lists = replicas.rig.audit()?.lists();
    let running = replicas.named(killed)?.running.take();
    running.context("it does not run")?.kill()?;
    let start = Instant::now();
    let after = probes.measure(&replicas.rig, &bulk, CHANGES)?;
    let first = after.first().context("no change was measured")?;
    let led = replicas.eventually("another controller to lead", TAKEN, || {
        change(&mut probes, &bulk)?;
        let holder = replicas.holder()?;
        ensure!(holder != killed && holder != away, "{holder:?} leads");
        Ok(())
    });
    let seconds = start.elapsed().as_secs_f64();
    replicas.rig.stage.console.line(&format!(
        "controller {killed} led and served {moved} agents: once it is killed, the next change is everywhere within \
         {first:.0} ms, usually {quiet:.0} ms, and another controller leads after {seconds:.0} s"
    ));
    checks.check("another controller leads during changes", led);
    checks.check(
        "agents of a controller that is killed during changes have every change",
        replicas.rig.wait_equal(MOVED),
    );
    let lists = since(&lists, &replicas.rig.audit()?.lists());
    checks.require(
        "agents that move together cost at most one list of each kind (S-192)",
        lists.values().all(|count| *count <= MOST_LISTS),
        &format!("{lists:?}"),
    );
    kept(replicas, streams, moved, checks)?;
    for name in [killed, away] {
        replicas.named(name)?.start()?;
        replicas.wait_ready(name)?;
    }
    Ok(())
}

/// Checks what agents had meanwhile.
fn kept(replicas: &Replicas<'_>, streams: u64, moved: u64, checks: &mut Checks) -> Result<()> {
    let agents = replicas.rig.agents()?;
    let opened = agents.streams() - streams;
    let trouble = agents.nodes().find_map(|node| agents.link(node).trouble);
    checks.require(
        "each of its agents opens one stream, and no other agent does",
        opened == moved && trouble.is_none(),
        &format!("{moved} agents, {opened} streams, {trouble:?}"),
    );
    let back: Vec<_> = agents.went_back().collect();
    checks.require(
        "no agent returns to an older plan when its controller is killed during changes (S-193)",
        back.is_empty(),
        &format!("{back:?}"),
    );
    Ok(())
}

/// Waits until the running controllers serve all agents.
fn wait_connected(replicas: &Replicas<'_>) -> Result<()> {
    replicas.eventually("all agents to be connected", MOVED, || {
        let count: usize = connected(replicas)?.values().sum();
        ensure!(count == usize::from(NODES), "{count} are");
        Ok(())
    })
}

/// The number of agents of a controller.
fn served(replicas: &mut Replicas<'_>, name: &str) -> Result<u64> {
    let socket = format!("unix:{}", replicas.named(name)?.socket.display());
    let count = connected(replicas)?.get(&socket).copied();
    let count = count.context("it serves no agent")?;
    Ok(u64::try_from(count)?)
}

/// Changes endpoints, whether agents follow or not.
fn change(probes: &mut Probes, bulk: &Bulk) -> Result<()> {
    let start = Instant::now();
    for number in 1..=MORE_CHANGES {
        probes.change(bulk)?;
        sleep_until(start + PAUSE * number)?;
    }
    Ok(())
}
