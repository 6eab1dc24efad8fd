use std::fmt;

use portolan_plan::Family;

use crate::rules::ObservedRules;

/// Load the rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesOp {
    /// Which family.
    pub family: Family,
    /// Text for `iptables-restore --noflush`.
    pub text: String,
    /// What our chains hold afterwards.
    pub rules: Box<ObservedRules>,
}

impl fmt::Display for RulesOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load {} rules", self.family)
    }
}
