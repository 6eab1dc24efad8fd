//! The source of a running controller's objects.

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;

use crate::auth::{ApiReviewer, Reviewer};

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

    /// The reviewer of users' tokens; `None` without an API server.
    pub(super) fn reviewer(&self) -> Option<Arc<dyn Reviewer>> {
        let client = self.client()?;
        Some(Arc::new(ApiReviewer::new(client)))
    }
}
