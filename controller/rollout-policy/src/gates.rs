//! Evaluates the gates from the reports of nodes that have received a change.

use crate::node::{Agent, Health};
use crate::{Gates, Node, Progress};

/// Counts of the reports of nodes that have received a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nodes that the change affects.
    pub total: usize,
    /// Affected nodes whose agents it replaces.
    pub replaced: usize,
    /// Affected nodes that have received it.
    pub touched: usize,
    /// Nodes that have applied it.
    pub settled: usize,
    /// Nodes that have not answered yet.
    pub pending: usize,
    /// Excused nodes that serve and are about to lose their agents.
    pub leaving: usize,
    /// Nodes whose agents are no longer connected.
    pub disconnected: usize,
    /// Nodes that fail.
    pub failed: usize,
    /// Nodes whose kernel entries other programs changed.
    pub drifted: usize,
    /// Programming time that 99 of 100 nodes do not exceed, milliseconds.
    pub programming_p99: Option<u64>,
    /// The first failing node and the cause.
    pub first_failed: Option<String>,
    /// The first node that has not answered.
    pub first_pending: Option<String>,
    /// The first node that is disconnected.
    pub first_disconnected: Option<String>,
    /// The first node that drifted.
    pub first_drifted: Option<String>,
}

impl Tally {
    /// Counts the reports of nodes. Excused nodes are only counted as reached.
    pub fn of(progress: &Progress, nodes: &[Node]) -> Self {
        let mut tally = Self::default();
        let mut lags = Vec::new();
        for node in nodes.iter().filter(|node| node.affected) {
            tally.total += 1;
            tally.replaced += usize::from(node.agent != Agent::Stays);
            if !progress.reach.includes(&node.name, &node.zone) {
                continue;
            }
            tally.touched += 1;
            if progress.excused.contains(&node.name) {
                let serves = node.report.health != Health::Disconnected;
                tally.leaving += usize::from(node.agent == Agent::Old && serves);
                continue;
            }
            let name = || node.name.to_string();
            if node.report.drifted {
                tally.drifted += 1;
                tally.first_drifted.get_or_insert_with(name);
            }
            match &node.report.health {
                Health::Failing(words) => tally.fail(&node.name, words),
                // A node that joined and never had an agent has lost nothing; canaries had one.
                Health::Disconnected
                    if node.report.applied.is_none() && !is_canary(progress, node) => {}
                Health::Disconnected => {
                    tally.disconnected += 1;
                    tally.first_disconnected.get_or_insert_with(name);
                }
                Health::Sound if node.has(progress.target) => {
                    tally.settled += 1;
                    lags.extend(node.report.lag);
                }
                // No timeout here: an overdue answer is reported as a failure by the code that waits for it, and an
                // overdue pod by `advance`.
                Health::Sound | Health::Silent => {
                    tally.pending += 1;
                    tally.first_pending.get_or_insert_with(name);
                }
            }
        }
        tally.programming_p99 = p99(lags);
        tally
    }

    fn fail(&mut self, name: &str, words: &str) {
        self.failed += 1;
        self.first_failed
            .get_or_insert_with(|| format!("{name}: {words}"));
    }

    /// Nodes that fail or are disconnected.
    pub(crate) fn unavailable(&self) -> usize {
        self.failed + self.disconnected
    }

    /// The same for messages, with the name of the first node.
    pub(crate) fn lost_nodes(&self) -> String {
        let first = self
            .first_disconnected
            .as_ref()
            .or(self.first_failed.as_ref());
        let first = first.map_or("", String::as_str);
        format!("{} nodes (first: {first})", self.unavailable())
    }

    /// Why a gate fails; `None` if all gates pass.
    pub(crate) fn trouble(&self, gates: &Gates) -> Option<String> {
        let first = |name: &Option<String>| name.clone().unwrap_or_default();
        if self.failed > size(gates.max_failed) {
            return Some(format!(
                "{} of {} nodes with the change fail, gate maxFailedNodes is {}; first: {}",
                self.failed,
                self.touched,
                gates.max_failed,
                first(&self.first_failed)
            ));
        }
        if self.drifted > size(gates.max_drifted) {
            return Some(format!(
                "other programs changed the kernel of {} of {} nodes with the change, gate \
                 maxDriftedNodes is {}; first: {}",
                self.drifted,
                self.touched,
                gates.max_drifted,
                first(&self.first_drifted)
            ));
        }
        let slowest = self.programming_p99.unwrap_or_default();
        (slowest > gates.programming_p99).then(|| {
            format!(
                "programming took up to {slowest} ms on 99 of 100 nodes with the change, gate \
                 programmingP99 is {} ms",
                gates.programming_p99
            )
        })
    }
}

fn is_canary(progress: &Progress, node: &Node) -> bool {
    progress.reach.nodes.contains(&node.name)
}

/// The 99th percentile.
fn p99(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_in_a_hundred_do_not_exceed_it() {
        assert_eq!(p99(Vec::new()), None);
        assert_eq!(p99(vec![7]), Some(7));
        assert_eq!(p99((1..=100).rev().collect()), Some(99));
        assert_eq!(p99((1..=101).collect()), Some(100));
    }
}
