//! Schedules batches: workers of each resource take its batches. Guests follow control planes, computations run beside
//! both, and what needs the whole machine comes last.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::batch::{Outcome, Unit};
use crate::progress::{say, seconds};
use crate::tiers::{Resource, Work};

/// Units that run one after another in one process.
#[derive(Debug)]
pub(super) struct Batch {
    /// The resource they use.
    pub(super) resource: Resource,
    /// The units.
    pub(super) units: Vec<Unit>,
}

/// An event while batches run.
pub(super) enum Event {
    /// A batch was started.
    Started(String),
    /// A unit has ended.
    Ended(Box<Unit>, Box<Outcome>),
    /// A batch has ended.
    Finished(String),
}

/// Maximum number of concurrent batches of each resource.
pub(super) type Workers = fn(Resource) -> usize;

/// Interval of messages while nothing ends.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Batches for these units. `expected` returns the expected duration of a unit, seconds.
pub(super) fn batches(
    units: Vec<Unit>,
    workers: Workers,
    expected: impl Fn(&Unit) -> f64,
) -> Vec<Batch> {
    let (shared, alone): (Vec<Unit>, Vec<Unit>) = units.into_iter().partition(shares_a_guest);
    let mut alone: Vec<Batch> = alone
        .into_iter()
        .map(|unit| Batch {
            resource: unit.work.resource(),
            units: vec![unit],
        })
        .collect();
    // Long ones first, so that the last running ones are short. Compute tasks keep the order of the tiers.
    let time = |batch: &Batch| batch.units.iter().map(&expected).sum::<f64>();
    alone.sort_by(|one, other| {
        let by_time = match one.resource {
            Resource::Processor => std::cmp::Ordering::Equal,
            _ => time(other).total_cmp(&time(one)),
        };
        one.resource.cmp(&other.resource).then(by_time)
    });
    let guests = split(shared, workers(Resource::Guest), &expected);
    let guests = guests.into_iter().map(|units| Batch {
        resource: Resource::Guest,
        units,
    });
    guests.chain(alone).collect()
}

/// The expected duration of all batches, seconds. Control planes, guests and what needs the whole machine run one after
/// another, computations beside them.
pub(super) fn expected(
    batches: &[Batch],
    workers: Workers,
    expected: impl Fn(&Unit) -> f64,
) -> f64 {
    let of = |resource: Resource| {
        let mut busy = vec![0.0_f64; workers(resource).max(1)];
        for batch in batches.iter().filter(|batch| batch.resource == resource) {
            busy.sort_by(f64::total_cmp);
            busy[0] += batch.units.iter().map(&expected).sum::<f64>();
        }
        busy.into_iter().fold(0.0, f64::max)
    };
    let machines = of(Resource::ControlPlane) + of(Resource::Guest);
    machines.max(of(Resource::Processor)) + of(Resource::Whole)
}

/// Splits scenarios into groups that one guest can run.
fn shares_a_guest(unit: &Unit) -> bool {
    matches!(unit.work, Work::Scenario(scenario) if !crate::scenarios::runs_alone(scenario.name))
}

/// Parts of about the same duration, each in the given order.
fn split(units: Vec<Unit>, parts: usize, expected: impl Fn(&Unit) -> f64) -> Vec<Vec<Unit>> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by(|one, other| expected(&units[*other]).total_cmp(&expected(&units[*one])));
    let mut times = vec![0.0_f64; parts.max(1)];
    let mut part_of = vec![0; units.len()];
    for index in order {
        let shortest = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b]));
        part_of[index] = shortest.unwrap_or(0);
        times[part_of[index]] += expected(&units[index]);
    }
    let mut all: Vec<Vec<Unit>> = vec![Vec::new(); times.len()];
    for (unit, part) in units.into_iter().zip(part_of) {
        all[part].push(unit);
    }
    all.retain(|part| !part.is_empty());
    all
}

/// Runs all batches. `run` runs one and sends events; `on_end` gets each ended unit.
///
/// # Errors
/// Those of `on_end`; batches that still run are waited for.
pub(super) fn run(
    batches: Vec<Batch>,
    workers: Workers,
    run: &(dyn Fn(&Batch, &SyncSender<Event>) + Sync),
    on_end: impl FnMut(Unit, Outcome) -> Result<()>,
) -> Result<()> {
    let queue = Mutex::new(batches);
    let (events, received) = sync_channel(64);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Moved, so that the receiver learns of the end.
            let events = events;
            let run_all =
                |resource| run_all(&queue, resource, workers, &|batch| run(batch, &events));
            thread::scope(|scope| {
                scope.spawn(|| run_all(Resource::Processor));
                run_all(Resource::ControlPlane);
                run_all(Resource::Guest);
            });
            run_all(Resource::Whole);
        });
        follow(&received, on_end)
    })
}

/// Runs the batches of one resource, by all of its workers.
fn run_all(
    queue: &Mutex<Vec<Batch>>,
    resource: Resource,
    workers: Workers,
    run: &(dyn Fn(&Batch) + Sync),
) {
    let work = || {
        while let Some(batch) = next(queue, resource) {
            run(&batch);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers(resource).max(1) {
            scope.spawn(work);
        }
    });
}

