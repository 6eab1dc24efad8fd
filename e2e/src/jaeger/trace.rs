//! A trace, as reported by Jaeger.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde::Deserialize;

/// A trace.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// 32 hex digits.
    #[serde(rename = "traceID")]
    pub id: String,
    /// All of its spans.
    pub spans: Vec<Span>,
    processes: BTreeMap<String, Process>,
}

/// A part of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// 16 hex digits.
    #[serde(rename = "spanID")]
    pub id: String,
    /// The operation.
    #[serde(rename = "operationName")]
    pub name: String,
    /// Microseconds since 1970.
    pub start_time: u64,
    /// Microseconds.
    pub duration: u64,
    references: Vec<Reference>,
    tags: Vec<Tag>,
    #[serde(rename = "processID")]
    process: String,
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    ref_type: String,
    #[serde(rename = "traceID")]
    trace: String,
    #[serde(rename = "spanID")]
    span: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Tag {
    key: String,
    value: serde_json::Value,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    service_name: String,
    tags: Vec<Tag>,
}

impl Trace {
    /// The span that has no parent.
    ///
    /// # Errors
    /// When it is not one.
    pub fn root(&self) -> Result<&Span> {
        let roots: Vec<_> = self.spans.iter().filter(|s| s.parent().is_none()).collect();
        ensure!(roots.len() == 1, "{} spans have no parent", roots.len());
        Ok(roots[0])
    }

    /// All of one name.
    pub fn named<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t Span> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    /// The parts of a span.
    pub fn below<'t>(&'t self, parent: &'t Span) -> impl Iterator<Item = &'t Span> {
        let is_below = |span: &&Span| span.parent() == Some(&parent.id);
        self.spans.iter().filter(is_below)
    }

    /// All spans below the root and itself, each before its parts and these by time, with how many
    /// stand above it. None where there is no root.
    #[must_use]
    pub fn in_order(&self) -> Vec<(usize, &Span)> {
        let mut open: Vec<_> = self.root().ok().map(|root| (0, root)).into_iter().collect();
        let mut order = Vec::new();
        // Spans that share an id could be below each other.
        while order.len() < self.spans.len()
            && let Some((depth, span)) = open.pop()
        {
            order.push((depth, span));
            let mut below: Vec<_> = self.below(span).map(|span| (depth + 1, span)).collect();
            below.sort_by(|(_, one), (_, other)| other.order().cmp(&one.order()));
            open.extend(below);
        }
        order
    }

    /// The owner: the service, and for an agent the node.
    #[must_use]
    pub fn whose(&self, span: &Span) -> (&str, Option<&str>) {
        let Some(process) = self.processes.get(&span.process) else {
            return ("", None);
        };
        let node = tag(&process.tags, "k8s.node.name");
        (&process.service_name, node.and_then(|node| node.as_str()))
    }

    /// Which objects changed, in the controller's words.
    #[must_use]
    pub fn changed(&self) -> &str {
        let root = self.root().ok();
        let words = root.and_then(|root| root.tag("portolan.changed")?.as_str());
        words.unwrap_or_default()
    }

    /// When the controller saw it; `None` where it was not planned.
    #[must_use]
    pub fn seen(&self) -> Option<SystemTime> {
        let queue = self.named("queue").next()?;
        UNIX_EPOCH.checked_add(Duration::from_micros(queue.start_time))
    }
}

impl Span {
    pub(super) fn parent(&self) -> Option<&String> {
        let of = self.references.iter().find(|of| of.ref_type == "CHILD_OF");
        of.map(|of| &of.span)
    }

    /// By time; what is sent to several nodes begins at once, and a step may take no time.
    fn order(&self) -> (u64, Option<&str>, u64) {
        (self.start_time, self.node(), self.duration)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start_time.saturating_add(self.duration)
    }

    /// Traces and spans that it is linked with.
    pub fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        let links = self
            .references
            .iter()
            .filter(|of| of.ref_type != "CHILD_OF");
        links.map(|of| (&*of.trace, &*of.span))
    }

    /// A tag of the span.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&serde_json::Value> {
        tag(&self.tags, key)
    }

    /// The node in its tags.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.tag("k8s.node.name")?.as_str()
    }

    /// The error of the span.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.tag("otel.status_description")?.as_str()
    }

    pub(super) fn oddity(&self) -> Option<&String> {
        self.warnings.iter().flatten().next()
    }
}

fn tag<'t>(tags: &'t [Tag], key: &str) -> Option<&'t serde_json::Value> {
    let tag = tags.iter().find(|tag| tag.key == key);
    tag.map(|tag| &tag.value)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;

    #[test]
    fn spans_come_before_their_parts_and_parts_by_time() {
        let trace = fixture::change();
        let order: Vec<_> = trace
            .in_order()
            .into_iter()
            .map(|(depth, span)| format!("{}{}", "-".repeat(depth), span.name))
            .collect();
        assert_eq!(
            order[..10].join(" "),
            "change -watch -queue -plan -encode -deliver --turn --send --apply ---wait"
        );
        assert_eq!(order.len(), trace.spans.len());
    }

    #[test]
    fn of_spans_that_begin_at_once_the_first_nodes_and_the_shorter_come_first() {
        let trace = fixture::trace(&[
            ("1", "", "change", 0, 10, "c"),
            ("b", "1", "deliver", 0, 5, "c"),
            ("a", "1", "deliver", 0, 7, "c"),
            ("a2", "a", "send", 0, 1, "c"),
            ("a1", "a", "turn", 0, 0, "c"),
        ]);
        let order = trace.in_order();
        let ids: Vec<_> = order.iter().map(|(_, span)| span.id.as_str()).collect();
        assert_eq!(ids, ["1", "a", "a1", "a2", "b"]);
    }

    #[test]
    fn spans_with_one_id_do_not_make_an_endless_trace() {
        let trace = fixture::trace(&[
            ("1", "", "change", 0, 10, "c"),
            ("2", "1", "deliver", 0, 10, "c"),
            ("2", "2", "apply", 0, 10, "c"),
        ]);
        assert_eq!(trace.in_order().len(), 3);
    }
}
