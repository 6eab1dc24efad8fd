//! The guard against mass loss of endpoints whose Services exist and whose Nodes are Ready, which indicates a broken
//! controller or an emptied store.
//!
//! Vanished endpoints are remembered for a while ([`losses`]). When they exceed a share of the cluster's ready
//! endpoints, they are a loss, which is reported or held. Held endpoints stay planned, in slices of the guard, until
//! the operator approves the loss, until its time is over, or until they return. Added endpoints and endpoints that
//! become unready always pass.
//!
//! All controllers see the same events and decide the same; if they start or end a loss at different times, the
//! stored loss decides ([`Guarding::stored`]). The clock is an argument.

mod losses;
mod policy;

use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::ServiceId;
pub use portolan_rollout_policy::Moment;

use self::losses::Losses;
pub use self::policy::{GuardMode, GuardPolicy, Guarding, StoredLoss};
use super::kept::Changed;
use super::{Endpoint, EndpointSlice, ObjectChange, SliceId};

/// A loss, as this controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// When it was detected.
    pub since: Moment,
    /// Endpoints that vanished and have not returned.
    pub lost: usize,
    /// Ready endpoints before, including the lost ones.
    pub of: usize,
    /// Number of lost endpoints that nodes still have.
    pub held: usize,
    /// Whether this controller saw a loss itself, not only the one that is stored.
    pub own: bool,
}

#[derive(Debug)]
struct InForce {
    since: Moment,
    of: usize,
    /// The largest number of lost endpoints.
    most: usize,
    /// The name under which it is stored, if known.
    stored: Option<Arc<str>>,
}

/// Detects mass losses of endpoints.
#[derive(Debug, Default)]
pub(super) struct Guard {
    losses: Losses,
    /// Number of ready endpoints in the slices of the cluster.
    ready: usize,
    in_force: Option<InForce>,
    /// The stored loss that has ended on this controller.
    ended: Option<Arc<str>>,
    /// The begin of the last loss that ended before its name was known.
    ended_unnamed: Option<Moment>,
    /// The ProxyConfig that the names belong to.
    object: Option<Arc<str>>,
    holding: bool,
    now: Moment,
    /// Endpoints that vanish after this time belong to no loss.
    until: Option<Moment>,
    /// The last policy.
    policy: GuardPolicy,
}

impl Guard {
    /// Sets the time.
    pub(super) fn look_at_clock(&mut self, now: Moment) {
        self.now = now;
    }

    /// Applies a change of a slice of the cluster, before other state is updated. `stands` returns whether another
    /// slice contains an endpoint of a Service, `is_nodes` whether an address belongs to a Node, so that many pods
    /// share it.
    pub(super) fn follow(
        &mut self,
        changed: &Changed<EndpointSlice>,
        stands: impl Fn(&ServiceId, IpAddr) -> bool,
        is_nodes: impl Fn(IpAddr) -> bool,
    ) {
        let ready = |slice: &Option<Arc<EndpointSlice>>| {
            let endpoints = slice.iter().flat_map(|slice| &slice.endpoints);
            endpoints.filter(|endpoint| endpoint.ready).count()
        };
        self.ready = self.ready.saturating_sub(ready(&changed.before)) + ready(&changed.after);
        if let Some(after) = &changed.after
            && !self.losses.is_empty()
        {
            let own = |service: &ServiceId, address| is_nodes(address) || stands(service, address);
            self.seen_again(changed.before.as_deref(), after, &own);
        }
        if let Some(before) = &changed.before
            && self.until.is_none_or(|until| self.now <= until)
        {
            self.gone(before, changed.after.as_deref(), &stands);
        }
    }

    fn gone(
        &mut self,
        before: &Arc<EndpointSlice>,
        after: Option<&EndpointSlice>,
        stands: &impl Fn(&ServiceId, IpAddr) -> bool,
    ) {
        let Some(service) = before.service_id() else {
            return;
        };
        let after = after.filter(|after| after.service == before.service);
        let mut left: Vec<_> = after
            .iter()
            .flat_map(|slice| &slice.endpoints)
            .map(|e| e.address)
            .collect();
        left.sort_unstable();
        // A terminating endpoint was reported unready before.
        let counts = |endpoint: &&Endpoint| {
            endpoint.ready && !endpoint.terminating && endpoint.node.is_some()
        };
        for endpoint in before.endpoints.iter().filter(counts) {
            if left.binary_search(&endpoint.address).is_err() && !stands(&service, endpoint.address)
            {
                self.losses.lose(before, &service, endpoint, self.now);
            }
        }
    }

    /// Endpoints that return were not lost. If an address appears in a Service that did not have it, it belongs to
    /// another pod. `stands` returns the addresses for which that is not known.
    fn seen_again(
        &mut self,
        before: Option<&EndpointSlice>,
        after: &EndpointSlice,
        stands: &impl Fn(&ServiceId, IpAddr) -> bool,
    ) {
        let Some(service) = after.service_id() else {
            return;
        };
        for endpoint in &after.endpoints {
            let address = endpoint.address;
            if !self.losses.knows(address) {
                continue;
            }
            let had = |slice: &EndpointSlice| slice.endpoints.iter().any(|e| e.address == address);
            let own = self.losses.find_of(&service, address)
                || before.is_some_and(had)
                || stands(&service, address);
            self.losses.find(address, own.then_some(&service));
        }
    }

    /// Services or Nodes of lost endpoints may have changed: checks all of them.
    pub(super) fn look_at_all(&mut self) {
        self.losses.check_all();
    }

