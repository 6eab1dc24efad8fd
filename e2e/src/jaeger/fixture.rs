//! A trace for tests, written as Jaeger answers.

use serde_json::{Value, json};

use super::Trace;

/// Id, parent's id or none, name, begin in µs, duration in µs, and whose: `c` for the controller, `a`
/// and `b` for the agents of these nodes.
pub(super) type Line<'a> = (&'a str, &'a str, &'a str, u64, u64, &'a str);

/// When it is, in µs since 1970.
const THEN: u64 = 1_767_225_600_000_000;

/// An endpoint more, on two nodes with real kernels.
const CHANGE: &[Line<'static>] = &[
    ("1", "", "change", 0, 412_400, "c"),
    ("2", "1", "watch", 0, 378_200, "c"),
    ("3", "1", "queue", 378_200, 1_100, "c"),
    ("4", "1", "plan", 379_300, 640, "c"),
    ("5", "1", "encode", 379_960, 210, "c"),
    ("a0", "1", "deliver", 380_200, 30_100, "c"),
    ("a1", "a0", "turn", 380_200, 700, "c"),
    ("a2", "a0", "send", 380_900, 95, "c"),
    ("a3", "a0", "apply", 381_950, 28_300, "a"),
    ("a4", "a3", "wait", 381_950, 410, "a"),
    ("a5", "a3", "read network", 382_370, 12, "a"),
    ("a6", "a3", "desired state", 382_390, 480, "a"),
    ("a7", "a3", "diff", 382_900, 150, "a"),
    ("a8", "a3", "add servers", 383_100, 14_200, "a"),
    ("a9", "a3", "flows", 409_800, 2, "a"),
    ("b0", "1", "deliver", 380_200, 32_200, "c"),
    ("b1", "b0", "turn", 380_200, 1_900, "c"),
    ("b2", "b0", "send", 382_100, 80, "c"),
    ("b3", "b0", "apply", 383_000, 28_900, "b"),
    ("b4", "b3", "wait", 383_000, 380, "b"),
    ("b5", "b3", "read network", 383_390, 14, "b"),
    ("b6", "b3", "desired state", 383_410, 510, "b"),
    ("b7", "b3", "diff", 383_930, 160, "b"),
    ("b8", "b3", "add guards", 384_100, 9_700, "b"),
    ("b9", "b3", "add servers", 393_900, 13_300, "b"),
    ("ba", "b3", "flows", 411_700, 3, "b"),
];

/// [`CHANGE`].
pub(super) fn change() -> Trace {
    trace(CHANGE)
}

/// Of these spans, the first of which is its root.
pub(super) fn trace(lines: &[Line<'_>]) -> Trace {
    let process = |service: &str, node: Option<&str>| {
        let tags =
            node.map(|node| json!({"key": "k8s.node.name", "type": "string", "value": node}));
        json!({"serviceName": service, "tags": tags.into_iter().collect::<Vec<_>>()})
    };
    let answer = json!({
        "traceID": "3c1f0b7f8b1d4a5e9c2d6e8f00112233",
        "spans": lines.iter().map(span).collect::<Vec<_>>(),
        "processes": {
            "c": process("portolan-controller", None),
            "a": process("portolan-agent", Some("node-a")),
            "b": process("portolan-agent", Some("node-b")),
        },
        "warnings": null,
    });
    serde_json::from_value(answer).unwrap()
}

fn span(&(id, parent, name, start, duration, whose): &Line<'_>) -> Value {
    let above = json!({"refType": "CHILD_OF", "traceID": "3c1f", "spanID": parent});
    let references = if parent.is_empty() {
        vec![]
    } else {
        vec![above]
    };
    let tag = |key: &str, value: Value| json!({"key": key, "value": value});
    let mut tags = Vec::new();
    if name == "change" {
        tags.push(tag(
            "portolan.changed",
            "EndpointSlice default/cart-7xk2p".into(),
        ));
        tags.push(tag("portolan.nodes.answered", 2.into()));
    }
    if name == "deliver" {
        let node = if id.starts_with('a') {
            "node-a"
        } else {
            "node-b"
        };
        tags.push(tag("k8s.node.name", node.into()));
    }
    json!({
        "spanID": id,
        "operationName": name,
        "references": references,
        "startTime": THEN + start,
        "duration": duration,
        "tags": tags,
        "processID": whose,
        "warnings": null,
    })
}
