//! Labels of metrics.

use portolan_plan::Family;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// Label for the address family, spelled as by kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FamilyLabel {
    pub(crate) ip_family: FamilyName,
}

impl From<Family> for FamilyLabel {
    fn from(family: Family) -> Self {
        let ip_family = FamilyName(family);
        Self { ip_family }
    }
}

/// The name of an address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FamilyName(pub(crate) Family);

impl EncodeLabelValue for FamilyName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.as_str().encode(encoder)
    }
}
