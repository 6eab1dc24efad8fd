//! The shared context of the four reconcilers: the queue of targets, calls that wait for the write budget, and the
//! state of the cluster. No I/O; time is an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::agent_registry::AgentRegistry;
use crate::cluster_state::Shared;
use crate::events::Events;
use crate::publish::budget::{Pace, plan_interval};
use crate::publish::pauses::Pauses;
use crate::publish::queue::{Class, Queue};
use crate::publish::write::{Act, Call, Kind, Target};

/// Writes to the API server per second, unless the ProxyConfig sets them.
pub(super) const DEFAULT_WRITES_PER_SECOND: u32 = 50;
/// Delay before a target that cannot be decided now is reconciled again.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The current time.
#[derive(Debug, Clone, Copy)]
pub(in crate::publish) struct Now {
    /// The time since the start, for budgets.
    pub(in crate::publish) elapsed: Duration,
    /// Wall-clock time, for timestamps.
    pub(in crate::publish) wall: SystemTime,
}

/// Shared by all reconcilers.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Shared,
    pub(super) registry: Arc<AgentRegistry>,
    pub(super) events: Events,
    pub(super) queue: Queue<Target>,
    /// Decided calls that wait for the budget.
    pub(super) outbox: VecDeque<Call>,
    pub(super) pace: Pace,
    per_second: u32,
    pub(super) pauses: Pauses,
    /// Kinds whose objects in the store are known.
    listed: BTreeSet<Kind>,
    /// When the last list of a kind began.
    listing_since: BTreeMap<Kind, Duration>,
    /// Whether this controller leads. Others write statuses only.
    pub(super) leads: bool,
}

impl Context {
    pub(super) fn new(shared: Shared, registry: Arc<AgentRegistry>) -> Self {
        Self {
            shared,
            registry,
            events: Events::default(),
            queue: Queue::default(),
            outbox: VecDeque::new(),
            pace: Pace::new(DEFAULT_WRITES_PER_SECOND),
            per_second: DEFAULT_WRITES_PER_SECOND,
            pauses: Pauses::default(),
            listed: BTreeSet::new(),
            listing_since: BTreeMap::new(),
            leads: true,
        }
    }

    /// Sets the write budget.
    pub(super) fn set_budget(&mut self, per_second: u32) {
        self.per_second = per_second.clamp(1, 1000);
        self.pace.set(self.per_second);
    }

    /// Queues a target without a delay.
    pub(super) fn look(&mut self, target: Target, class: Class, now: Now) {
        self.queue.push(target, class, now.elapsed);
    }

    /// Queues a target with a delay.
    pub(super) fn look_after(&mut self, target: Target, class: Class, pause: Duration, now: Now) {
        self.queue.push(target, class, now.elapsed + pause);
    }

    /// Decides on a call. It is made when the budget allows it.
    pub(super) fn issue(&mut self, target: Target, kind: Kind, name: &str, act: Act) {
        self.outbox.push_back(Call {
            target,
            kind,
            name: name.to_owned(),
            act,
        });
    }

    /// Starts a list of all objects of a kind.
    pub(super) fn list(&mut self, kind: Kind, now: Now) {
        self.listing_since.insert(kind, now.elapsed);
        self.issue(Target::Listing(kind), kind, "", Act::List);
    }

    /// Records that a list of a kind has completed. Returns whether it is the first one.
    pub(super) fn listed(&mut self, kind: Kind) -> bool {
        self.listed.insert(kind)
    }

    /// When the last list of a kind began.
    pub(super) fn listing_since(&self, kind: Kind) -> Duration {
        self.listing_since.get(&kind).copied().unwrap_or_default()
    }

    /// Whether the objects of a kind are known.
    pub(super) fn is_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// Discards what is known about stored objects, because another controller wrote since.
    pub(super) fn forget_lists(&mut self) {
        self.listed.clear();
    }

    /// The time in which the budget allows this many writes.
    pub(super) fn writing_time(&self, writes: usize) -> Duration {
        let writes = u64::try_from(writes).unwrap_or(u64::MAX);
        Duration::from_secs(writes / u64::from(self.per_second))
    }

    /// The shortest time between two writes of one plan, in a cluster with this many plans.
    pub(super) fn plan_interval(&self, plans: usize) -> Duration {
        plan_interval(plans, self.per_second)
    }
}
