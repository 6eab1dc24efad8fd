//! Advances a rollout by one step: it continues, stops, or begins a rollback. `gates` decides whether nodes fail.

use std::collections::BTreeSet;

use crate::reach::place;
use crate::{
    By, Moment, Node, OnFailure, Partly, Policy, Progress, Scope, Stage, State, Tally, Wave,
};

/// Maximum number of canaries; they are stored by name.
const MAX_CANARIES: usize = 100;
/// Maximum number of zones that are stored by name; the nodes of all other zones form one wave.
const MAX_ZONES: usize = 256;
/// Maximum number of excused nodes, which were disconnected or failing before they received the change.
const MAX_EXCUSED: usize = 256;
/// Seconds after the soak time until a missing node fails the change.
const LOST_NODE_SECONDS: u64 = 300;
/// Seconds after which a missing agent is reported as the reason why the rollout waits.
const SLOW_AGENT_SECONDS: u64 = 60;

/// The result for a wave.
enum Step {
    /// Wait, with the reason as a message.
    Wait(String),
    /// All nodes of the wave have the change and the soak time is over.
    Passed,
    /// The change must not continue.
    Failed(String),
}

impl State {
    /// Returns the state after one step: evaluates the reports of nodes, and extends the reach of the change or rolls
    /// it back. `nodes` contains all nodes. Without new input a second call changes nothing.
    #[must_use]
    pub fn advance(&self, policy: &Policy, nodes: &[Node], now: Moment) -> Self {
        let Stage::Rolling(progress) = &self.stage else {
            return self.clone();
        };
        let mut state = self.clone();
        let mut progress = progress.clone();
        if policy.paused {
            // An operator who resumes has checked the failure.
            if std::mem::take(&mut progress.halted) {
                state.reason = String::new();
            }
            // Timeouts do not run while paused. The time is not updated on each call, because it is stored.
            if now.saturating_sub(progress.touched_at) > LOST_NODE_SECONDS / 2 {
                progress.touched_at = now;
            }
            state.stage = Stage::Rolling(progress);
            return state;
        }
        if progress.halted {
            return state;
        }
        progress.forgive(nodes);
        match progress.step(policy, nodes, now) {
            Step::Wait(waiting) => progress.waiting = waiting,
            Step::Failed(reason) => {
                state.reason = format!("default-{}, {}: {reason}", progress.target, progress.wave);
                progress.waiting = String::new();
                if policy.on_failure == OnFailure::Rollback {
                    state.came_into_force(state.current);
                    state.stage = Stage::RolledBack {
                        revision: progress.target,
                        again: false,
                    };
                    return state;
                }
                progress.halted = true;
            }
            Step::Passed => {
                if !progress.next_wave(policy, nodes, now) {
                    state.settle(progress.target, String::new());
                    return state;
                }
            }
        }
        state.stage = Stage::Rolling(progress);
        state
    }

    /// The change in progress.
    pub fn rolling(&self) -> Option<&Progress> {
        match &self.stage {
            Stage::Rolling(progress) => Some(progress),
            Stage::Complete | Stage::RolledBack { .. } => None,
        }
    }
}

impl Progress {
    /// Excused nodes that are healthy with the change are treated like all others from now on; deleted nodes are
    /// removed.
    fn forgive(&mut self, nodes: &[Node]) {
        let target = self.target;
        let stays = |node: &&Node| !(node.has(target) && node.is_fit());
        let still = nodes.iter().filter(stays).map(|node| node.name.clone());
        let still: BTreeSet<_> = still.collect();
        self.excused.retain(|name| still.contains(name));
    }

