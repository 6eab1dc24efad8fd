//! The page of all alerts, from the rules of the chart: one heading for each, to which messages can link.

use serde_json::Value;

use crate::root;

const HEAD: &str = "# Alerts

<!-- Made by `PORTOLAN_WRITE_REFERENCE=1 cargo test -p portolan-e2e --test reference`; do not edit. -->

All alerts of `charts/portolan/monitoring/rules.yaml`, with their causes and the next check. Words in capitals stand for
labels of the alert or for names that you insert, and VALUE for its value.
[monitoring.md](../operate/monitoring.md#alerts) groups them by question.
";

pub(crate) fn page() -> String {
    let path = root().join("charts/portolan/monitoring/rules.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let mut page = HEAD.to_owned();
    let groups = rules["groups"].as_array().unwrap();
    for rule in groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        let Some(name) = rule["alert"].as_str() else {
            continue;
        };
        let severity = rule["labels"]["severity"].as_str().unwrap();
        let after = match rule["for"].as_str() {
            Some(duration) if duration != "0m" => format!("after {duration}"),
            _ => "at once".to_owned(),
        };
        let annotation = |key: &str| with_placeholders(rule["annotations"][key].as_str().unwrap());
        page.push_str(&format!(
            "\n## {name}\n\nSeverity {severity}; fires {after}. {}.\n\n{}\n",
            annotation("summary"),
            annotation("description").trim_end(),
        ));
    }
    page
}

/// Replaces templates such as `{{ $labels.node }}` by `NODE`.
fn with_placeholders(text: &str) -> String {
    let mut parts = text.split("{{");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (template, rest) = part.split_once("}}").unwrap();
        let variable = template
            .split_whitespace()
            .find(|word| word.starts_with('$'))
            .unwrap();
        let name = variable
            .trim_start_matches("$labels.")
            .trim_start_matches('$');
        result.push_str(&name.to_uppercase());
        result.push_str(rest);
    }
    result
}
