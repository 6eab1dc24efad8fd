//! The results of a conversion, by field.

use serde::Serialize;

/// The result for a field. Results that need attention come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Portolan does something else with it, or instead of it.
    ChangesMeaning,
    /// Portolan has no equivalent.
    NoEqual,
    /// Not a known field of KubeProxyConfiguration.
    Unknown,
    /// It is in the ProxyConfig.
    CarriedOver,
    /// It was not set: the ProxyConfig contains kube-proxy's default, since Portolan's differs.
    FilledIn,
    /// Portolan's default is the same, so the ProxyConfig does not contain it.
    Same,
    /// Nothing changes without it: kube-proxy does not read it either, or it concerns something that Portolan does
    /// not do.
    NotNeeded,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ChangesMeaning,
        Self::NoEqual,
        Self::Unknown,
        Self::CarriedOver,
        Self::FilledIn,
        Self::Same,
        Self::NotNeeded,
    ];

    /// Whether nodes behave as before.
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::ChangesMeaning | Self::NoEqual | Self::Unknown)
    }
}

/// The result for a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its path in the KubeProxyConfiguration, like `ipvs.scheduler`.
    pub field: String,
    /// Its value as shown; `None` if it is not set.
    pub value: Option<String>,
    /// The result.
    pub outcome: Outcome,
    /// The corresponding part of the ProxyConfig, like `spec.settings.scheduler: lc`.
    pub becomes: Option<String>,
    /// The reason, and what to do about it. May be empty.
    pub note: String,
}
