//! What a controller does about endpoints that vanish in mass, beside planning: it waits where it has not seen what was
//! before, and tells.

use portolan_planner::model::{
    ClusterModel, Guarding, Kind, Loss, Moment, Object, ObjectId, ProxyConfig,
};
use tracing::{error, info, warn};

use crate::watch::ObjectUpdate;

/// Losses, as one controller follows them.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// What the ProxyConfig says.
    guarding: Guarding,
    /// A loss is in force.
    loss: Option<Loss>,
    /// It was said that this controller waits.
    waits: bool,
}

impl Losses {
    /// Takes the guard's settings from an update of the ProxyConfig. Before the first plan the planner has no model
    /// with them.
    pub(super) fn observe(&mut self, kind: Kind, update: &ObjectUpdate) {
        let is_it = |id: &ObjectId| *id == ObjectId::ProxyConfig(ProxyConfig::DEFAULT.into());
        let of = |object: &Object| match object {
            Object::ProxyConfig(config) => config.guarding.clone(),
            _ => Guarding::default(),
        };
        match update {
            ObjectUpdate::All {
                objects,
                unreadable,
            } if kind == Kind::ProxyConfig => {
                match objects.iter().find(|object| is_it(&object.id())) {
                    Some(object) => self.guarding = of(object),
                    // Settings that cannot be read stay as they were.
                    None if unreadable.is_empty() => self.guarding = Guarding::default(),
                    None => {}
                }
            }
            ObjectUpdate::Present(object) if is_it(&object.id()) => self.guarding = of(object),
            ObjectUpdate::Deleted(id) if is_it(id) => self.guarding = Guarding::default(),
            _ => {}
        }
    }

    /// Whether plans may be made for the first time. What others hold this controller has not seen: its plans would
    /// take it from nodes.
    pub(super) fn may_begin(&mut self, now: Moment) -> bool {
        let waits = self.guarding.holds_at(now);
        if waits && !self.waits {
            let loss = self.guarding.stored.as_ref();
            let id = loss.map_or("", |loss| &loss.id);
            error!(
                id,
                "endpoints vanished in mass before this controller started, and the others hold them; no plan is \
                 published before that is over, nodes keep what they have; status.guard of the ProxyConfig says until \
                 when, and to let the endpoints go: kubectl annotate proxyconfig default --overwrite \
                 proxy.portolan.dev/approve={id}"
            );
        }
        self.waits = waits;
        !waits
    }

    /// Whether it said that they may not.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether something ends by itself.
    pub(super) fn needs_clock(&self) -> bool {
        self.loss.is_some() || self.guarding.stored.is_some()
    }

    /// Says what changed.
    pub(super) fn tell(&mut self, model: &ClusterModel) {
        let (before, now) = (self.loss.take(), model.loss());
        self.loss = now;
        match (before, now) {
            (None, Some(loss)) => warn!(
                lost = loss.lost,
                of = loss.of,
                held = loss.held,
                "ready endpoints vanished in mass while their nodes are ready; status.guard of the ProxyConfig says more"
            ),
            (Some(loss), None) if loss.held > 0 => {
                info!(
                    held = loss.held,
                    "what vanished in mass is not held any more"
                );
            }
            _ => {}
        }
    }
}
