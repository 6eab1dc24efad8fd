//! Schemas of strings that have no type of their own in Kubernetes: durations, addresses, CIDR ranges, names for the
//! kernel. Pure.
//!
//! Rules are CEL, not patterns, because a rule has a message that says what to write instead. Every string has a
//! length limit: without one the API server rejects a rule because of its estimated cost.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Maximum length of a duration string, in characters.
const MAX_DURATION_CHARS: u32 = 20;
/// Maximum length of a CIDR string, in characters: an IPv6 address, a slash, three digits.
const MAX_CIDR_CHARS: u32 = 43;
/// Maximum number of ranges in one field.
const MAX_CIDRS: u32 = 64;

/// The pattern of a duration: the longest unit first, each at most once.
const DURATION: &str = "^(0|([0-9]{1,6}h)?([0-9]{1,7}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?)$";
/// The same without milliseconds.
const SECONDS: &str = "^(0|([0-9]{1,6}h)?([0-9]{1,7}m)?([0-9]{1,8}s)?)$";

/// A duration.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    duration_like(
        DURATION,
        "write hours, minutes, seconds and milliseconds in this order, such as 30s or 1m30s",
    )
}

/// A duration in whole seconds.
pub(crate) fn seconds(_: &mut SchemaGenerator) -> Schema {
    duration_like(
        SECONDS,
        "write hours, minutes and seconds in this order, such as 90s or 1h30m; milliseconds are not accepted here",
    )
}

fn duration_like(pattern: &str, message: &str) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_DURATION_CHARS,
        "x-kubernetes-validations": [rule(&format!("self.matches('{pattern}')"), message)],
    })
}

/// Rules for `period` and `minPeriod`. Invalid durations are left to the rules of their own fields.
pub(crate) fn sync_rules() -> Value {
    let given = |field: &str, default: &str| {
        format!(
            "duration(has(self.{field}) && self.{field}.matches('{DURATION}') ? self.{field} : '{default}')"
        )
    };
    let (period, least) = (given("period", "30s"), given("minPeriod", "0s"));
    json!([
        rule(
            &format!("{period} >= duration('1s')"),
            "period is shorter than 1s",
        ),
        rule(
            &format!("{least} <= {period}"),
            "minPeriod is longer than period, which is 30s unless it is set",
        ),
    ])
}

/// Rules for `window` and `releaseAfter`. Invalid durations are left to the rules of their own fields.
pub(crate) fn guard_rules() -> Value {
    let given = |field: &str| {
        format!(
            "!has(self.{field}) || !self.{field}.matches('{SECONDS}') || duration(self.{field})"
        )
    };
    let (window, release) = (given("window"), given("releaseAfter"));
    json!([
        rule(
            &format!("{window} >= duration('1s')"),
            "window is shorter than 1s"
        ),
        rule(
            &format!("{window} <= duration('1h')"),
            "window is longer than 1h"
        ),
        rule(
            &format!("{release} >= duration('1s')"),
            "releaseAfter is shorter than 1s"
        ),
    ])
}

/// CIDR ranges of both families.
pub(crate) fn cidrs(_: &mut SchemaGenerator) -> Schema {
    let rule = rule(
        "isCIDR(self)",
        "write a range like 10.0.0.0/8 or fd00::/8, without leading zeros",
    );
    cidr_list(&rule, &json!([]))
}

/// Keywords and CIDR ranges (`nodePortAddresses`).
pub(crate) fn node_port_addresses(_: &mut SchemaGenerator) -> Schema {
    let item = rule(
        "self in ['all', 'primary', 'localhost'] || isCIDR(self)",
        "write all, primary, localhost, or a range like 192.168.0.0/16",
    );
    cidr_list(&item, &json!([]))
}

fn cidr_list(item: &Value, list: &Value) -> Schema {
    let mut schema = json_schema!({
        "type": "array",
        "maxItems": MAX_CIDRS,
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_CIDR_CHARS,
            "x-kubernetes-validations": [item],
        },
    });
    if list.as_array().is_some_and(|rules| !rules.is_empty()) {
        schema.insert("x-kubernetes-validations".into(), list.clone());
    }
    schema
}

/// An IP address of either family, or an empty string.
pub(crate) fn address_or_none(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 45,
        "x-kubernetes-validations": [rule(
            "self == '' || isIP(self)",
            "write an address like 0.0.0.0 or ::1, without leading zeros, or an empty string",
        )],
    })
}