    fn step(&mut self, policy: &Policy, nodes: &[Node], now: Moment) -> Step {
        let tally = Tally::of(self, nodes);
        let canaries = self.wave == Wave::Canary && policy.canaries > 0;
        if tally.total == 0 || (self.wave == Wave::Canary && !canaries) {
            return Step::Passed;
        }
        if let Some(trouble) = tally.trouble(&policy.gates) {
            return Step::Failed(trouble);
        }
        let lost = match self.wave {
            // Canaries exist to detect the loss of a single node.
            Wave::Canary => 0,
            Wave::Of(_) => policy.max_unavailable.of(tally.total),
        };
        if tally.unavailable() > lost {
            let words = format!(
                "{} have failed or been disconnected since they received the change",
                tally.lost_nodes()
            );
            return if self.is_overdue(policy, now) {
                Step::Failed(words)
            } else {
                Step::Wait(words)
            };
        }
        let room = room(policy, &tally);
        let left = match &self.wave {
            Wave::Canary => self.reach_canaries(policy, nodes, room, now),
            Wave::Of(scope) => self.reach_scope(&scope.clone(), nodes, room, now),
        };
        if tally.replaced > 0
            && let Some(step) = self.replacing(&tally, room, &left, policy, now)
        {
            return step;
        }
        match left {
            Left::Some(reason) => Step::Wait(reason),
            Left::None if tally.pending > 0 => Step::Wait(String::new()),
            Left::None => self.soak(policy, now),
        }
    }

    /// Waits for agents that do not start, or do not stop: no other code waits for these pods.
    fn replacing(
        &mut self,
        tally: &Tally,
        room: usize,
        left: &Left,
        policy: &Policy,
        now: Moment,
    ) -> Option<Step> {
        let overdue = self.is_overdue(policy, now);
        if tally.pending > 0 {
            let first = tally.first_pending.as_deref().unwrap_or_default();
            let words = format!(
                "{} nodes do not have their new agents (first: {first})",
                tally.pending
            );
            let slow = now.saturating_sub(self.touched_at) > SLOW_AGENT_SECONDS;
            return match (overdue, slow) {
                (true, _) => Some(Step::Failed(words)),
                (false, true) => Some(Step::Wait(words)),
                (false, false) => None,
            };
        }
        // `maxUnavailable` is reached, and more nodes are left.
        let stuck = room == 0 && tally.unavailable() > 0 && matches!(left, Left::Some(_));
        let words = || {
            let lost = tally.lost_nodes();
            format!("{lost} have not returned after their agents were replaced")
        };
        match (stuck, overdue) {
            (true, true) => Some(Step::Failed(words())),
            (true, false) => Some(Step::Wait(words())),
            (false, _) => None,
        }
    }

    /// Whether the nodes that last received the change have exceeded their time.
    fn is_overdue(&mut self, policy: &Policy, now: Moment) -> bool {
        // If the clock was set back, the timeout does not become longer.
        self.touched_at = self.touched_at.min(now);
        now - self.touched_at > policy.soak.saturating_add(LOST_NODE_SECONDS)
    }

    /// Observes a wave whose nodes all have the change.
    fn soak(&mut self, policy: &Policy, now: Moment) -> Step {
        let since = *self.soaking.get_or_insert(now);
        self.soaking = Some(since.min(now));
        if now.saturating_sub(since) >= policy.soak {
            Step::Passed
        } else {
            Step::Wait(String::new())
        }
    }

