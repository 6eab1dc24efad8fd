//! The source of a running controller's objects.

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use portolan_planner::model::Kind;
use tokio::time::Instant;

use crate::auth::{ApiReviewer, Reviewer};
use crate::freshness::Freshness;

/// The opened source of objects.
pub(super) enum Feed {
    Manifests(PathBuf),
    Cluster(Client),
}

impl Feed {
    pub(super) fn client(&self) -> Option<Client> {
        match self {
            Self::Manifests(_) => None,
            Self::Cluster(client) => Some(client.clone()),
        }
    }

    /// The age of its objects. Files have none: reading them is a part of planning.
    pub(super) fn freshness(&self) -> Freshness {
        match self {
            Self::Manifests(_) => Freshness::default(),
            Self::Cluster(_) => Freshness::watching(Kind::ALL, Instant::now()),
        }
    }

    /// The reviewer of users' tokens; `None` without an API server.
    pub(super) fn reviewer(&self) -> Option<Arc<dyn Reviewer>> {
        let client = self.client()?;
        Some(Arc::new(ApiReviewer::new(client)))
    }
}