/// The listen address `T` of a server, whose descriptions contain these defaults.
pub(crate) fn listen<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    address: &str,
    port: &str,
) -> Schema {
    let mut schema = T::json_schema(generator);
    for (field, default) in [("bindAddress", address), ("port", port)] {
        let description = schema.pointer_mut(&format!("/properties/{field}/description"));
        if let Some(Value::String(text)) = description {
            *text = format!("{text} Default: {default}.");
        }
    }
    schema
}

/// A port range such as `30000-32767`.
pub(crate) fn port_range(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 11,
        "x-kubernetes-validations": [rule(
            "self.matches('^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$') && int(self.split('-')[0]) <= int(self.split('-')[1]) \
             && int(self.split('-')[1]) <= 65535",
            "write the first port and the last, like 30000-32767",
        )],
    })
}

/// The two bits of the packet mark must differ.
pub(crate) fn settings_rules() -> Value {
    let bit = |field: &str, default: u8| {
        format!("(has(self.{field}) && has(self.{field}.bit) ? self.{field}.bit : {default})")
    };
    json!([rule(
        &format!("{} != {}", bit("capture", 12), bit("masquerade", 14)),
        "capture.bit and masquerade.bit are the same bit of the packet mark; write different ones",
    )])
}

/// The name of a scheduler or a device in the kernel.
pub(crate) fn kernel_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 15,
        "x-kubernetes-validations": [rule(
            "self.matches('^[-A-Za-z0-9_.@]+$')",
            "write 1 to 15 letters, digits, '-', '_', '.' or '@', as the kernel names it",
        )],
    })
}

/// A prefix of interface names in a rule, which adds `+` to it.
pub(crate) fn interface_prefix(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 14,
        "x-kubernetes-validations": [rule(
            "self.matches('^[-A-Za-z0-9_.@]+$')",
            "write 1 to 14 letters, digits, '-', '_', '.' or '@', as the kernel names it",
        )],
    })
}

/// The name of an override.
pub(crate) fn own_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": [rule(
            "self.matches('^[-A-Za-z0-9_.]+$')",
            "write a name of letters, digits, '-', '_' and '.'",
        )],
    })
}

/// Node labels with values.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 8,
        "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// Fields that are not allowed in an override.
pub(crate) fn override_rules() -> Value {
    json!([rule(
        "!has(self.externalIPs) && !has(self.serviceProxyName)",
        "externalIPs and serviceProxyName affect what all nodes share: set them in spec.settings",
    )])
}

/// A number of nodes from 1, or a percentage.
pub(crate) fn some_nodes(_: &mut SchemaGenerator) -> Schema {
    nodes_like(
        "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "write a number of nodes from 1, or a percentage from 1% to 100%",
    )
}

/// A number of nodes, or a percentage.
pub(crate) fn any_nodes(_: &mut SchemaGenerator) -> Schema {
    nodes_like(
        "type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",
        "write a number of nodes, or a percentage from 0% to 100%",
    )
}

fn nodes_like(is: &str, message: &str) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [rule(is, message)],
    })
}

/// The name of a revision, or an empty string.
pub(crate) fn revision_or_none(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 63,
        "x-kubernetes-validations": [rule(
            "self.matches('^(default-[0-9]{1,18})?$')",
            "write the name of a revision as status.rollout.history has it, like default-5, or an empty string",
        )],
    })
}

/// A label value, or an empty string.
pub(crate) fn label_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 63,
        "x-kubernetes-validations": [rule(
            "self.matches('^[-A-Za-z0-9_.]*$')",
            "write the value of a label: letters, digits, '-', '_' and '.', or an empty string",
        )],
    })
}

/// An enum. The description of the field explains its values: a structural schema has no place for descriptions of
/// values, and the description of the type would replace that of the field.
pub(crate) fn choice<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let schema = T::json_schema(generator).to_value();
    let described = schema.get("oneOf").and_then(Value::as_array);
    let described = described.into_iter().flatten();
    let described = described.filter_map(|word| word.get("const").cloned());
    let plain = schema.get("enum").and_then(Value::as_array);
    let words: Vec<Value> = described
        .chain(plain.into_iter().flatten().cloned())
        .collect();
    json_schema!({"type": "string", "enum": words})
}

/// The standard conditions of Kubernetes objects.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "The condition type.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 63,
                },
                "status": {
                    "description": "Whether the condition holds. Unknown: the state is not known at the moment.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "The reason as one word, for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 63,
                    "pattern": "^[A-Za-z][A-Za-z0-9]*$",
                },
                "message": {
                    "description": "The reason as a sentence, with the next thing to check.",
                    "type": "string",
                    "maxLength": 2048,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The metadata.generation of the object that the condition describes.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

/// A timestamp.
pub(crate) fn moment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// A CEL validation rule, with the message for users if it is violated.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}
