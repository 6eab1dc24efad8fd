//! Endpoints go and come back one after the other, and agents are killed, under new connections.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::{BACKENDS, CLIENTS, Call, Checks, Scene, State, at, live};
use crate::chance::Chance;
use crate::topology::world::{Family, Node};
use crate::traffic::Protocol;
use crate::traffic::load::{Load, Rate};

/// How often each endpoint goes and comes back.
const ROUNDS: u32 = 2;
/// New connections a second of each client.
const PER_SECOND: u32 = 20;
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(1200);
/// A load that reaches less than this share of its rate has shown nothing.
const ENOUGH: f64 = 0.5;

/// Two changes for each endpoint and round, and a little time before and after them.
fn lasts() -> Duration {
    let steps = ROUNDS * 2 * u32::try_from(BACKENDS.len()).unwrap_or(u32::MAX);
    PAUSE * (steps + 3)
}

pub(super) fn run(scene: &mut Scene<'_>, checks: &mut Checks, calls: &mut [Call]) -> Result<()> {
    scene
        .stage
        .console
        .heading("endpoints that go and come back");
    let start = Instant::now() + Duration::from_millis(200);
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: Family::ALL.map(|family| at(family, 80)).into(),
        per_second: PER_SECOND,
        lasts: lasts(),
        // No retransmission is slower than this unless something was lost.
        deadline: scene.stage.waits.limit(Duration::from_secs(2)),
    };
    let mut loads = Vec::new();
    for client in CLIENTS {
        let load = Load::start(scene.topology.of(client)?, &rate, start)?;
        loads.push((client.name(), load));
    }
    let rolled = roll(scene, start, calls);
    for (client, load) in loads {
        let tally = load.finish()?;
        scene.stage.console.line(&format!(
            "{client}: {} of {} new connections, {} failed, slowest {} ms",
            tally.made,
            rate.wanted(),
            tally.failures.len(),
            tally.slowest.as_millis()
        ));
        let made = f64::from(tally.made) >= ENOUGH * f64::from(rate.wanted());
        let result = match tally.failures.first() {
            Some((when, to, how)) => Err(anyhow!(
                "{} failed, the first after {:.3} s to {to}: {how}",
                tally.failures.len(),
                when.as_secs_f64()
            )),
            None if !made => Err(anyhow!("only {} were made", tally.made)),
            None => Ok(()),
        };
        checks.check(
            &format!("{client}: no new connection fails meanwhile (S-117, S-118, S-186)"),
            result,
        );
    }
    let what = format!(
        "{} open connections live through all of it (S-114, S-117, S-118)",
        calls.len()
    );
    checks.check(&what, rolled.and_then(|()| live(calls)));
    Ok(())
}

/// Every endpoint goes in one of three ways and comes back; in between an agent is killed at a moment
/// of chance. Each connection is used after each change.
fn roll(scene: &mut Scene<'_>, start: Instant, calls: &mut [Call]) -> Result<()> {
    let console = scene.stage.console;
    console.line(&format!(
        "seed {} (repeat with --seed {0})",
        scene.stage.seed
    ));
    let mut chance = Chance::from_seed(scene.stage.seed);
    let mut step = 1;
    for round in 0..ROUNDS {
        for pod in BACKENDS {
            let state = if round % 2 == 0 {
                State::Unready
            } else {
                State::Gone
            };
            crate::waits::sleep_until(start + PAUSE * step)?;
            scene.turn(pod, state)?;
            live(calls)?;
            let kill = chance.between(Duration::ZERO, PAUSE);
            crate::waits::sleep_until(start + PAUSE * step + kill)?;
            let node = if chance.number().is_multiple_of(2) {
                Node::A
            } else {
                Node::B
            };
            let batches = scene.cluster.applied(node)?.len();
            scene.cluster.kill_agent(node)?;
            scene.cluster.start_agent(node)?;
            scene.cluster.wait_applied(node, batches)?;
            crate::waits::sleep_until(start + PAUSE * (step + 1))?;
            scene.turn(pod, State::Ready)?;
            live(calls)?;
            step += 2;
        }
    }
    Ok(())
}
