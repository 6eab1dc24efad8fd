//! The invariants hold for all seeds. `PORTOLAN_SIMULATION_FIRST` and `PORTOLAN_SIMULATION_SEEDS` select the seeds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use portolan_simulation::{Invariant, run};

/// Number of seeds.
const SEEDS: u64 = 300;
/// Number of violations after which no further seed is simulated.
const MAX_VIOLATIONS: usize = 20;
/// Number of steps before a violation that are printed.
const LAST_STEPS: usize = 25;

/// The violations of all seeds, simulated once for all tests.
static VIOLATIONS: LazyLock<Violations> = LazyLock::new(simulate);

/// A violated invariant and a report, by seed.
type Violations = BTreeMap<u64, (Invariant, String)>;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}: {text:?} is not a number")))
}

fn simulate() -> Violations {
    let first = number("PORTOLAN_SIMULATION_FIRST").unwrap_or(0);
    let end = first.saturating_add(number("PORTOLAN_SIMULATION_SEEDS").unwrap_or(SEEDS));
    let (next, violations) = (AtomicU64::new(first), Mutex::new(Violations::new()));
    let simulate_next = || {
        while violations.lock().unwrap().len() < MAX_VIOLATIONS {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            if let Some(violation) = violation(seed) {
                violations.lock().unwrap().insert(seed, violation);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(simulate_next);
        }
    });
    violations.into_inner().unwrap()
}

fn violation(seed: u64) -> Option<(Invariant, String)> {
    let simulated = run(seed).unwrap();
    let violation = simulated.violation?;
    let from = simulated.steps.len().saturating_sub(LAST_STEPS);
    let mut report = format!("seed {seed}: {violation}; the last steps were:\n");
    for step in &simulated.steps[from..] {
        writeln!(report, "  {step}").unwrap();
    }
    write!(
        report,
        "PORTOLAN_SIMULATION_FIRST={seed} PORTOLAN_SIMULATION_SEEDS=1 repeats it"
    )
    .unwrap();
    Some((violation.invariant, report))
}

/// Asserts that no seed violates an invariant.
fn holds(invariant: Invariant) {
    let of_invariant = VIOLATIONS.values().filter(|(of, _)| *of == invariant);
    let reports: Vec<&str> = of_invariant.map(|(_, report)| report.as_str()).collect();
    let first = reports.first().copied().unwrap_or_default();
    assert!(reports.is_empty(), "{} seeds; {first}", reports.len());
}

/// I-1.
#[test]
fn controllers_plan_the_same_from_the_same_objects() {
    holds(Invariant::SamePlans);
}

/// I-2.
#[test]
fn an_agent_has_only_plans_that_a_controller_published() {
    holds(Invariant::WholePlans);
}

/// I-9.
#[test]
fn a_slow_agent_delays_no_other() {
    holds(Invariant::SlowAgents);
}

/// I-10.
#[test]
fn nothing_is_published_before_every_kind_was_listed() {
    holds(Invariant::ListedFirst);
}

/// I-12.
#[test]
fn no_agent_returns_to_an_older_plan() {
    holds(Invariant::NoOlderPlans);
}

#[test]
fn at_most_one_controller_leads() {
    holds(Invariant::OneLeader);
}

#[test]
fn lists_that_agents_request_are_rare() {
    holds(Invariant::RareLists);
}

#[test]
fn every_agent_returns_to_its_first_controller() {
    holds(Invariant::FirstController);
}

#[test]
fn every_node_has_the_newest_plan_after_all_interruptions() {
    holds(Invariant::Settles);
}
