//! Manifests and tables: built into the program, so that it runs anywhere by itself, or read from
//! a folder laid out like `e2e/`.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Where manifests and tables come from.
#[derive(Debug)]
pub struct Files {
    folder: Option<PathBuf>,
}

macro_rules! built_in {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../", $path)))),*]
    };
}

/// Path and text of every file that scenarios use.
const BUILT_IN: &[(&str, &str)] = built_in![
    "demo/nodes.yaml",
    "demo/services.yaml",
    "demo/endpoints-web.yaml",
    "demo/endpoints-dns.yaml",
    "demo/endpoints-cart.yaml",
    "demo/changes/1-pod-a2-leaves.yaml",
    "demo/changes/2-pod-b3-joins.yaml",
    "demo/cluster/web.yaml",
    "demo/cluster/cart.yaml",
    "api/refused.yaml",
    "api/printed/get-pp.txt",
    "api/printed/get-proxyconfigs.txt",
    "api/printed/node-1.yaml",
    "api/printed/default.yaml",
    "api/printed/explain-spec.txt",
    "api/printed/explain-status.txt",
    "api/printed/explain-settings.txt",
    "cluster/nodes.yaml",
    "cluster/services.yaml",
    "cluster/endpointslices.yaml",
    "coexistence/objects.yaml",
    "draining/services.yaml",
    "health/services.yaml",
    "external/services.yaml",
    "external/endpointslices.yaml",
    "addresses/services.yaml",
    "addresses/endpointslices.yaml",
    "schedulers/services.yaml",
    "schedulers/endpointslices.yaml",
    "udp/services.yaml",
    "rollout/services.yaml",
    "external/nodes-ipv4-pods.yaml",
    "tables/broken.yaml",
    "tables/external.yaml",
    "tables/matrix.yaml",
    "tables/modes.yaml",
    "tables/packet-path.yaml",
    "tables/refusals.yaml",
    "tables/settings.yaml",
];

/// The manifests of the lab's cluster.
pub const CLUSTER: [&str; 3] = [
    "cluster/nodes.yaml",
    "cluster/services.yaml",
    "cluster/endpointslices.yaml",
];
/// Services with frontends beside their cluster IPs, on the same nodes.
pub const EXTERNAL: [&str; 2] = ["external/services.yaml", "external/endpointslices.yaml"];
/// Settings and Services beside them, for nodes with much else on them.
pub const COEXISTENCE: &str = "coexistence/objects.yaml";
/// Services whose addresses come and go, on the same nodes.
pub const ADDRESSES: [&str; 2] = ["addresses/services.yaml", "addresses/endpointslices.yaml"];
/// Services whose scheduler and affinity change, on the same nodes.
pub const SCHEDULERS: [&str; 2] = ["schedulers/services.yaml", "schedulers/endpointslices.yaml"];
/// A Service whose endpoints come and go, on the same nodes.
pub const DRAINING: &str = "draining/services.yaml";
/// A Service with a health check port, on the same nodes.
pub const HEALTH: &str = "health/services.yaml";
/// Services whose endpoints are replaced under load, on the same nodes.
pub const ROLLOUT: &str = "rollout/services.yaml";
/// Services whose UDP endpoints change, on the same nodes.
pub const UDP: &str = "udp/services.yaml";
/// Results of clients at those frontends, for every combination.
pub const MATRIX: &str = "tables/matrix.yaml";
/// Differences with other settings.
pub const MODES: &str = "tables/modes.yaml";
/// Mutations of kernel state, and the cell that detects each.
pub const BROKEN: &str = "tables/broken.yaml";
/// Results of clients beside the matrix.
pub const EXTERNAL_PATH: &str = "tables/external.yaml";
/// Results of clients in that cluster.
pub const PACKET_PATH: &str = "tables/packet-path.yaml";
/// Messages of programs on a node that does not meet their requirements.
pub const REFUSALS: &str = "tables/refusals.yaml";

/// Every setting, changed while an agent runs.
pub const SETTINGS: &str = "tables/settings.yaml";

impl Files {
    /// Something beside that folder, like `charts/portolan`: programs other than ours read it.
    ///
    /// # Errors
    /// When files are those built in.
    pub fn beside(&self, path: &str) -> Result<PathBuf> {
        let folder = self.folder.as_ref().and_then(|folder| folder.parent());
        let folder = folder.with_context(|| format!("{path} is not built in: give --files e2e"))?;
        Ok(folder.join(path))
    }

    /// From a folder, or built in.
    #[must_use]
    pub fn at(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// The text of one file.
    ///
    /// # Errors
    /// When the folder does not have it, or the program was built without it.
    pub fn text(&self, path: &str) -> Result<String> {
        if let Some(folder) = &self.folder {
            let path = folder.join(path);
            return std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()));
        }
        let found = BUILT_IN.iter().find(|file| file.0 == path);
        found
            .map(|file| file.1.to_owned())
            .with_context(|| format!("{path} is not built in"))
    }
}
