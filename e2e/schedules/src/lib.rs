//! State that threads and tasks share, under many orders of these: the slot of the latest plan in the agent, and the
//! registry of agents and the send queue in the controller.
//!
//! The files of both programs are included as they are. Their module `sync` is the one of this crate, whose locks and
//! signals are shuttle's. Shuttle runs all threads of a property on one thread and decides before each operation which
//! of them continues. If all of them wait, for example because a wake-up was lost, the property fails.
//!
//! Limits: all atomics are sequentially consistent, and waits never time out.
#![forbid(unsafe_code)]

// The included files name this crate. It has the custom resources, of which only the limits are needed here.
extern crate self as portolan_crds;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

#[allow(dead_code, reason = "a part of its functions is used here")]
#[path = "../../../controller/src/agent_registry.rs"]
mod agent_registry;
#[allow(dead_code, reason = "a part of its functions is used here")]
#[path = "../../../node-agent/src/heartbeat.rs"]
mod heartbeat;
#[path = "../../../crds/src/limit.rs"]
pub mod limit;
#[allow(dead_code, reason = "a part of its functions is used here")]
#[path = "../../../node-agent/src/plan_watch.rs"]
mod plan_watch;
mod sync;
#[allow(dead_code, reason = "a part of its functions is used here")]
#[path = "../../../controller/src/troubled.rs"]
mod troubled;
#[allow(dead_code, reason = "a part of its functions is used here")]
#[path = "../../../controller/src/stream/written.rs"]
mod written;

pub mod plan_slot;
pub mod registry;
pub mod send_queue;

pub use sync::lost_wake_up;

/// Number of schedules of each kind for a property.
const SCHEDULES: usize = 10_000;
/// Number of threads that are interrupted at random places, plus one. Most faults need one or two.
const DEPTH: usize = 3;
/// Size of the stack of a thread, in bytes. Shuttle's own default is too small for plans.
const STACK_BYTES: usize = 256 * 1024;
/// The variable with the seed.
const SEED: &str = "PORTOLAN_SCHEDULES_SEED";

/// Checks a property with random schedules, and with schedules that interrupt threads at few places.
///
/// # Panics
/// The property does not hold. The message has the seed.
pub fn check(property: fn()) {
    let seed = seed();
    println!("{SEED}={seed} repeats this");
    run(RandomScheduler::new_from_seed(seed, SCHEDULES), property);
    run(
        PctScheduler::new_from_seed(seed, DEPTH, SCHEDULES),
        property,
    );
}

fn run(scheduler: impl Scheduler + 'static, property: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let schedules = Runner::new(scheduler, config).run(property);
    assert_eq!(schedules, SCHEDULES);
}

fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{SEED}: {text:?} is not a number")),
        Err(_) => 0,
    }
}
