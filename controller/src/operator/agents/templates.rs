//! The templates of agents that revisions of the rollout refer to, in a ConfigMap of the controllers' namespace.
//!
//! The status of the ProxyConfig has only the hash of a template. So a client that may write this status can choose
//! among templates that the namespace has recorded, but cannot determine what runs privileged on every node. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::daemon_set::Owner;
use super::template::Template;
use crate::auth::Named;
use crate::from_kube::{self, AgentsRecord, Sha256};

/// A template in the form in which it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    record: AgentsRecord,
    text: String,
}

impl Recorded {
    /// The form of a template.
    #[must_use]
    pub fn of(template: &Template) -> Self {
        let value = template.value();
        let text = value.to_string();
        let image = value["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
        let record = AgentsRecord {
            sha256: Sha256::of(&text),
            image: image.map(str::to_owned),
        };
        Self { record, text }
    }

    /// What a revision stores of it.
    #[must_use]
    pub fn record(&self) -> &AgentsRecord {
        &self.record
    }
}

/// All recorded templates. Each has the hash that it is recorded under.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    texts: BTreeMap<Sha256, String>,
    /// The version of the ConfigMap; `None` if it does not exist.
    version: Option<String>,
}

impl Templates {
    /// Those in a ConfigMap. An entry under another hash than that of its text is ignored.
    #[must_use]
    pub(super) fn read(map: &ConfigMap) -> Self {
        let genuine = map.data.iter().flatten().filter_map(|(key, text)| {
            let sha256 = Sha256::of(text);
            (sha256.as_str() == key).then(|| (sha256, text.clone()))
        });
        Self {
            texts: genuine.collect(),
            version: map.metadata.resource_version.clone(),
        }
    }

    /// The template of a revision; `None` if it is not recorded.
    #[must_use]
    pub(crate) fn get(&self, record: &AgentsRecord) -> Option<Template> {
        let text = self.texts.get(&record.sha256)?;
        Template::of(serde_json::from_str(text).ok()?).ok()
    }

    /// The templates with a new one; `None` if it is recorded already. Of the others, those stay that revisions with
    /// these contents refer to.
    #[must_use]
    pub(super) fn with<'c>(
        &self,
        new: &Recorded,
        contents: impl Iterator<Item = &'c str>,
    ) -> Option<Self> {
        if self.texts.contains_key(&new.record.sha256) {
            return None;
        }
        let records = contents.filter_map(from_kube::agents_in);
        let kept = records.filter_map(|record| self.texts.get_key_value(&record.sha256));
        let mut texts: BTreeMap<_, _> = kept
            .map(|(sha256, text)| (sha256.clone(), text.clone()))
            .collect();
        texts.insert(new.record.sha256.clone(), new.text.clone());
        let version = self.version.clone();
        Some(Self { texts, version })
    }

    /// The ConfigMap, which is garbage collected with that of the chart's template. The API server rejects it if
    /// another version of it exists, so a former leader cannot remove a template.
    #[must_use]
    pub(super) fn object(&self, owner: &Owner) -> Value {
        let mut metadata = json!({
            "name": map_of(&owner.map).name,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner.map.name, "uid": owner.uid,
            }],
        });
        if let Some(version) = &self.version {
            metadata["resourceVersion"] = version.as_str().into();
        }
        let texts = self.texts.iter();
        let data = texts.map(|(sha256, text)| (sha256.to_string(), Value::from(text.as_str())));
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": Value::Object(data.collect()),
        })
    }
}

/// The ConfigMap of recorded templates, by that of the chart's template.
#[must_use]
pub(super) fn map_of(template: &Named) -> Named {
    Named {
        namespace: template.namespace.clone(),
        name: format!("{}-history", template.name),
    }
}

#[cfg(test)]
#[path = "templates_tests.rs"]
mod tests;