    /// Evaluates the losses, and returns the changes of held slices. Without a ProxyConfig a loss continues
    /// unchanged. `counts` returns whether the Service of an endpoint exists and its Node is Ready.
    pub(super) fn settle(
        &mut self,
        guarding: Option<&Guarding>,
        counts: impl Fn(&ServiceId, &Endpoint) -> bool,
    ) -> Vec<ObjectChange<EndpointSlice>> {
        self.losses.keep(counts);
        if let Some(guarding) = guarding {
            self.policy = guarding.policy;
        } else if self.in_force.is_none() {
            self.policy = GuardPolicy::default();
        }
        if self.in_force.is_none() {
            let begin = self.now.saturating_sub(self.policy.window);
            self.losses.forget_but(begin..=self.now);
        }
        let object = guarding.and_then(|guarding| guarding.object.clone());
        if std::mem::replace(&mut self.object, object) != self.object || guarding.is_none() {
            self.forget_names();
        }
        if let Some(guarding) = guarding {
            self.follow_stored(guarding);
        }
        self.judge();
        let policy = self.policy;
        let in_force = self.in_force.as_ref();
        let reported = in_force.filter(|_| policy.mode == GuardMode::Report);
        self.until = reported.map(|loss| loss.since.saturating_add(policy.window));
        let hold = in_force.is_some() && policy.mode == GuardMode::Hold;
        if std::mem::replace(&mut self.holding, hold) != hold {
            self.losses.rebuild();
        }
        self.losses.changes(hold)
    }

    /// The stored names were deleted with their ProxyConfig.
    fn forget_names(&mut self) {
        self.ended = None;
        if let Some(loss) = &mut self.in_force {
            loss.stored = None;
        }
    }

    /// Starts and ends losses together with other controllers.
    fn follow_stored(&mut self, guarding: &Guarding) {
        let Some(stored) = &guarding.stored else {
            // The controller that removed it saw its end.
            if self
                .in_force
                .as_ref()
                .is_some_and(|loss| loss.stored.is_some())
            {
                self.end();
            }
            self.ended = None;
            return;
        };
        self.name_ended(stored);
        // Endpoints that vanish before it is removed are another loss.
        if self.has_ended(&stored.id) {
            return;
        }
        if guarding.is_over(stored, self.now) {
            let is_it = |loss: &InForce| match &loss.stored {
                Some(id) => *id == stored.id,
                None => loss.since <= stored.since.saturating_add(self.policy.window),
            };
            if self.in_force.as_ref().is_some_and(is_it) {
                self.end();
            }
            self.ended = Some(stored.id.clone());
            return;
        }
        if self.in_force.is_none() && !self.losses.is_empty() {
            self.begin(stored.since);
        }
        if let Some(loss) = &mut self.in_force {
            loss.stored = Some(stored.id.clone());
            loss.since = stored.since;
        }
    }

    /// An ended loss without a name is the stored one if it started at about the same time, and closer to it than the
    /// one in force.
    fn name_ended(&mut self, stored: &StoredLoss) {
        let Some(since) = self.ended_unnamed else {
            return;
        };
        let away = since.abs_diff(stored.since);
        let in_force = self.in_force.as_ref();
        let is_nearer = in_force.is_none_or(|loss| away < loss.since.abs_diff(stored.since));
        if is_nearer && away <= self.policy.window {
            self.ended = Some(stored.id.clone());
            self.ended_unnamed = None;
        }
    }

    fn judge(&mut self) {
        let lost = self.losses.len();
        let Some(loss) = &mut self.in_force else {
            if self.is_loss(lost, self.ready + lost) {
                self.begin(self.now);
            }
            return;
        };
        loss.most = loss.most.max(lost);
        // The few remaining ones of many ended, but their end was not observable.
        let few = lost.saturating_mul(10) <= loss.most;
        let since = loss.since;
        let (stored, own) = (loss.stored.clone(), self.is_own());
        if few || self.now >= since.saturating_add(self.policy.release_after) {
            self.end();
        } else {
            return;
        }
        // A controller that saw only a part cannot decide that the whole loss is over.
        match stored {
            _ if !own => {}
            Some(id) => self.ended = Some(id),
            None => self.ended_unnamed = Some(since),
        }
    }

    fn is_loss(&self, lost: usize, of: usize) -> bool {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let percent = number(self.policy.max_loss_percent);
        of >= number(self.policy.min_endpoints)
            && lost.saturating_mul(100) > percent.saturating_mul(of)
    }

    /// Whether the endpoints lost on this controller alone are a loss.
    fn is_own(&self) -> bool {
        let loss = self.in_force.as_ref();
        loss.is_some_and(|loss| self.is_loss(loss.most, loss.of))
    }

    fn begin(&mut self, since: Moment) {
        self.losses.hold_time();
        self.in_force = Some(InForce {
            since,
            of: self.ready + self.losses.len(),
            most: self.losses.len(),
            stored: None,
        });
    }

    /// Accepts the loss.
    fn end(&mut self) {
        self.in_force = None;
        self.losses.forget();
    }

    /// Whether the stored loss with this name has ended on this controller.
    pub(super) fn has_ended(&self, id: &Arc<str>) -> bool {
        self.ended.as_ref() == Some(id)
    }

    /// The loss in force.
    pub(super) fn loss(&self) -> Option<Loss> {
        let loss = self.in_force.as_ref()?;
        let lost = self.losses.len();
        Some(Loss {
            since: loss.since,
            lost,
            of: loss.of.max(self.ready + lost),
            held: if self.holding { lost } else { 0 },
            own: self.is_own(),
        })
    }

    /// The held slices.
    pub(super) fn own_slices(&self) -> impl Iterator<Item = SliceId> {
        self.losses.own_slices()
    }
}
