//! ProxyConfig: what the operator asks for.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SettingsSpec;

/// Configures Portolan. The object named `default` is in force.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "proxy.portolan.dev",
    version = "v1alpha1",
    kind = "ProxyConfig",
    plural = "proxyconfigs",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfigSpec {
    /// What nodes do. A field that is left out keeps its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsSpec>,
}
