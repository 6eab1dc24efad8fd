//! What became of the fields.

use serde::Serialize;

/// What became of a field. The ones that need a look come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Portolan does something else with it, or in its place.
    ChangesMeaning,
    /// Portolan cannot do that.
    NoEqual,
    /// No field of KubeProxyConfiguration that is known here.
    Unknown,
    /// It is in the ProxyConfig.
    CarriedOver,
    /// It was not set: the ProxyConfig has kube-proxy's default, because Portolan's is another one.
    FilledIn,
    /// Portolan's default is the same, so the ProxyConfig does not have it.
    Same,
    /// Without it nothing is other than before: kube-proxy does not read it either, or it is about what nodes
    /// of Portolan do not do.
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

    /// Whether nodes do what they did before.
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::ChangesMeaning | Self::NoEqual | Self::Unknown)
    }
}

/// What became of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its path in the KubeProxyConfiguration, like `ipvs.scheduler`.
    pub field: String,
    /// Its value as people read it; nothing when it is not there.
    pub value: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// What the ProxyConfig has for it, like `spec.settings.scheduler: lc`.
    pub becomes: Option<String>,
    /// Why, and what to do about it. Empty where there is nothing to say.
    pub note: String,
}