    fn untouched<'a>(&self, nodes: &'a [Node], scope: &Scope) -> Vec<&'a Node> {
        let in_scope = |node: &&Node| {
            node.affected && scope.holds(&node.zone) && !self.reach.includes(&node.name, &node.zone)
        };
        let mut found: Vec<_> = nodes.iter().filter(in_scope).collect();
        found.sort_by_key(|node| (place(&node.name), node.name.clone()));
        found
    }

    fn reach_canaries(
        &mut self,
        policy: &Policy,
        nodes: &[Node],
        room: usize,
        now: Moment,
    ) -> Left {
        let wanted = usize::try_from(policy.canaries).unwrap_or(MAX_CANARIES);
        let wanted = wanted.min(MAX_CANARIES);
        let missing = wanted.saturating_sub(self.reach.nodes.len());
        if missing == 0 || self.soaking.is_some() {
            return Left::None;
        }
        let untouched = self.untouched(nodes, &Scope::All);
        let fit: Vec<_> = untouched.iter().filter(|node| node.is_fit()).collect();
        if fit.is_empty() && self.reach.nodes.is_empty() && !untouched.is_empty() {
            return Left::Some(
                "no node is connected and healthy, so there is no canary; set \
                 spec.rollout.canary.count to 0 to continue without one"
                    .into(),
            );
        }
        let chosen = fit.iter().take(missing.min(room));
        let before = self.reach.nodes.len();
        self.reach
            .nodes
            .extend(chosen.map(|node| node.name.clone()));
        let reached = self.reach.nodes.len() - before;
        if reached > 0 {
            self.touched_at = now;
        }
        // Nodes that have just received it have not answered yet.
        if reached > 0 || (reached < missing.min(fit.len())) {
            Left::Some(String::new())
        } else {
            Left::None
        }
    }

    fn reach_scope(&mut self, scope: &Scope, nodes: &[Node], room: usize, now: Moment) -> Left {
        let untouched = self.untouched(nodes, scope);
        if untouched.is_empty() {
            return Left::None;
        }
        let spare = MAX_EXCUSED.saturating_sub(self.excused.len());
        let (mut through, mut excused, mut used) = (None, Vec::new(), 0);
        for node in &untouched {
            let fit = node.is_fit();
            if (used == room) || (!fit && excused.len() == spare) {
                break;
            }
            if !fit {
                excused.push(node.name.clone());
            }
            used += 1;
            through = Some(place(&node.name));
        }
        let Some(through) = through else {
            let full = room > 0;
            return Left::Some(if full {
                format!(
                    "more than {MAX_EXCUSED} nodes were disconnected or failing before they received the change; \
                     repair some of them, `kubectl proxyplan top` lists them"
                )
            } else {
                String::new()
            });
        };
        self.excused.extend(excused);
        self.reach.partly = Some(Partly {
            scope: scope.clone(),
            through,
        });
        self.touched_at = now;
        Left::Some(String::new())
    }

    /// Starts the next wave; false if there is none because all nodes have the change.
    fn next_wave(&mut self, policy: &Policy, nodes: &[Node], now: Moment) -> bool {
        if let Wave::Of(Scope::Zone(zone)) = &self.wave {
            self.reach.zones.insert(zone.clone());
            self.reach.partly = None;
        }
        let rest = self.untouched(nodes, &Scope::All);
        let Some(zone) = rest.iter().map(|node| node.zone.clone()).min() else {
            return false;
        };
        let by_zone = policy.by == By::Zone && self.reach.zones.len() < MAX_ZONES;
        // Nodes that joined after the wave of all nodes belong to that wave.
        self.wave = match (&self.wave, by_zone) {
            (Wave::Of(Scope::All), _) | (_, false) => Wave::Of(Scope::All),
            _ => Wave::Of(Scope::Zone(zone)),
        };
        self.waiting = String::new();
        self.soaking = None;
        self.touched_at = now;
        true
    }
}

/// How many more nodes may receive the change now. A replaced agent is briefly disconnected, so at most
/// `maxUnavailable` agents are replaced at a time.
fn room(policy: &Policy, tally: &Tally) -> usize {
    let most = policy.max_parallel.of(tally.total).max(1);
    if tally.replaced == 0 {
        return most.saturating_sub(tally.pending);
    }
    let most = most.min(policy.max_unavailable.of(tally.total).max(1));
    most.saturating_sub(tally.pending + tally.leaving + tally.unavailable())
}

/// Whether nodes of a wave are left.
enum Left {
    None,
    /// Nodes are left, with what the rollout waits for as a message; empty if it only waits for time to pass.
    Some(String),
}
