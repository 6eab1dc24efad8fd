//! What people should hear about their objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limit;

/// Something that was ignored or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The object, like `Service shop/cart`.
    #[schemars(length(max = 600))]
    pub object: String,
    /// Why, as one word for programs.
    #[schemars(length(max = limit::LABEL))]
    pub reason: String,
    /// Why, as a sentence for people: the field, and what to write instead.
    #[schemars(length(max = limit::SENTENCE))]
    pub message: String,
}
