//! The custom resources as clusters see them.

use kube::CustomResourceExt as _;
use portolan_crds::{ProxyConfig, SettingsSpec};

#[test]
fn the_schema_of_proxyconfig_is_this() {
    insta::assert_yaml_snapshot!(ProxyConfig::crd());
}

/// A field without a default here would have none in the controller's settings either: only the
/// three that belong to other modes of detection may be missing.
#[test]
fn the_defaults_name_every_field_of_the_schema() {
    fn count(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Object(fields) => fields.values().map(count).sum(),
            _ => 1,
        }
    }
    fn leaves(schema: &serde_json::Value) -> usize {
        match schema
            .get("properties")
            .and_then(|properties| properties.as_object())
        {
            Some(fields) => fields.values().map(leaves).sum(),
            None => 1,
        }
    }
    let crd = serde_json::to_value(ProxyConfig::crd()).unwrap();
    let settings = crd
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/settings")
        .unwrap();
    let defaults = serde_json::to_value(SettingsSpec::written_out()).unwrap();
    assert_eq!(count(&defaults) + 3, leaves(settings));
}

#[test]
fn an_empty_object_is_a_whole_one() {
    let spec: SettingsSpec = serde_json::from_str("{}").unwrap();
    assert_eq!(spec, SettingsSpec::default());
}
