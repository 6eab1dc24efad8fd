//! The registry as every scraper reads it. The library writes OpenMetrics, where a counter's name lacks
//! the `_total` of its samples; scrapers of the older text format would take such samples for metrics
//! without a type.

use std::collections::BTreeSet;
use std::fmt::{Error, Write as _};

use prometheus_client::registry::Registry;

/// The registry in text format 0.0.4.
pub(super) fn encode(registry: &Registry) -> Result<String, Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    older(&text)
}

fn older(text: &str) -> Result<String, Error> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let counters: BTreeSet<_> = types
        .filter_map(|rest| rest.strip_suffix(" counter"))
        .collect();
    let mut older = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                writeln!(older, "# {what} {name}_total {rest}")?;
            }
            _ => writeln!(older, "{line}")?,
        }
    }
    Ok(older)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_name_of_their_samples_and_others_stay() {
        let text = "# HELP a Some a.\n# TYPE a counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let older = older(text).unwrap();
        assert_eq!(
            older,
            "# HELP a_total Some a.\n# TYPE a_total counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n"
        );
    }
}
