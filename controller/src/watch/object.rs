//! The JSON of one object, converted to the planner's model.
//!
//! Lists and watch events are split without parsing their objects, so an invalid object does not affect the others.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Resource;
use portolan_planner::model::{Kind, Object};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::ObjectUpdate;
use super::mark::Identity;
use super::triggers::trigger_time;
use crate::from_kube::{self, FieldError};

/// An object as the API server wrote it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Text(Box<RawValue>);

/// The fields that can be read of every object.
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

/// An object of a list or of a watch event.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) identity: Identity,
    /// The object, or the field that is wrong, the problem and the next check.
    pub(super) object: Result<Object, String>,
    /// When the change behind it happened (EndpointSlices only).
    pub(super) triggered: Option<SystemTime>,
}

/// Name, UID and version of an object; `None` without a name. They can be read of every object that an API server
/// stores, also of invalid ones.
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

/// Reads an object; `None` if it has no name.
pub(super) fn read(kind: Kind, text: &Text) -> Option<Received> {
    match kind {
        Kind::Node => typed(kind, text, from_kube::node),
        Kind::Service => typed(kind, text, from_kube::service),
        Kind::EndpointSlice => typed(kind, text, from_kube::endpoint_slice),
        Kind::ServiceCidr => typed(kind, text, from_kube::service_cidr),
        Kind::ProxyConfig => typed(kind, text, from_kube::proxy_config),
    }
}

fn typed<K: Resource + DeserializeOwned, T: Into<Object>>(
    kind: Kind,
    text: &Text,
    read: impl Fn(&K) -> Result<T, FieldError>,
) -> Option<Received> {
    let mut reader = serde_json::Deserializer::from_str(text.0.get());
    match serde_path_to_error::deserialize::<_, K>(&mut reader) {
        Ok(object) => Some(Received {
            identity: of_metadata(kind, object.meta())?,
            triggered: trigger_time(kind, object.meta()),
            object: read(&object)
                .map(Into::into)
                .map_err(|error| error.to_string()),
        }),
        Err(error) => Some(Received {
            identity: identity(kind, text)?,
            triggered: None,
            object: Err(format!("{error}; write a value of that type")),
        }),
    }
}

fn of_metadata(kind: Kind, metadata: &ObjectMeta) -> Option<Identity> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let name = metadata.name.as_deref().filter(|name| !name.is_empty())?;
    Some(Identity {
        id: kind.id(metadata.namespace.as_deref().unwrap_or_default(), name),
        uid: text(&metadata.uid),
        version: text(&metadata.resource_version),
    })
}

impl From<Received> for ObjectUpdate {
    fn from(received: Received) -> Self {
        match received.object {
            Ok(object) => Self::Present(Box::new(object)),
            Err(problem) => Self::Unreadable(received.identity.id, problem),
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
        let received = read(Kind::Service, &broken).unwrap();
        assert_eq!(received.identity.id.to_string(), "Service shop/cart");
        assert_eq!(received.identity.version, "7");
        let problem = received.object.unwrap_err();
        assert!(problem.starts_with("spec.ports[0].port: "), "{problem}");
    }

    #[test]
    fn the_identity_is_the_same_whether_the_object_can_be_read_or_not() {
        let object = text(
            r#"{"metadata":{"namespace":"shop","name":"web-1","uid":"u","resourceVersion":"9"},
                "addressType":"IPv4","endpoints":[]}"#,
        );
        let received = read(Kind::EndpointSlice, &object).unwrap();
        assert!(received.object.is_ok(), "{received:?}");
        assert_eq!(
            Some(received.identity),
            identity(Kind::EndpointSlice, &object)
        );
        let nameless = text(r#"{"metadata":{"uid":"u"},"addressType":"IPv4","endpoints":[]}"#);
        assert!(read(Kind::EndpointSlice, &nameless).is_none());
    }

    #[test]
    fn one_broken_object_of_a_list_leaves_the_others_alone() {
        let list: kube::core::ObjectList<Text> = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[
                {"metadata":{"name":"a"},"spec":{"podCIDRs":"all of them"}},
                {"metadata":{"name":"b"}}]}"#,
        )
        .unwrap();
        let updates: Vec<ObjectUpdate> = list
            .items
            .iter()
            .filter_map(|text| read(Kind::Node, text))
            .map(ObjectUpdate::from)
            .collect();
        assert!(
            matches!(&updates[0], ObjectUpdate::Unreadable(id, _) if id.to_string() == "Node a")
        );
        assert!(
            matches!(&updates[1], ObjectUpdate::Present(object) if object.id().to_string() == "Node b")
        );
    }
}
