//! Objects from manifests and from the API server.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{ClusterSource, Engine};
use portolan_controller::from_kube::{self, FieldError};
use portolan_controller::manifests::FileContents;
use portolan_controller::store::Store;
use portolan_controller::watch::{Answer, Mark, ObjectUpdate};
use portolan_planner::model::{Kind, Object};
use portolan_proto::{MAX_ENTRY_BYTES, decode_entry, encode_entry};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// Manifests, up to the entries of all nodes. Each entry is decoded to the same value, and is not too large to be sent.
pub(crate) fn manifests(bytes: &[u8]) {
    let store = store(&String::from_utf8_lossy(bytes));
    for node in store.node_names() {
        let Some(plan) = store.plan(&node) else {
            continue;
        };
        for (key, entry) in plan.entries() {
            let encoded = encode_entry(entry);
            assert!(encoded.len() <= MAX_ENTRY_BYTES, "{key}");
            assert_eq!(decode_entry(key, &encoded).as_ref(), Ok(entry), "{key}");
        }
    }
}

/// The plans of the objects in a manifest.
pub(crate) fn store(text: &str) -> Store {
    let contents = FileContents::read("fuzz", text);
    let store = Arc::new(Store::default());
    let engine = Engine::new(Shared::default(), store.clone(), None);
    let mut source = ClusterSource::new(engine, mpsc::channel(1).1);
    let answer = |kind| {
        let of_kind = contents.objects.iter().map(|(_, object)| object);
        let of_kind = of_kind.filter(|object| object.id().kind() == kind);
        let update = ObjectUpdate::All {
            objects: of_kind.map(|object| Object::clone(object)).collect(),
            unreadable: Vec::new(),
        };
        Answer {
            kind,
            update: Some(update),
            mark: Mark::default(),
            arrival: None,
        }
    };
    source.take_in(Kind::ALL.map(answer).into(), Instant::now());
    drop(source);
    Arc::into_inner(store).unwrap_or_default()
}

/// The JSON of an object, after a digit that selects its kind.
pub(crate) fn api_object(bytes: &[u8]) {
    let Some((kind, json)) = bytes.split_first() else {
        return;
    };
    match kind.wrapping_sub(b'0') % 5 {
        0 => object::<core::Node, _>(json, from_kube::node),
        1 => object::<core::Service, _>(json, from_kube::service),
        2 => object::<discovery::EndpointSlice, _>(json, from_kube::endpoint_slice),
        3 => object::<networking::ServiceCIDR, _>(json, from_kube::service_cidr),
        _ => object::<portolan_crds::ProxyConfig, _>(json, from_kube::proxy_config),
    }
}

/// An object is converted to a value, or to an error that names a field.
fn object<K: DeserializeOwned, T>(json: &[u8], read: impl Fn(&K) -> Result<T, FieldError>) {
    if let Ok(object) = serde_json::from_slice::<K>(json)
        && let Err(error) = read(&object)
    {
        assert!(!error.to_string().is_empty());
    }
}
