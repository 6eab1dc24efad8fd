//! The DaemonSet as the chart wants it. Pure.

use portolan_planner::model::Node;
use serde_json::{Map, Value};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Where it is in its ConfigMap.
pub const KEY: &str = "daemonset.yaml";

/// A DaemonSet that has all that is needed to make others of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub(super) name: String,
    pub(super) object: Map<String, Value>,
}

/// A text is no such DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The ConfigMap lacks it.
    #[error("it has no {KEY}")]
    Absent,
    /// It cannot be read.
    #[error("{KEY}: {0}")]
    Unreadable(String),
    /// Something in it is missing or of another type.
    #[error("{KEY}: {field} should be {wanted}")]
    Field {
        /// Where.
        field: &'static str,
        /// What belongs there.
        wanted: &'static str,
    },
}

impl Template {
    /// Reads it.
    ///
    /// # Errors
    /// [`TemplateError`] names the field. What the API server checks itself is left to it.
    pub fn read(text: &str) -> Result<Self, TemplateError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            // Whoever parses quotes the text around; one line is enough for a log.
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
        let name = name.to_owned();
        match value {
            Value::Object(object) => Ok(Self { name, object }),
            _ => Err(wrong("kind", "DaemonSet of apps/v1")),
        }
    }

    /// What it was read from, in one spelling.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::Object(self.object.clone())
    }

    /// Names what its pods are: 16 hexadecimal digits. What else it says is changed in place.
    #[must_use]
    pub fn hash(&self) -> String {
        let pod = self.object["spec"]["template"].to_string();
        format!("{:016x}", xxh3_64(pod.as_bytes()))
    }

    /// Why pods cannot be brought from one to the other: DaemonSets keep their names and selectors.
    pub(super) fn differs(&self, other: &Self) -> Option<&'static str> {
        if self.name != other.name {
            return Some("metadata.name");
        }
        let same = self.object["spec"]["selector"] == other.object["spec"]["selector"];
        (!same).then_some("spec.selector")
    }

    /// Whether its nodeSelector is for a node. Taints may keep its pods away all the same.
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
    fn what_is_missing_is_named() {
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
}
