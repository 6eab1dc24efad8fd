//! Renders the metrics table of a document from the registry itself, so that the table lists only metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Error;

use prometheus_client::registry::Registry;

use crate::Format;

/// The suffixes of a histogram's samples.
const PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];

#[derive(Debug, Default)]
struct Metric<'a> {
    kind: &'a str,
    help: &'a str,
    labels: BTreeSet<&'a str>,
}

/// A Markdown table with the columns metric, type, labels and meaning, sorted by name. The labels are taken from the
/// series in the registry, so each metric should have at least one series. The label `le` of histograms is left out.
///
/// # Errors
/// The same as [`Format::encode`].
pub fn document(registry: &Registry) -> Result<String, Error> {
    let text = Format::Text.encode(registry)?;
    let mut table =
        String::from("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for (name, metric) in read(&text) {
        let labels: Vec<_> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (kind, labels) = (metric.kind, labels.join(", "));
        let meaning = metric.help.trim_end_matches('.').replace('|', "\\|");
        table.push_str(&format!("| `{name}` | {kind} | {labels} | {meaning} |\n"));
    }
    Ok(table)
}

fn read(text: &str) -> BTreeMap<&str, Metric<'_>> {
    let mut metrics: BTreeMap<&str, Metric<'_>> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            metrics.entry(name).or_default().help = help;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            metrics.entry(name).or_default().kind = kind;
        } else {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let name = &line[..end];
            let of = PARTS.iter().find_map(|part| name.strip_suffix(part));
            let of = of.filter(|base| metrics.get(base).is_some_and(|m| m.kind == "histogram"));
            let found = metrics.entry(of.unwrap_or(name)).or_default();
            found
                .labels
                .extend(labels(&line[end..]).filter(|label| *label != "le"));
        }
    }
    metrics
}

/// The label names of a sample; `rest` is the text after the sample's name.
fn labels(rest: &str) -> impl Iterator<Item = &str> {
    let names = rest.split("=\"").collect::<Vec<_>>();
    let count = names.len();
    let names = names.into_iter().take(count - 1);
    names.map(|before| before.rsplit(['{', ',']).next().unwrap_or(before))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    use super::*;

    #[test]
    fn every_metric_is_a_row_with_its_labels() {
        let mut registry = Registry::default();
        let family: Family<Vec<(String, String)>, Counter> = Family::default();
        let label = |name: &str| (name.to_owned(), "a,b=c".to_owned());
        drop(family.get_or_create(&vec![label("reason"), label("ip_family")]));
        registry.register("refusals", "Refused | not taken", family);
        registry.register("plans", "Plans", Gauge::<i64>::default());
        let buckets = [0.1, 1.0].into_iter();
        registry.register("took_seconds", "How long", Histogram::new(buckets));
        insta::assert_snapshot!(document(&registry).unwrap(), @r"
        | metric | type | labels | meaning |
        | --- | --- | --- | --- |
        | `plans` | gauge |  | Plans |
        | `refusals_total` | counter | `ip_family`, `reason` | Refused \| not taken |
        | `took_seconds` | histogram |  | How long |
        ");
    }
}
