//! A trace as text.

use super::Trace;

/// A line for each span, parts indented below what they are parts of: when it began, how long it
/// took, and whose it is.
#[must_use]
pub fn lines(trace: &Trace) -> Vec<String> {
    let order = trace.in_order();
    let start = order.first().map_or(0, |(_, root)| root.start_time);
    let milliseconds = |micros: u64| micros as f64 / 1000.0;
    let line = |(depth, span): (usize, &super::Span)| {
        let (service, node) = trace.whose(span);
        format!(
            "{:>10.3} ms {:>10.3} ms  {:indent$}{} ({service}{}{})",
            milliseconds(span.start_time.saturating_sub(start)),
            milliseconds(span.duration),
            "",
            span.name,
            if node.is_some() { " on " } else { "" },
            node.unwrap_or_default(),
            indent = 2 * depth,
        )
    };
    order.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;

    #[test]
    fn a_line_has_start_duration_name_and_owner() {
        let lines = super::lines(&fixture::change());
        assert_eq!(
            lines[0],
            "     0.000 ms    412.400 ms  change (portolan-controller)"
        );
        assert_eq!(
            lines[8],
            "   381.950 ms     28.300 ms      apply (portolan-agent on node-a)"
        );
    }
}
