//! The schemas of the custom resources.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::path::Path;

use portolan_crds::{SettingsSpec, definitions};
use serde_json::Value;

/// All schemas of a definition with their paths, the deepest last.
fn schemas(definition: &Value) -> Vec<(String, Value)> {
    fn walk(path: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
        found.push((path.to_owned(), schema.clone()));
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, below) in properties.into_iter().flatten() {
            walk(&format!("{path}.{name}"), below, found);
        }
        if let Some(items) = schema.get("items") {
            walk(&format!("{path}[]"), items, found);
        }
    }
    let kind = definition.pointer("/spec/names/kind").unwrap();
    let root = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap();
    let mut found = Vec::new();
    walk(kind.as_str().unwrap(), root, &mut found);
    found
}

fn all_schemas() -> Vec<(String, Value)> {
    let definitions = definitions().unwrap();
    let all = definitions.iter().flat_map(|d| schemas(&d.object));
    let all: Vec<_> = all.collect();
    assert!(all.len() > 150, "{}", all.len());
    all
}

#[test]
fn the_files_of_the_chart_are_as_the_types_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/portolan/charts/crds/crds");
    for definition in definitions().unwrap() {
        let path = folder.join(definition.file);
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            present == definition.yaml().unwrap(),
            "{}: run `cargo run -p portolan-crds --bin crdgen`",
            definition.file
        );
    }
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(files, definitions().unwrap().len(), "only what is made");
}

#[test]
fn columns_are_these() {
    let mut text = String::new();
    for definition in definitions().unwrap() {
        let names = &definition.object["spec"]["names"];
        text += &format!("{} {}\n", names["kind"], names["shortNames"]);
        let columns = &definition.object["spec"]["versions"][0]["additionalPrinterColumns"];
        for column in columns.as_array().unwrap() {
            let name = column["name"].as_str().unwrap().to_uppercase();
            let path = column["jsonPath"].as_str().unwrap();
            let kind = column["type"].as_str().unwrap();
            text += &format!("  {name:<10} {kind:<8} {path}\n");
        }
    }
    insta::assert_snapshot!(text);
}

/// Without limits the API server rejects rules because of their estimated cost, and one object could fill etcd.
#[test]
fn every_list_and_every_text_has_a_limit() {
    for (path, schema) in all_schemas() {
        let has = |field| schema.get(field).is_some();
        match schema["type"].as_str() {
            Some("array") => assert!(has("maxItems") && has("items"), "{path}"),
            Some("string") => assert!(has("maxLength") || has("enum") || has("format"), "{path}"),
            Some("integer") => assert!(has("minimum"), "{path}"),
            Some("object") => {
                let values = schema.pointer("/additionalProperties/maxLength");
                let is_map = values.is_some() && has("maxProperties");
                assert!(has("properties") || is_map, "{path}");
            }
            Some("boolean") => {}
            None if schema["x-kubernetes-int-or-string"] == true => {}
            other => panic!("{path}: type {other:?}"),
        }
    }
}

/// `kubectl apply --validate=strict` and rules with `has()` rely on it.
#[test]
fn schemas_are_structural_and_leave_no_room_for_the_unknown() {
    for (path, schema) in all_schemas() {
        for field in [
            "x-kubernetes-preserve-unknown-fields",
            "nullable",
            "anyOf",
            "oneOf",
        ] {
            assert!(schema.get(field).is_none(), "{path}: {field}");
        }
        assert_ne!(schema["additionalProperties"], Value::Bool(true), "{path}");
        let formats = [None, Some("int32"), Some("int64"), Some("date-time")];
        assert!(formats.contains(&schema["format"].as_str()), "{path}");
    }
}

#[test]
fn every_field_is_explained() {
    for (path, schema) in all_schemas() {
        if path.ends_with("[]") {
            continue;
        }
        let description = schema["description"].as_str().unwrap_or_default();
        assert!(
            description.ends_with(['.', ')', ':']),
            "{path}: {description:?}"
        );
        assert!(!description.contains("Auto-generated"), "{path}");
    }
}

#[test]
fn every_rule_says_what_to_write_instead() {
    let mut rules = 0;
    for (path, schema) in all_schemas() {
        let given = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array);
        for rule in given.into_iter().flatten() {
            let message = rule["message"].as_str().unwrap_or_default();
            assert!(message.len() > 20, "{path}: {rule}");
            rules += 1;
        }
    }
    assert!(rules > 20, "{rules}");
}

#[test]
fn an_empty_object_is_a_whole_one() {
    let spec: SettingsSpec = serde_json::from_str("{}").unwrap();
    assert_eq!(spec, SettingsSpec::default());
}
