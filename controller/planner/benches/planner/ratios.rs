//! Ratios: a change in a large cluster against the same change in a small one.

use std::time::{Duration, Instant};

use portolan_planner::Planner;
use portolan_planner::model::Event;

use crate::changes::{Flips, HINTED, Moves, PLAIN, Round, apply};
use crate::cluster;

/// Numbers of Services.
const SMALL: usize = 100;
const LARGE: usize = 10_000;
/// Number of rounds for each cluster …
const TURNS: usize = 200;
/// … and of changes in each round, alternating so that other load affects both alike.
const CHANGES: usize = 20;

/// Prints them.
pub(crate) fn print() {
    let mut small = cluster::planned(SMALL);
    let mut large = cluster::planned(LARGE);
    let mut pair = |name: &str, mut change: Box<dyn FnMut(usize) -> Event>| {
        let (of_small, of_large) = medians(&mut small, &mut large, &mut change);
        let ratio = of_large.as_secs_f64() / of_small.as_secs_f64();
        println!("{name:<52}{ratio:>6.2}  {of_large:>10.1?} against {of_small:.1?}");
    };
    println!(
        "\nMedian of one change, {LARGE} Services against {SMALL} ({} nodes):",
        cluster::NODES
    );
    pair("endpoint readiness, plain Service", flips(PLAIN));
    pair(
        "endpoint readiness, two ports and zone hints",
        flips(HINTED),
    );
    let (mut of_small, mut of_large) = (Round::new(SMALL), Round::new(LARGE));
    let round = move |services| match services {
        SMALL => of_small.next(),
        _ => of_large.next(),
    };
    pair(
        "endpoint readiness, another Service each time",
        Box::new(round),
    );
    let (mut of_small, mut of_large) = (Moves::default(), Moves::default());
    let moves = move |services| match services {
        SMALL => of_small.next(),
        _ => of_large.next(),
    };
    pair("the zone label of a node", Box::new(moves));
}

fn flips(service: usize) -> Box<dyn FnMut(usize) -> Event> {
    let (mut of_small, mut of_large) = (Flips::default(), Flips::default());
    Box::new(move |services| match services {
        SMALL => of_small.next(service),
        _ => of_large.next(service),
    })
}

fn medians(
    small: &mut Planner,
    large: &mut Planner,
    change: &mut dyn FnMut(usize) -> Event,
) -> (Duration, Duration) {
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        for _ in 0..CHANGES {
            times.0.push(timed(small, change(SMALL)));
        }
        for _ in 0..CHANGES {
            times.1.push(timed(large, change(LARGE)));
        }
    }
    (median(times.0), median(times.1))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the planner has no clock; what measures it needs one"
)]
fn timed(planner: &mut Planner, event: Event) -> Duration {
    let since = Instant::now();
    apply(planner, event);
    since.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
