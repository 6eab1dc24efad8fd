//! The template of the agents' DaemonSets, from the chart. Pure.

use portolan_planner::model::Node;
use serde_json::{Map, Value};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// The key in its ConfigMap.
pub const KEY: &str = "daemonset.yaml";
/// Maximum size of a template as JSON. The history has that of each of the last ten revisions, and a ConfigMap has at
/// most 1 MiB.
const MAX_TEMPLATE_BYTES: usize = 64 * 1024;

/// A DaemonSet with all fields that are needed to derive others from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub(super) name: String,
    pub(super) object: Map<String, Value>,
}

/// Why a text is not a valid template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The ConfigMap has no such key.
    #[error("it has no {KEY}")]
    Absent,
    /// The text cannot be parsed.
    #[error("{KEY}: {0}")]
    Unreadable(String),
    /// A field is missing or has the wrong type.
    #[error("{KEY}: {field} should be {wanted}")]
    Field {
        /// The path of the field.
        field: &'static str,
        /// What is expected.
        wanted: &'static str,
    },
    /// The history of revisions has no space for it.
    #[error("{KEY} has {bytes} bytes as JSON, but may have {MAX_TEMPLATE_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl Template {
    /// Reads it.
    ///
    /// # Errors
    /// [`TemplateError`] names the field. What the API server checks itself is left to it.
    pub fn read(text: &str) -> Result<Self, TemplateError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            // The parser's error quotes the surrounding text; the first line is enough for a log.
            let text = error.to_string();
            TemplateError::Unreadable(text.lines().next().unwrap_or_default().to_owned())
        };
        Self::of(serde_saphyr::from_str(text).map_err(|error| unreadable(&error))?)
    }

    /// The same of what was read already.
    ///
    /// # Errors
    /// [`TemplateError`] names the field.
    pub fn of(value: Value) -> Result<Self, TemplateError> {
        let wrong = |field, wanted| TemplateError::Field { field, wanted };
        if (&value["apiVersion"], &value["kind"]) != (&"apps/v1".into(), &"DaemonSet".into()) {
            return Err(wrong("kind", "DaemonSet of apps/v1"));
        }
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(wrong("metadata.name", "a name"));
        }
        let labels = &value["spec"]["template"]["metadata"]["labels"];
        let selector = value["spec"]["selector"]["matchLabels"].as_object();
        let selector = selector.filter(|labels| !labels.is_empty());
        let selector = selector.ok_or_else(|| wrong("spec.selector.matchLabels", "labels"))?;
        if selector.iter().any(|(key, value)| labels[key] != *value) {
            return Err(wrong(
                "spec.template.metadata.labels",
                "labels that the selector matches",
            ));
        }
        let containers = value["spec"]["template"]["spec"]["containers"].as_array();
        if containers.is_none_or(Vec::is_empty) {
            return Err(wrong("spec.template.spec.containers", "a list"));
        }
        let bytes = value.to_string().len();
        if bytes > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLarge { bytes });
        }
        let name = name.to_owned();
        match value {
            Value::Object(object) => Ok(Self { name, object }),
            _ => Err(wrong("kind", "DaemonSet of apps/v1")),
        }
    }

    /// The normalised object.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::Object(self.object.clone())
    }

    /// The hash of the pod template: 16 hexadecimal digits. Other fields are changed in place.
    #[must_use]
    pub fn hash(&self) -> String {
        let pod = self.object["spec"]["template"].to_string();
        format!("{:016x}", xxh3_64(pod.as_bytes()))
    }

    /// The immutable field in which the templates differ, if any: DaemonSets keep their names and selectors.
    pub(super) fn differs(&self, other: &Self) -> Option<&'static str> {
        if self.name != other.name {
            return Some("metadata.name");
        }
        let same = self.object["spec"]["selector"] == other.object["spec"]["selector"];
        (!same).then_some("spec.selector")
    }

    /// Whether its nodeSelector matches a node. Taints may still keep its pods away.
    #[must_use]
    pub fn selects(&self, node: &Node) -> bool {
        let selector = self.object["spec"]["template"]["spec"]["nodeSelector"].as_object();
        let mut labels = selector.into_iter().flatten();
        labels.all(|(name, value)| node.labels.get(&**name).map(|own| &**own) == value.as_str())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const TEXT: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: portolan-agent, labels: {app: agent}}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: 'r/portolan-agent:1'}]
";

    #[test]
    fn missing_fields_are_named() {
        let template = Template::read(TEXT).unwrap();
        assert_eq!(template.name, "portolan-agent");
        let changed = |from: &str, to: &str| Template::read(&TEXT.replace(from, to)).unwrap();
        let image = changed("agent:1", "agent:2");
        assert_ne!(image.hash(), template.hash());
        assert_eq!(image.differs(&template), None);
        let renamed = changed("name: portolan-agent,", "name: other,");
        assert_eq!(renamed.hash(), template.hash(), "pods are the same");
        assert_eq!(renamed.differs(&template), Some("metadata.name"));
        let selects = changed("app: agent}", "app: agents}");
        assert_eq!(selects.differs(&template), Some("spec.selector"));
        for (from, to, field) in [
            ("apps/v1", "apps/v2", "kind should be DaemonSet of apps/v1"),
            ("DaemonSet", "Deployment", "kind should be"),
            ("name: portolan-agent", "nme: a", "metadata.name should be"),
            (
                "matchLabels: {app: agent}",
                "matchLabels: {}",
                "matchLabels should be",
            ),
            (
                "matchLabels: {app: agent}",
                "matchLabels: {app: other}",
                "labels that the selector matches",
            ),
            (
                "containers: [{",
                "containers: []\n      initContainers: [{",
                "containers should be",
            ),
            ("{name: agent", "{name: [agent", "daemonset.yaml: "),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Template::read(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(field), "{from}: {error}");
        }
        for text in ["", "[]", "a", "apiVersion: apps/v1\nkind: DaemonSet"] {
            assert!(Template::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_template_that_fits_into_no_history_is_rejected() {
        let with = |bytes: usize| {
            let image = format!("r/portolan-agent:{}", "1".repeat(bytes));
            Template::read(&TEXT.replace("r/portolan-agent:1", &image))
        };
        assert!(with(60_000).is_ok());
        let error = with(70_000).unwrap_err().to_string();
        assert!(
            error.contains("bytes as JSON, but may have 65536"),
            "{error}"
        );
    }
}
