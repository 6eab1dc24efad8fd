//! Converts OpenMetrics to the older text format, which differs in two ways. In OpenMetrics, the metadata of a
//! counter lacks the suffix `_total` of its samples, so scrapers of the older format would see metrics without a
//! type. OpenMetrics also has exemplars, units and an end marker, which those scrapers reject.

use std::collections::BTreeSet;
use std::fmt::{Error, Write as _};

pub(crate) fn of(text: &str) -> Result<String, Error> {
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
            (Some("#"), ..) => writeln!(older, "{line}")?,
            _ => writeln!(older, "{}", without_exemplar(line))?,
        }
    }
    Ok(older)
}

/// A sample without its exemplar. Inside a quoted label value, ` # ` is part of the value.
fn without_exemplar(sample: &str) -> &str {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in sample.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'#' if !quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_name_of_their_samples_and_others_stay() {
        let text = "# HELP a Some a.\n# TYPE a counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let older = of(text).unwrap();
        assert_eq!(
            older,
            "# HELP a_total Some a.\n# TYPE a_total counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n"
        );
    }

    #[test]
    fn exemplars_go_and_values_of_labels_stay() {
        let text = "b_bucket{le=\"1\"} 3 # {trace_id=\"ab # c\"} 0.5 17\nc{d=\"\\\" # \\\\\"} 1\n";
        assert_eq!(
            of(text).unwrap(),
            "b_bucket{le=\"1\"} 3\nc{d=\"\\\" # \\\\\"} 1\n"
        );
    }
}
