//! The page of all fields of `spec` of the ProxyConfig, from its schema.

use portolan_crds::definitions;
use serde_json::Value;

const HEAD: &str = "# Settings

<!-- Made by `PORTOLAN_WRITE_REFERENCE=1 cargo test -p portolan-e2e --test reference`; do not edit. -->

All fields of `spec` of the ProxyConfig `default`. [settings-and-rollout.md](../operate/settings-and-rollout.md)
describes how a change reaches nodes. `kubectl explain proxyconfig.spec --recursive` prints the same fields.

A duration has the units h, m, s and ms in this order, such as `1m30s`; one in whole seconds has no ms.

| field | type | values | meaning |
| --- | --- | --- | --- |
";

pub(crate) fn page() -> String {
    let definitions = definitions().unwrap();
    let config = definitions
        .iter()
        .find(|found| found.file == "proxyconfigs.yaml")
        .unwrap();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut page = HEAD.to_owned();
    rows(config.object.pointer(schema).unwrap(), "", &mut page);
    page
}

/// One row for each field below a schema.
fn rows(schema: &Value, path: &str, page: &mut String) {
    let Some(fields) = schema["properties"].as_object() else {
        return;
    };
    for (name, field) in fields {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let (kind, values) = (kind(field), values(field));
        let meaning = field["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        page.push_str(&format!(
            "| `{path}` | {kind} | {values} | {} |\n",
            meaning.replace('|', "\\|")
        ));
        let list = field["type"] == "array";
        let (below, path) = if list {
            (&field["items"], format!("{path}[]"))
        } else {
            (field, path)
        };
        // The settings of overrides have the fields of `settings`.
        if path != "overrides[].settings" {
            rows(below, &path, page);
        }
    }
}

fn kind(field: &Value) -> String {
    let name = |field: &Value| field["type"].as_str().unwrap_or("any").to_owned();
    match name(field).as_str() {
        "array" => format!("list of {}", name(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", name(&field["additionalProperties"]))
        }
        kind => kind.to_owned(),
    }
}

/// What the schema allows.
fn values(field: &Value) -> String {
    let field = if field["type"] == "array" {
        &field["items"]
    } else {
        field
    };
    if let Some(choices) = field["enum"].as_array() {
        let choices = choices.iter().filter_map(Value::as_str);
        return choices
            .map(|choice| format!("`{choice}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(kind) = duration(field) {
        return kind.to_owned();
    }
    match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("from {least}"),
        (None, Some(most)) => format!("up to {most}"),
        (None, None) => String::new(),
    }
}

/// The kind of duration that a rule of the schema requires; `None` for other fields.
fn duration(field: &Value) -> Option<&'static str> {
    let rules = field["x-kubernetes-validations"].as_array()?;
    let mut rules = rules.iter().filter_map(|rule| rule["rule"].as_str());
    let rule = rules.find(|rule| rule.starts_with("self.matches('^(0|([0-9]{1,6}h)?"))?;
    Some(if rule.contains("ms)?") {
        "duration"
    } else {
        "duration in whole seconds"
    })
}
