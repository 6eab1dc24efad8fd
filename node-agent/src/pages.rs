//! Routes requests to the pages of the agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use portolan_plan::Dataplane;
use tokio::sync::watch;

use crate::drains::{Drain, ListedDrain};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::page::{Answer, Page, Place};

/// All pages of the agent.
#[derive(Debug)]
pub struct Pages {
    pub(crate) health: Arc<Health>,
    metrics: Metrics,
    drains: watch::Receiver<Vec<Drain>>,
}

impl Pages {
    /// Pages of this node.
    pub fn new(health: Arc<Health>, metrics: Metrics, drains: watch::Receiver<Vec<Drain>>) -> Self {
        Self {
            health,
            metrics,
            drains,
        }
    }

    /// The wanted listen addresses.
    pub(crate) fn places(&self) -> BTreeSet<Place> {
        self.health.places()
    }

    /// As kube-proxy names its modes (S-207). Before the first plan it is the default.
    fn mode(&self) -> &'static str {
        let settings = self.health.settings().unwrap_or_default();
        match settings.dataplane {
            Dataplane::Ipvs => "ipvs",
            Dataplane::Nftables => "nftables",
        }
    }

    fn drains(&self) -> Vec<ListedDrain> {
        let now = Instant::now();
        let drains = self.drains.borrow();
        drains
            .iter()
            .map(|drain| ListedDrain::of(drain, now))
            .collect()
    }

    /// Responds from memory, without I/O or waiting.
    pub(crate) fn answer(&self, page: Page, path: &str, accept: Option<&str>) -> Answer {
        match (page, path) {
            // Load balancers may use any path (S-139).
            (Page::Check(port, family), _) => self.health.check(port, family),
            (Page::Node, "/healthz") => self.health.healthz(),
            (Page::Node, "/livez") => self.health.livez(),
            (Page::Metrics, "/metrics") => self.metrics.answer(accept),
            (Page::Metrics, "/proxyMode") => Answer::text(200, self.mode()),
            (Page::Metrics, "/healthz") => Answer::text(200, "ok"),
            (Page::Metrics, "/drains") => Answer::json(200, &self.drains()),
            (Page::Metrics, "/configz") => Answer::json(200, &self.health.settings()),
            (Page::Node | Page::Metrics, _) => Answer::not_found(),
        }
    }
}
