//! Warnings about objects of users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limit;

/// An ignored or suspicious field of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The object, such as `Service shop/cart`.
    #[schemars(length(max = 600))]
    pub object: String,
    /// The reason as one word, for programs.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub reason: String,
    /// The reason as a sentence: the field, and what to write instead.
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub message: String,
}
