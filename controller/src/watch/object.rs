//! The text of one object to our own nouns.
//!
//! Lists and events are taken apart without looking into their objects, so one of them can be
//! broken without the others.

use kube::core::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::mark::Identity;
use super::{Kind, Seen};
use crate::from_kube::{self, FieldError};
use crate::object::{Found, ObjectId};

/// An object as the server wrote it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Text(Box<RawValue>);

impl Text {
    /// Reads something of it.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.0.get())
    }
}

/// What can be read of any object.
#[derive(Debug, Deserialize)]
struct Named {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

/// An object, or its name and what is wrong with it.
pub(super) type Read = Result<Found, (ObjectId, String)>;

/// Name, UID and version of an object. They can be read of everything that a server stores.
pub(super) fn identity(kind: Kind, text: &Text) -> Option<Identity> {
    let named: Named = serde_json::from_str(text.0.get()).ok()?;
    let Metadata {
        namespace,
        name,
        uid,
        resource_version,
    } = named.metadata;
    (!name.is_empty()).then(|| Identity {
        id: kind.id(&namespace, &name),
        uid,
        version: resource_version,
    })
}

/// Reads an object; `None` when not even its name can be read.
pub(super) fn read(kind: Kind, text: &Text) -> Option<Read> {
    let found = match kind {
        Kind::Node => typed(text, from_kube::node).map(Found::Node),
        Kind::Service => typed(text, from_kube::service).map(Found::Service),
        Kind::EndpointSlice => typed(text, from_kube::endpoint_slice).map(Found::EndpointSlice),
        Kind::ServiceCidr => typed(text, from_kube::service_cidr).map(Found::ServiceCidr),
        Kind::ProxyConfig => typed(text, from_kube::proxy_config).map(Found::ProxyConfig),
    };
    match found {
        Ok(found) => Some(Ok(found)),
        Err(problem) => identity(kind, text).map(|object| Err((object.id, problem))),
    }
}

fn typed<K: Resource + DeserializeOwned, T>(
    text: &Text,
    read: impl Fn(&K) -> Result<T, FieldError>,
) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(text.0.get());
    let object: K = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| format!("{error}; write a value of that type"))?;
    read(&object).map_err(|error| error.to_string())
}

impl From<Read> for Seen {
    fn from(read: Read) -> Self {
        match read {
            Ok(found) => Self::Present(Box::new(found)),
            Err((id, problem)) => Self::Unreadable(id, problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Text {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_object_with_a_value_of_the_wrong_type_is_named_with_the_field() {
        let broken = text(
            r#"{"metadata":{"namespace":"shop","name":"cart","resourceVersion":"7"},
                "spec":{"clusterIP":"10.96.0.1","ports":[{"port":"eighty"}]}}"#,
        );
        let Some(Err((id, problem))) = read(Kind::Service, &broken) else {
            panic!("it was read");
        };
        assert_eq!(id.to_string(), "Service shop/cart");
        assert!(problem.starts_with("spec.ports[0].port: "), "{problem}");
        let version = identity(Kind::Service, &broken).map(|object| object.version);
        assert_eq!(version.as_deref(), Some("7"));
    }

    #[test]
    fn one_broken_object_of_a_list_leaves_the_others_alone() {
        let list: kube::core::ObjectList<Text> = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[
                {"metadata":{"name":"a"},"spec":{"podCIDRs":"all of them"}},
                {"metadata":{"name":"b"}}]}"#,
        )
        .unwrap();
        let read: Vec<_> = list
            .items
            .iter()
            .map(|text| read(Kind::Node, text))
            .collect();
        assert!(matches!(&read[0], Some(Err((id, _))) if id.to_string() == "Node a"));
        assert!(matches!(&read[1], Some(Ok(Found::Node(node))) if &*node.name == "b"));
    }
}
