//! The table of settings that change while an agent runs, and of their visible effects.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::modes::proxy_config;

/// A table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    base: Value,
    rows: Vec<Row>,
}

/// Why nothing shows while an agent runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// A description.
    pub why: String,
    /// The test that shows it.
    pub test: String,
}

/// A setting: what is changed, and what shows it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    setting: String,
    #[serde(default)]
    change: Value,
    /// Manual step before the change.
    pub by_hand: Option<Hand>,
    /// Source of the observation.
    #[serde(default)]
    pub see: String,
    /// The observation before.
    #[serde(default)]
    pub before: Says,
    /// The observation after.
    #[serde(default)]
    pub after: Says,
    /// A second change that follows at once.
    pub apart: Option<Apart>,
    elsewhere: Option<Elsewhere>,
}

/// Two changes that keep a distance.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apart {
    change: Value,
    /// Minimum number of seconds between the two passes.
    pub seconds: u32,
}

/// A manual step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hand {
    /// An endpoint is removed while a client stays connected.
    EndpointLeaves,
    /// A virtual server is deleted.
    ServerDeleted,
}

/// Texts that have to be present, and texts that have to be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Says {
    has: Vec<String>,
    lacks: Vec<String>,
}

impl Says {
    /// The first mismatch as text; `None` if all texts match.
    #[must_use]
    pub fn missing(&self, output: &str) -> Option<String> {
        let lacking = self.has.iter().find(|text| !output.contains(*text));
        let lacking = lacking.map(|text| format!("{text:?} is not there"));
        let there = || self.lacks.iter().find(|text| output.contains(*text));
        lacking.or_else(|| there().map(|text| format!("{text:?} is there")))
    }
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// Names the row that changes nothing or shows nothing.
    pub fn read(text: &str) -> Result<Self> {
        let table: Self = serde_saphyr::from_str(text).context("read the table of settings")?;
        for (setting, row) in table.changes() {
            let same = over(&table.base, &row.change) == table.base;
            ensure!(!same, "{setting}: the change changes nothing");
            let silent = |says: &Says| says.has.is_empty() && says.lacks.is_empty();
            let says = !silent(&row.before) && !silent(&row.after) && !row.see.is_empty();
            ensure!(says, "{setting}: what is seen is not said");
        }
        Ok(table)
    }

    /// The `ProxyConfig` that is in force between rows.
    #[must_use]
    pub fn base(&self) -> String {
        proxy_config(&self.base)
    }

    /// The `ProxyConfig` of a row, and the second one, if it has one.
    #[must_use]
    pub fn manifests(&self, row: &Row) -> (String, Option<String>) {
        let first = over(&self.base, &row.change);
        let second = row.apart.as_ref();
        let second = second.map(|apart| proxy_config(&over(&first, &apart.change)));
        (proxy_config(&first), second)
    }

    /// The changes, with the setting's name.
    pub fn changes(&self) -> impl Iterator<Item = (&str, &Row)> {
        let here = self.rows.iter().filter(|row| row.elsewhere.is_none());
        here.map(|row| (row.setting.as_str(), row))
    }

    /// Settings that other tests cover, with the setting's name.
    pub fn elsewhere(&self) -> impl Iterator<Item = (&str, &Elsewhere)> {
        self.rows.iter().filter_map(|row| {
            let elsewhere = row.elsewhere.as_ref()?;
            Some((row.setting.as_str(), elsewhere))
        })
    }
}

/// Settings with others put over them.
fn over(base: &Value, change: &Value) -> Value {
    let (Value::Object(fields), Value::Object(changes)) = (base, change) else {
        return change.clone();
    };
    let mut fields = fields.clone();
    for (name, value) in changes {
        let merged = match fields.get(name) {
            Some(old) => over(old, value),
            None => value.clone(),
        };
        fields.insert(name.clone(), merged);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::files::{Files, SETTINGS};

    fn table() -> Table {
        Table::read(&Files::at(None).text(SETTINGS).unwrap()).unwrap()
    }

    /// The paths of all values.
    fn leaves(path: &str, value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let dot = if path.is_empty() { "" } else { "." };
                    leaves(&format!("{path}{dot}{name}"), value, found);
                }
            }
            _ => drop(found.insert(path.to_owned())),
        }
    }

    #[test]
    fn every_setting_has_a_row_and_no_other_name_does() {
        let settings = serde_json::to_value(portolan_plan::Settings::default()).unwrap();
        let mut wanted = BTreeSet::new();
        leaves("", &settings, &mut wanted);
        let table = table();
        let rows: BTreeSet<_> = table.rows.iter().map(|row| row.setting.clone()).collect();
        assert_eq!(rows, wanted);
        // A row changes what it says.
        for (setting, row) in table.changes() {
            let mut changed = BTreeSet::new();
            leaves("", &row.change, &mut changed);
            assert!(changed.contains(setting), "{setting}");
        }
    }

    #[test]
    fn what_shows_elsewhere_says_why_and_names_a_test_that_is_there() {
        let sources = [
            include_str!("../../../node-agent/tests/saved.rs"),
            include_str!("../../../node-agent/reconcile/src/sysctls/conntrack.rs"),
        ];
        for (setting, elsewhere) in table().elsewhere() {
            let name = format!("fn {}()", elsewhere.test);
            let found = sources.iter().any(|source| source.contains(&name));
            assert!(found && !elsewhere.why.is_empty(), "{setting}");
        }
    }

    #[test]
    fn settings_are_put_over_others_field_by_field() {
        let base = serde_json::json!({"sync": {"period": "1h"}, "drift": "Repair"});
        let change = serde_json::json!({"sync": {"minPeriod": "1s"}, "drift": "Report"});
        let both =
            serde_json::json!({"sync": {"period": "1h", "minPeriod": "1s"}, "drift": "Report"});
        assert_eq!(over(&base, &change), both);
        let same = "base: {drift: Repair}\nrows: [{setting: drift, change: {drift: Repair}, see: doctor, \
            before: {has: [x]}, after: {has: [y]}}]";
        let refused = Table::read(same).unwrap_err().to_string();
        assert!(refused.contains("changes nothing"), "{refused}");
    }

    #[test]
    fn missing_and_unexpected_texts_are_reported() {
        let says = Says {
            has: vec!["ab".into()],
            lacks: vec!["cd".into()],
        };
        assert_eq!(says.missing("xaby"), None);
        assert_eq!(says.missing("x").unwrap(), "\"ab\" is not there");
        assert_eq!(says.missing("abcd").unwrap(), "\"cd\" is there");
    }
}
