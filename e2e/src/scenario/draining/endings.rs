//! How connections end: not while their endpoint exists, at the deadline once it is gone, and at
//! once with their Service if IPVS serves it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{BACKENDS, CLIENTS, Call, Checks, LONG, Lab, SERVICE, State, at, live};
use crate::dataplane::Dataplane;
use crate::harness::wrote_nothing;
use crate::topology::world::{Family, Node, Pod};
use crate::waits::SOON;

/// Drain deadline in this part: long enough to observe that connections stay open until then.
const SHORT: Duration = Duration::from_secs(8);
/// Longer than the agent's interval for checking draining servers.
const LOOKS: Duration = Duration::from_secs(3);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("how connections end");
    let calls = std::mem::take(&mut lab.state.calls);
    let [first, second, ..] = BACKENDS;
    let (mut to_first, mut others) = split(calls, first);
    shorten(lab)?;
    lab.turn(first, State::Unready)?;
    std::thread::sleep(SHORT + LOOKS);
    checks.check(
        "an endpoint that is only not ready has weight 0 and no deadline (S-114)",
        lab.has_weight(first, lab.resting())
            .and_then(|()| live(&mut to_first)),
    );
    restarted(lab, checks, first, &mut to_first)?;
    gone(lab, checks, first, &mut to_first, &mut others)?;
    let (mut to_second, mut others) = split(others, second);
    empty(lab, checks, &mut to_second, &mut others)?;
    to_second.append(&mut others);
    deleted(lab, checks, &mut to_second)
}

fn split(calls: Vec<Call>, pod: Pod) -> (Vec<Call>, Vec<Call>) {
    calls.into_iter().partition(|call| call.pod == pod.name())
}

fn shorten(lab: &mut Lab<'_>) -> Result<()> {
    let seconds = format!("{}s", SHORT.as_secs());
    let service = &mut lab.state.service;
    ensure!(service.contains(LONG), "no deadline of {LONG}");
    *service = service.replace(LONG, &seconds);
    lab.put(SERVICE, &lab.state.service)
}

/// S-117, S-118.
fn restarted(lab: &mut Lab<'_>, checks: &mut Checks, pod: Pod, calls: &mut [Call]) -> Result<()> {
    let nothing = wrote_nothing(&lab.crash_agent(Node::A)?)
        .and_then(|()| lab.has_weight(pod, lab.resting()))
        .and_then(|()| live(calls));
    checks.check(
        "an agent that is killed meanwhile writes nothing after its restart (S-118)",
        nothing,
    );
    lab.turn(pod, State::Ready)?;
    checks.check(
        "a returning endpoint gets its weight back and keeps its connections (S-117)",
        lab.has_weight(pod, Some(1)).and_then(|()| live(calls)),
    );
    Ok(())
}

/// S-115, S-119.
fn gone(
    lab: &mut Lab<'_>,
    checks: &mut Checks,
    pod: Pod,
    calls: &mut Vec<Call>,
    others: &mut [Call],
) -> Result<()> {
    let begin = Instant::now();
    lab.turn(pod, State::Gone)?;
    checks.check(
        "connections to a removed endpoint stay open at first (S-114)",
        lab.has_weight(pod, lab.resting())
            .and_then(|()| live(calls)),
    );
    let what = "the end of connections to a removed endpoint";
    let ended = lab.eventually(what, SHORT + SOON, || {
        lab.has_weight(pod, None)?;
        dead(calls)
    });
    let after = begin.elapsed();
    calls.clear();
    checks.check(
        "and end at the deadline, not earlier (S-115)",
        ended.and_then(|()| {
            ensure!(after >= SHORT, "they ended after {after:?}");
            Ok(())
        }),
    );
    checks.check("other connections are not affected", live(others));
    Ok(())
}

/// All endpoints become not ready and the virtual servers are removed, but no connection ends.
fn empty(
    lab: &mut Lab<'_>,
    checks: &mut Checks,
    calls: &mut [Call],
    others: &mut [Call],
) -> Result<()> {
    let [_, rest @ ..] = BACKENDS;
    lab.turn_all(&rest, State::Unready)?;
    for family in Family::ALL {
        for client in CLIENTS {
            let result = lab.refused(client, at(family, 80));
            let name = client.name();
            checks.check(
                &format!("{name} over {family} is refused while no endpoint is ready (S-21)"),
                result,
            );
        }
    }
    checks.check(
        "and open connections stay open (S-114)",
        live(calls).and_then(|()| live(others)),
    );
    lab.turn_all(&rest, State::Ready)?;
    let first = CLIENTS[0];
    let answered = lab
        .call(first, Family::IPv4)
        .and_then(|mut call| call.line.lives());
    checks.check(
        "then new connections are answered, and old ones are still open (S-117)",
        answered
            .and_then(|()| live(calls))
            .and_then(|()| live(others)),
    );
    Ok(())
}

/// S-120, S-121.
fn deleted(lab: &mut Lab<'_>, checks: &mut Checks, calls: &mut [Call]) -> Result<()> {
    lab.put(SERVICE, "# nothing\n")?;
    match lab.stage.dataplane {
        Dataplane::Ipvs => checks.check(
            "the connections of a deleted Service end (S-120)",
            dead(calls),
        ),
        // As in kube-proxy's nftables mode: connection tracking keeps them.
        Dataplane::Nftables => {
            checks.check(
                "a deleted Service takes no connection (S-120)",
                lab.refused(CLIENTS[0], at(Family::IPv4, 7000)),
            );
            checks.check("and its connections go on", live(calls));
        }
    }
    lab.put(SERVICE, &lab.state.service)?;
    let all = lab.call_all().and_then(|mut calls| live(&mut calls));
    std::thread::sleep(LOOKS);
    let weights = BACKENDS[1..]
        .iter()
        .try_for_each(|pod| lab.has_weight(*pod, Some(1)));
    checks.check(
        "created again, it has and keeps all of its endpoints (S-121)",
        all.and(weights),
    );
    Ok(())
}

/// Checks that none of them gets an echo.
fn dead(calls: &mut [Call]) -> Result<()> {
    ensure!(!calls.is_empty(), "there is no connection to look at");
    for call in calls {
        if call.line.lives().is_ok() {
            bail!("{} lives", call.name());
        }
    }
    Ok(())
}
