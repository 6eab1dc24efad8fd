use std::fmt;

use portolan_plan::Family;

use crate::rules::ObservedRules;

/// Load the rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesOp {
    /// The family.
    pub family: Family,
    /// Text for `iptables-restore --noflush`.
    pub text: String,
    /// The resulting contents of Portolan's chains.
    pub rules: Box<ObservedRules>,
}

impl fmt::Display for RulesOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load {} rules", self.family)
    }
}
