//! The required shape of the trace of a change.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::{Span, Trace};

impl Trace {
    /// Fails unless every span has its parent, lies within it, and Jaeger finds nothing odd.
    ///
    /// # Errors
    /// Which span, and what about it.
    pub fn check_shape(&self) -> Result<()> {
        self.root()?;
        for span in &self.spans {
            let warning = span.oddity();
            ensure!(warning.is_none(), "{}: {warning:?}", span.name);
            let Some(parent) = span.parent() else {
                continue;
            };
            let parent = self.spans.iter().find(|other| other.id == *parent);
            let parent = parent.with_context(|| format!("{} has lost its parent", span.name))?;
            // Both are cut to whole microseconds.
            let within = span.start_time >= parent.start_time && span.end() <= parent.end() + 1;
            ensure!(within, "{} leaves {}: {self:?}", span.name, parent.name);
        }
        Ok(())
    }

    /// Fails unless the trace leads from a trigger through all steps of the controller to the steps of the agents of
    /// exactly these nodes, with each span below its parent and of the right service.
    ///
    /// # Errors
    /// Names the missing or unexpected span.
    pub fn check_change(&self, nodes: &[&str]) -> Result<()> {
        let root = self.root()?;
        ensure!(root.name == "change", "it is called {}", root.name);
        let names: Vec<_> = self.below(root).map(|span| span.name.as_str()).collect();
        for wanted in ["watch", "queue", "plan", "encode"] {
            let count = names.iter().filter(|name| **name == wanted).count();
            ensure!(count == 1, "{count} of {wanted} in {names:?}");
        }
        let whose = self.whose(root);
        ensure!(whose == ("portolan-controller", None), "{whose:?}");
        let mut met = Vec::new();
        for deliver in self.below(root).filter(|span| span.name == "deliver") {
            let node = deliver.node().context("a delivery without a node")?;
            let own: Vec<&Span> = self.below(deliver).collect();
            let names: BTreeSet<_> = own.iter().map(|span| span.name.as_str()).collect();
            ensure!(names == ["apply", "send", "turn"].into(), "{names:?}");
            let apply = own.iter().find(|span| span.name == "apply");
            let apply = apply.context("no apply")?;
            for span in self.below(apply).chain([*apply]) {
                let whose = self.whose(span);
                let right = whose == ("portolan-agent", Some(node));
                ensure!(right, "{} is of {whose:?}", span.name);
            }
            met.push(node);
        }
        met.sort_unstable();
        ensure!(met == nodes, "it reached {met:?}");
        Ok(())
    }

    /// The delivery span of a node.
    ///
    /// # Errors
    /// If the change was not sent there.
    pub fn delivery(&self, node: &str) -> Result<&Span> {
        let mut all = self.named("deliver");
        let found = all.find(|span| span.node() == Some(node));
        found.with_context(|| format!("{} was not sent to {node}: {self:?}", self.id))
    }

    /// Fails unless the batch of this trace to a node took the change of another one along, what was done
    /// there is drawn here only, and both are linked.
    ///
    /// # Errors
    /// Names the mismatch.
    pub fn check_took_along(&self, other: &Self, node: &str) -> Result<()> {
        let (held, went) = (self.delivery(node)?, other.delivery(node)?);
        let there = went.links().any(|link| link == (&*self.id, &*held.id));
        let back = held.links().any(|(trace, _)| trace == other.id);
        ensure!(there && back, "not linked both ways: {held:?} {went:?}");
        let drawn_twice = other.below(went).next();
        ensure!(drawn_twice.is_none(), "it is drawn twice: {drawn_twice:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;

    #[test]
    fn a_change_that_reached_two_nodes_is_as_it_should_be() {
        let trace = fixture::change();
        trace.check_shape().unwrap();
        trace.check_change(&["node-a", "node-b"]).unwrap();
        let error = trace.check_change(&["node-a"]).unwrap_err().to_string();
        assert_eq!(error, r#"it reached ["node-a", "node-b"]"#);
    }

    #[test]
    fn a_span_outside_its_parent_or_without_one_is_reported() {
        let wrong = |spans: &[fixture::Line<'_>]| {
            let error = fixture::trace(spans).check_shape().unwrap_err();
            error.to_string()
        };
        let change = ("1", "", "change", 5, 10, "c");
        let later = wrong(&[change, ("2", "1", "watch", 7, 10, "c")]);
        assert!(later.starts_with("watch leaves change"), "{later}");
        let earlier = wrong(&[change, ("2", "1", "watch", 4, 2, "c")]);
        assert!(earlier.starts_with("watch leaves change"), "{earlier}");
        let lost = wrong(&[change, ("2", "9", "watch", 5, 1, "c")]);
        assert_eq!(lost, "watch has lost its parent");
        let two = wrong(&[change, ("2", "", "watch", 5, 1, "c")]);
        assert_eq!(two, "2 spans have no parent");
    }
}
