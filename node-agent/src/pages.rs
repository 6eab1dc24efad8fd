//! Who answers what: the pages that sockets lead to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use crate::drains::{Drain, ToldDrain};
use crate::health::Health;
use crate::http::{Answer, Page, Place};
use crate::metrics::Metrics;

/// All pages of the program.
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

    /// Where they are to be.
    pub(crate) fn places(&self) -> BTreeSet<Place> {
        self.health.places()
    }

    fn drains(&self) -> Vec<ToldDrain> {
        let now = Instant::now();
        let drains = self.drains.borrow();
        drains
            .iter()
            .map(|drain| ToldDrain::of(drain, now))
            .collect()
    }

    /// Answers at once: nobody is asked, nothing is waited for.
    pub(crate) fn answer(&self, page: Page, path: &str, accept: Option<&str>) -> Answer {
        match (page, path) {
            // Balancers ask on any path (S-139).
            (Page::Check(port, family), _) => self.health.check(port, family),
            (Page::Node, "/healthz") => self.health.healthz(),
            (Page::Node, "/livez") => self.health.livez(),
            (Page::Metrics, "/metrics") => self.metrics.answer(accept),
            (Page::Metrics, "/proxyMode") => Answer::text(200, "ipvs"),
            (Page::Metrics, "/healthz") => Answer::text(200, "ok"),
            (Page::Metrics, "/drains") => Answer::json(200, &self.drains()),
            (Page::Metrics, "/configz") => Answer::json(200, &self.health.settings()),
            (Page::Node | Page::Metrics, _) => Answer::not_found(),
        }
    }
}
