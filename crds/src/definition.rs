//! The CustomResourceDefinitions as the chart installs them, in YAML. Pure.
//!
//! They are the derived ones with changes that the derive does not support: `null` is not accepted, so that rules
//! need not distinguish it from an omitted field, and number formats are those that the API server knows.

use kube::CustomResourceExt as _;
use serde_json::Value;
use thiserror::Error;

use crate::{ProxyConfig, ProxyPlan, ProxyPlanSlice};

/// A CustomResourceDefinition and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its file name in the chart.
    pub file: &'static str,
    /// The CustomResourceDefinition.
    pub object: Value,
}

/// A definition cannot be serialized.
#[derive(Debug, Error)]
#[error("write the definition {file}: {reason}")]
pub struct DefinitionError {
    file: &'static str,
    reason: String,
}

/// The definitions of all three kinds.
///
/// # Errors
/// [`DefinitionError`] if a derived definition cannot be serialized as JSON.
pub fn definitions() -> Result<[Definition; 3], DefinitionError> {
    Ok([
        definition("proxyplans.yaml", ProxyPlan::crd())?,
        definition("proxyplanslices.yaml", ProxyPlanSlice::crd())?,
        definition("proxyconfigs.yaml", ProxyConfig::crd())?,
    ])
}

fn definition(
    file: &'static str,
    crd: impl serde::Serialize,
) -> Result<Definition, DefinitionError> {
    let object = serde_json::to_value(crd);
    let mut object = object.map_err(|error| DefinitionError {
        file,
        reason: error.to_string(),
    })?;
    for version in object
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            tighten(schema);
        }
    }
    Ok(Definition { file, object })
}

/// Changes a schema and all nested ones so that the API server accepts them without warnings.
fn tighten(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    fields.remove("nullable");
    if let Some(Value::String(text)) = fields.get_mut("description") {
        // Line breaks of the source have no meaning for readers; paragraphs do.
        let paragraphs = text.split("\n\n").map(|text| text.replace('\n', " "));
        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
    if let Some(format) = fields.get_mut("format") {
        let known = match format.as_str() {
            Some("uint8" | "uint16" | "int8" | "int16") => Some("int32"),
            Some("uint32" | "uint64" | "uint") => Some("int64"),
            _ => None,
        };
        if let Some(known) = known {
            *format = known.into();
        }
    }
    for bound in ["minimum", "maximum"] {
        // Whole numbers without ".0".
        if let Some(number) = fields.get_mut(bound)
            && let Some(whole) = number.as_f64().and_then(whole)
        {
            *number = whole.into();
        }
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(tighten);
    }
    if let Some(items) = fields.get_mut("items") {
        tighten(items);
    }
}

fn whole(number: f64) -> Option<i64> {
    format!("{number}").parse().ok()
}

impl Definition {
    /// The content of its file: YAML, with a header that names the source.
    ///
    /// # Errors
    /// [`DefinitionError`] if a value has no representation in YAML.
    pub fn yaml(&self) -> Result<String, DefinitionError> {
        let text = serde_saphyr::to_string(&self.object).map_err(|error| DefinitionError {
            file: self.file,
            reason: error.to_string(),
        })?;
        Ok(format!(
            "# Made from the types in crds/src by `cargo run -p portolan-crds --bin crdgen`; do not edit.\n{text}"
        ))
    }
}
