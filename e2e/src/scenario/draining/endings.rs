//! How connections end: not as long as their endpoint is somewhere, at the deadline once it is gone,
//! and at once with their Service.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{BACKENDS, CLIENTS, Call, Checks, LONG, SERVICE, Scene, State, at, live};
use crate::topology::world::{Family, Node, Pod};
use crate::traffic::client::{self, Outcome};

/// How long connections to what is gone may go on, in this part: time enough to see that they do.
const SHORT: Duration = Duration::from_secs(8);
/// Longer than the agent takes to look at what drains.
const LOOKS: Duration = Duration::from_secs(3);

pub(super) fn run(scene: &mut Scene<'_>, checks: &mut Checks, calls: Vec<Call>) -> Result<()> {
    scene.stage.console.heading("how connections end");
    let [first, second, ..] = BACKENDS;
    let (mut to_first, mut others) = split(calls, first);
    shorten(scene)?;
    scene.turn(first, State::Unready)?;
    std::thread::sleep(SHORT + LOOKS);
    checks.check(
        "an endpoint that is only not ready has weight 0 and no deadline (S-114)",
        scene
            .has_weight(first, Some(0))
            .and_then(|()| live(&mut to_first)),
    );
    restarted(scene, checks, first, &mut to_first)?;
    gone(scene, checks, first, &mut to_first, &mut others)?;
    let (mut to_second, mut others) = split(others, second);
    empty(scene, checks, &mut to_second, &mut others)?;
    to_second.append(&mut others);
    deleted(scene, checks, &mut to_second)
}

fn split(calls: Vec<Call>, pod: Pod) -> (Vec<Call>, Vec<Call>) {
    calls.into_iter().partition(|call| call.pod == pod.name())
}

fn shorten(scene: &mut Scene<'_>) -> Result<()> {
    let seconds = format!("{}s", SHORT.as_secs());
    ensure!(scene.service.contains(LONG), "no deadline of {LONG}");
    scene.service = scene.service.replace(LONG, &seconds);
    let text = scene.service.clone();
    scene.write(SERVICE, &text, true)
}

/// S-117, S-118.
fn restarted(
    scene: &mut Scene<'_>,
    checks: &mut Checks,
    pod: Pod,
    calls: &mut [Call],
) -> Result<()> {
    let batches = scene.cluster.applied(Node::A)?.len();
    scene.cluster.kill_agent(Node::A)?;
    scene.cluster.start_agent(Node::A)?;
    let written = scene.cluster.wait_applied(Node::A, batches)?;
    let nothing = if written.iter().all(|operations| *operations == 0) {
        scene.has_weight(pod, Some(0)).and_then(|()| live(calls))
    } else {
        Err(anyhow::anyhow!("it wrote {written:?}"))
    };
    checks.check(
        "an agent that is killed meanwhile writes nothing when it comes back (S-118)",
        nothing,
    );
    scene.turn(pod, State::Ready)?;
    checks.check(
        "an endpoint that comes back gets its weight and keeps its connections (S-117)",
        scene.has_weight(pod, Some(1)).and_then(|()| live(calls)),
    );
    Ok(())
}

/// S-115, S-119.
fn gone(
    scene: &mut Scene<'_>,
    checks: &mut Checks,
    pod: Pod,
    calls: &mut Vec<Call>,
    others: &mut [Call],
) -> Result<()> {
    let begin = Instant::now();
    scene.turn(pod, State::Gone)?;
    checks.check(
        "connections to an endpoint that left the cluster go on at first (S-114)",
        scene.has_weight(pod, Some(0)).and_then(|()| live(calls)),
    );
    let removed = scene.stage.waits.until(
        "the real server to be removed",
        SHORT + Duration::from_secs(10),
        Duration::from_millis(50),
        || Ok(scene.has_weight(pod, None).ok()),
        || "it is still there".to_owned(),
    );
    let early = begin.elapsed() < SHORT;
    checks.check(
        "and end at the deadline, not before (S-115)",
        removed.and_then(|()| {
            ensure!(!early, "it was removed after {:?}", begin.elapsed());
            dead(calls)
        }),
    );
    checks.check("others do not notice", live(others));
    Ok(())
}

/// All endpoints stop being ready, the virtual servers with them; nobody's connection ends.
fn empty(
    scene: &mut Scene<'_>,
    checks: &mut Checks,
    calls: &mut [Call],
    others: &mut [Call],
) -> Result<()> {
    let [_, rest @ ..] = BACKENDS;
    scene.turn_all(&rest, State::Unready)?;
    for family in Family::ALL {
        for client in CLIENTS {
            let deadline = scene.stage.waits.limit(Duration::from_secs(2));
            let attempt = scene
                .topology
                .of(client)?
                .inside(|| Ok(client::tcp(at(family, 80), deadline)))?;
            let result = match attempt.outcome {
                Outcome::Refused => Ok(()),
                other => Err(anyhow::anyhow!("not refused but {other}")),
            };
            let name = client.name();
            checks.check(
                &format!("{name} over {family} is refused while nobody is ready (S-21)"),
                result,
            );
        }
    }
    checks.check(
        "and open connections go on (S-114)",
        live(calls).and_then(|()| live(others)),
    );
    scene.turn_all(&rest, State::Ready)?;
    let first = CLIENTS[0];
    let answered = scene
        .call(first, Family::IPv4)
        .and_then(|mut call| call.line.lives());
    checks.check(
        "then new ones are answered, and old ones still live (S-117)",
        answered
            .and_then(|()| live(calls))
            .and_then(|()| live(others)),
    );
    Ok(())
}

/// S-120, S-121.
fn deleted(scene: &mut Scene<'_>, checks: &mut Checks, calls: &mut Vec<Call>) -> Result<()> {
    let text = scene.service.clone();
    scene.write(SERVICE, "# nothing\n", true)?;
    checks.check(
        "a Service that is deleted takes its connections with it (S-120)",
        dead(calls),
    );
    scene.write(SERVICE, &text, true)?;
    let all = scene.call_all().and_then(|mut calls| live(&mut calls));
    std::thread::sleep(LOOKS);
    let weights = BACKENDS[1..]
        .iter()
        .try_for_each(|pod| scene.has_weight(*pod, Some(1)));
    checks.check(
        "made again it has all of its endpoints, and keeps them (S-121)",
        all.and(weights),
    );
    Ok(())
}

/// Whether no word comes back on any of them.
fn dead(calls: &mut Vec<Call>) -> Result<()> {
    ensure!(!calls.is_empty(), "there is no connection to look at");
    for mut call in std::mem::take(calls) {
        if call.line.lives().is_ok() {
            bail!("{} lives", call.name());
        }
    }
    Ok(())
}
