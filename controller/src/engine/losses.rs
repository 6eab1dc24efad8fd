//! Handling of mass losses of endpoints outside planning: a controller that did not see the state before the loss
//! waits, and losses are logged.

use portolan_planner::model::{
    ClusterModel, Guarding, Kind, Loss, Moment, Object, ObjectId, ProxyConfig,
};
use tracing::{error, info, warn};

use crate::watch::ObjectUpdate;

/// Losses as this controller observes them.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The guard settings of the ProxyConfig.
    guarding: Guarding,
    /// The current loss.
    loss: Option<Loss>,
    /// Whether it was logged that this controller waits.
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

    /// Whether the first plan may be made. This controller has not seen the endpoints that others hold, so its plans
    /// would remove them from nodes.
    pub(super) fn may_begin(&mut self, now: Moment) -> bool {
        let waits = self.guarding.holds_at(now);
        if waits && !self.waits {
            let loss = self.guarding.stored.as_ref();
            let id = loss.map_or("", |loss| &loss.id);
            error!(
                id,
                "a mass loss of endpoints began before this controller started, and other controllers hold \
                 the endpoints; no plan is published until it is over, nodes keep their last plans; \
                 status.guard of the ProxyConfig has the release time; to release the endpoints: kubectl \
                 annotate proxyconfig default --overwrite \
                 proxy.portolan.dev/approve={id}"
            );
        }
        self.waits = waits;
        !waits
    }

    /// Whether the first plan waits for the end of a loss.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether a loss may end by time alone.
    pub(super) fn needs_clock(&self) -> bool {
        self.loss.is_some() || self.guarding.stored.is_some()
    }

    /// Logs the start and the end of a loss.
    pub(super) fn log(&mut self, model: &ClusterModel) {
        let (before, now) = (self.loss.take(), model.loss());
        self.loss = now;
        match (before, now) {
            (None, Some(loss)) => warn!(
                lost = loss.lost,
                of = loss.of,
                held = loss.held,
                "mass loss of ready endpoints while their nodes are ready; see status.guard of the ProxyConfig"
            ),
            (Some(loss), None) if loss.held > 0 => {
                info!(
                    held = loss.held,
                    "the endpoints of the mass loss are not held any more"
                );
            }
            _ => {}
        }
    }
}
