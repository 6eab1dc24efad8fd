//! Endpoints are removed and return one after the other, and agents are killed, while new
//! connections are made.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{BACKENDS, CLIENTS, Call, Checks, Lab, State, at, live};
use crate::chance::Chance;
use crate::harness::loads::Loads;
use crate::topology::world::{Family, Node};
use crate::traffic::Protocol;
use crate::traffic::load::Rate;

/// How often each endpoint is removed and returns.
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

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("endpoints that go and come back");
    let start = Instant::now() + Duration::from_millis(200);
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: Family::ALL.map(|family| at(family, 80)).into(),
        per_second: PER_SECOND,
        lasts: lasts(),
        // No retransmission is slower than this unless something was lost.
        deadline: lab.limit(Duration::from_secs(2)),
    };
    let mut loads = Loads::at(start);
    for client in CLIENTS {
        loads.add(client.name(), lab.topology.of(client)?, rate.clone())?;
    }
    let mut calls = std::mem::take(&mut lab.state.calls);
    let rolled = roll(lab, start, &mut calls);
    for load in loads.finish()? {
        lab.line(&load.summary("new connections"));
        let what = format!(
            "{}: no new connection fails meanwhile (S-117, S-118, S-186)",
            load.name
        );
        checks.check(&what, load.none_failed(ENOUGH));
    }
    let what = format!(
        "{} open connections survive all of it (S-114, S-117, S-118)",
        calls.len()
    );
    checks.check(&what, rolled.and_then(|()| live(&mut calls)));
    lab.state.calls = calls;
    Ok(())
}

/// Every endpoint goes in one of three ways and comes back; in between an agent is killed at a moment
/// of chance. Each connection is used after each change.
fn roll(lab: &mut Lab<'_>, start: Instant, calls: &mut [Call]) -> Result<()> {
    let console = lab.stage.console;
    console.line(&format!("seed {} (repeat with --seed {0})", lab.stage.seed));
    let mut chance = Chance::from_seed(lab.stage.seed);
    let mut step = 1;
    for round in 0..ROUNDS {
        for pod in BACKENDS {
            let state = if round % 2 == 0 {
                State::Unready
            } else {
                State::Gone
            };
            crate::waits::sleep_until(start + PAUSE * step)?;
            lab.turn(pod, state)?;
            live(calls)?;
            let kill = chance.between(Duration::ZERO, PAUSE);
            crate::waits::sleep_until(start + PAUSE * step + kill)?;
            let node = chance.either(Node::A, Node::B);
            lab.crash_agent(node)?;
            crate::waits::sleep_until(start + PAUSE * (step + 1))?;
            lab.turn(pod, State::Ready)?;
            live(calls)?;
            step += 2;
        }
    }
    Ok(())
}
