//! Where a running controller's objects come from.

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;

use crate::trust::{ApiReviewer, Reviewer};

/// Where objects come from, open.
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

    /// Who knows users.
    pub(super) fn reviewer(&self) -> Option<Arc<dyn Reviewer>> {
        let client = self.client()?;
        Some(Arc::new(ApiReviewer::new(client)))
    }
}
