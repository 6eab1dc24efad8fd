//! Warnings about objects, for their owners.

use std::fmt;
use std::sync::Arc;

use portolan_plan::WarningDocument;

use crate::model::Reason;

/// An ignored or suspicious field of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The object, such as `Service shop/cart`.
    pub object: Arc<str>,
    /// The reason.
    pub reason: Reason,
}

impl Warning {
    /// A warning about an object of this kind and name.
    pub(crate) fn new(kind: &str, name: &impl fmt::Display, reason: Reason) -> Self {
        Self {
            object: format!("{kind} {name}").into(),
            reason,
        }
    }

    /// The form of a plan document.
    pub fn document(&self) -> WarningDocument {
        WarningDocument {
            object: self.object.to_string(),
            reason: self.reason.code().to_owned(),
            message: self.reason.to_string(),
        }
    }
}
