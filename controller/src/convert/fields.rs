//! The fields of the input. Each is taken once; the remaining ones are unknown.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::duration::nanoseconds;
use crate::from_kube::FieldError;

/// Fields of fields.
const SECTIONS: [&str; 9] = [
    "clientConnection",
    "conntrack",
    "detectLocal",
    "featureGates",
    "iptables",
    "ipvs",
    "logging",
    "nftables",
    "winkernel",
];
/// Maximum length of a value in the report, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// Every value of the input by its path, like `ipvs.scheduler`.
pub(super) struct Fields {
    leaves: BTreeMap<String, Value>,
}

/// A field taken from the input.
#[derive(Debug, Clone)]
pub(super) struct Given<T> {
    pub(super) field: String,
    /// The value as shown; `None` if it is not set.
    pub(super) shown: Option<String>,
    /// `None` if the field is not set, or null or empty, which kube-proxy treats the same.
    pub(super) value: Option<T>,
}

impl<T> Given<T> {
    /// The field with its value converted further.
    pub(super) fn and_then<U>(
        self,
        read: impl FnOnce(T) -> Result<Option<U>, String>,
    ) -> Result<Given<U>, FieldError> {
        let value = self.value.map(read).transpose();
        let value = value.map_err(|problem| wrong(&self.field, problem))?;
        Ok(Given {
            field: self.field,
            shown: self.shown,
            value: value.flatten(),
        })
    }
}

pub(super) fn wrong(field: &str, problem: impl Into<String>) -> FieldError {
    FieldError {
        field: field.into(),
        problem: problem.into(),
    }
}

impl Fields {
    /// The fields of a document.
    pub(super) fn new(document: Map<String, Value>) -> Result<Self, FieldError> {
        let mut leaves = BTreeMap::new();
        flatten("", document, &mut leaves);
        for section in SECTIONS {
            match leaves.remove(section) {
                None | Some(Value::Null) => {}
                Some(Value::Object(empty)) if empty.is_empty() => {}
                Some(value) => {
                    let problem = format!("{}; write its fields below it", described(&value));
                    return Err(wrong(section, problem));
                }
            }
        }
        Ok(Self { leaves })
    }

    /// The remaining paths with this prefix.
    pub(super) fn left(&self, prefix: &str) -> Vec<String> {
        let paths = self.leaves.keys();
        let paths = paths.filter(|path| path.starts_with(prefix));
        paths.cloned().collect()
    }

    /// A field of any type.
    pub(super) fn any(&mut self, field: &str) -> Given<()> {
        let value = self.leaves.remove(field);
        Given {
            field: field.into(),
            shown: value.as_ref().map(shown),
            value: value.filter(|value| !value.is_null()).map(drop),
        }
    }

    pub(super) fn text(&mut self, field: &str) -> Result<Given<String>, FieldError> {
        let given = self.typed(field, "a string", |value| value.as_str().map(str::to_owned))?;
        given.and_then(|text| Ok(Some(text).filter(|text| !text.is_empty())))
    }

    /// kube-proxy's YAML parser also reads `yes` and `on` as true.
    pub(super) fn flag(&mut self, field: &str) -> Result<Given<bool>, FieldError> {
        self.typed(field, "true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "yes" | "y" | "on" => Some(true),
                "no" | "n" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        })
    }

    pub(super) fn integer(&mut self, field: &str) -> Result<Given<i32>, FieldError> {
        self.typed(field, "a whole number of at most 32 bits", |value| {
            value.as_i64().and_then(|number| i32::try_from(number).ok())
        })
    }

    pub(super) fn number(&mut self, field: &str) -> Result<Given<f64>, FieldError> {
        self.typed(field, "a number", Value::as_f64)
    }

    /// A duration in nanoseconds.
    pub(super) fn time(&mut self, field: &str) -> Result<Given<u64>, FieldError> {
        let given = self.typed(field, "a duration like 30s or 1h30m", |value| {
            nanoseconds(value.as_str()?)
        })?;
        given.and_then(|time| match u64::try_from(time) {
            Ok(time) => Ok(Some(time)),
            Err(_) => Err("negative, and kube-proxy rejects it too; write 0s or more".into()),
        })
    }

    pub(super) fn texts(&mut self, field: &str) -> Result<Given<Vec<String>>, FieldError> {
        let given = self.typed(field, "a list of strings", |value| {
            value.as_array().cloned()
        })?;
        let texts = given.value.iter().flatten().enumerate();
        let texts = texts.map(|(index, value)| {
            let text = value.as_str().map(str::to_owned);
            let expected = || format!("{}; write a string", described(value));
            text.ok_or_else(|| wrong(&format!("{field}[{index}]"), expected()))
        });
        let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
        Ok(Given {
            field: given.field,
            shown: given.shown,
            value: Some(texts).filter(|texts| !texts.is_empty()),
        })
    }

    fn typed<T>(
        &mut self,
        field: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Given<T>, FieldError> {
        let below = self.leaves.range(field.to_owned()..);
        let mut below = below.map_while(|(path, _)| path.strip_prefix(field));
        if below.any(|rest| rest.starts_with(['.', '['])) {
            let problem = format!("is not a single value; write {expected}");
            return Err(wrong(field, problem));
        }
        let value = self.leaves.remove(field);
        let given = value.as_ref().filter(|value| !value.is_null());
        let given = given.map(|value| {
            let problem = || format!("{}; write {expected}", described(value));
            read(value).ok_or_else(|| wrong(field, problem()))
        });
        Ok(Given {
            field: field.into(),
            shown: value.as_ref().map(shown),
            value: given.transpose()?,
        })
    }
}

/// Flattens objects down to other values. An empty object is a value.
fn flatten(prefix: &str, object: Map<String, Value>, leaves: &mut BTreeMap<String, Value>) {
    for (key, value) in object {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
        // A key with a dot could be confused with a path.
        let path = match (prefix.is_empty(), !key.is_empty() && key.chars().all(plain)) {
            (true, true) => key,
            (false, true) => format!("{prefix}.{key}"),
            (_, false) => format!("{prefix}[{key:?}]"),
        };
        match value {
            Value::Object(fields) if !fields.is_empty() => flatten(&path, fields, leaves),
            value => {
                leaves.insert(path, value);
            }
        }
    }
}

/// A value in a line: texts are quoted only if needed.
pub(super) fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) if text.is_empty() || text.contains(|c: char| c.is_control()) => {
            format!("{text:?}")
        }
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn described(value: &Value) -> String {
    let kind = match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("{} is {kind}", shown(value))
}