fn next(queue: &Mutex<Vec<Batch>>, resource: Resource) -> Option<Batch> {
    // A worker that panicked has left the queue consistent.
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let first = queue.iter().position(|batch| batch.resource == resource)?;
    Some(queue.remove(first))
}

fn follow(
    events: &Receiver<Event>,
    mut on_end: impl FnMut(Unit, Outcome) -> Result<()>,
) -> Result<()> {
    let mut running: Vec<(String, Instant)> = Vec::new();
    let mut result = Ok(());
    loop {
        match events.recv_timeout(SIGN_OF_LIFE) {
            Ok(Event::Started(name)) => running.push((name, Instant::now())),
            Ok(Event::Finished(name)) => running.retain(|(other, _)| *other != name),
            Ok(Event::Ended(unit, outcome)) => {
                if result.is_ok() {
                    result = on_end(*unit, *outcome);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let all = running.iter();
                let all = all.map(|(name, since)| format!("{name} ({})", seconds(since.elapsed())));
                say(&format!("running: {}", all.collect::<Vec<_>>().join(", ")));
            }
            Err(RecvTimeoutError::Disconnected) => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Scenario, Targets};

    fn unit(work: Work) -> Unit {
        Unit::new("t", work, String::new())
    }

    fn guest(name: &'static str, seconds: u16) -> Unit {
        unit(Work::Scenario(Scenario { name, seconds }))
    }

    fn expected(unit: &Unit) -> f64 {
        match unit.work {
            Work::Scenario(scenario) | Work::Cluster(scenario) => f64::from(scenario.seconds),
            _ => 1.0,
        }
    }

    fn names(batch: &Batch) -> String {
        let names: Vec<&str> = batch.units.iter().map(|unit| unit.name.as_str()).collect();
        names.join("+")
    }

    #[test]
    fn scenarios_share_guests_evenly_and_long_ones_come_first() {
        let cluster = |name, seconds| unit(Work::Cluster(Scenario { name, seconds }));
        let tests = |package| unit(Work::Tests(package, Targets::All));
        let units = vec![
            tests("b"),
            tests("a"),
            cluster("rules", 10),
            cluster("churn", 100),
            guest("udp", 10),
            guest("drift", 30),
            guest("boot", 25),
            guest("bare", 20),
        ];
        let batches = batches(units, |_| 2, expected);
        let all: Vec<String> = batches.iter().map(names).collect();
        assert_eq!(
            all,
            ["drift", "udp+boot", "b", "a", "churn", "rules", "bare"]
        );
        // Two control planes for 100 s, then two guests.
        assert_eq!(super::expected(&batches, |_| 2, expected), 100.0 + 50.0);
    }

    #[test]
    fn guests_start_when_no_control_plane_is_left_and_what_needs_all_starts_last() {
        let cluster = |name| unit(Work::Cluster(Scenario { name, seconds: 1 }));
        let units = vec![
            unit(Work::Real("portolan")),
            guest("drift", 1),
            unit(Work::Tests("a", Targets::All)),
            cluster("rules"),
            cluster("churn"),
        ];
        let running = Mutex::new(Vec::new());
        let ended = Mutex::new(Vec::new());
        let run_one = |batch: &Batch, _: &SyncSender<Event>| {
            let ended_before = ended.lock().unwrap().clone();
            running.lock().unwrap().push((batch.resource, ended_before));
            thread::sleep(Duration::from_millis(20));
            ended.lock().unwrap().push(batch.resource);
        };
        let batches = batches(units, |_| 2, expected);
        run(batches, |_| 2, &run_one, |_, _| Ok(())).unwrap();
        let running = running.into_inner().unwrap();
        assert_eq!(running.len(), 5);
        for (resource, ended) in running {
            let of = |wanted| ended.iter().filter(|resource| **resource == wanted).count();
            match resource {
                Resource::Guest => assert_eq!(of(Resource::ControlPlane), 2),
                Resource::Whole => assert_eq!(ended.len(), 4),
                Resource::Processor | Resource::ControlPlane => {
                    assert_eq!(of(Resource::Guest) + of(Resource::Whole), 0);
                }
            }
        }
    }

    #[test]
    fn every_batch_runs_once_and_what_ends_is_passed_on() {
        let units = ["a", "b", "c"].map(|name| unit(Work::Tests(name, Targets::All)));
        let batches = batches(units.to_vec(), |_| 2, expected);
        let run_one = |batch: &Batch, events: &SyncSender<Event>| {
            for unit in batch.units.clone() {
                let outcome = Box::default();
                events.send(Event::Ended(Box::new(unit), outcome)).unwrap();
            }
        };
        let mut ended = Vec::new();
        let on_end = |unit: Unit, _| {
            ended.push(unit.name);
            Ok(())
        };
        run(batches, |_| 2, &run_one, on_end).unwrap();
        ended.sort();
        assert_eq!(ended, ["a", "b", "c"]);
    }
}
