//! Converts plain values to Kubernetes types, with the path of each field that does not fit.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;

/// An object, and the fields unknown to its type.
pub(super) struct Typed<T> {
    pub(super) object: T,
    pub(super) unknown: Vec<String>,
}

/// Reads an object.
///
/// # Errors
/// Path and problem of the first field whose value has the wrong type.
pub(super) fn typed<T: DeserializeOwned>(value: Value) -> Result<Typed<T>, String> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    match serde_ignored::deserialize(tracked, |path| unknown.push(written(&path))) {
        Ok(object) => Ok(Typed { object, unknown }),
        Err(error) => Err(format!(
            "{}: {error}; write a value of that type",
            track.path()
        )),
    }
}

/// A path in the usual notation: `spec.ports[0].port`.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => match written(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => written(parent),
    }
}
