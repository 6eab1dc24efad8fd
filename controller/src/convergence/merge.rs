//! Merges the answers of several controllers: each agent has its stream to one of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Convergence, Waiting};

/// The relevant state of a Node object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
}

/// A node that is not waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// Its name.
    pub node: String,
    /// The reason, as text.
    pub reason: String,
}

/// Whether a change is in force on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The Service, as `NAMESPACE/NAME`.
    pub service: String,
    /// Whether every node that is not excluded has the change.
    pub converged: bool,
    /// Reasons that delay the change on all nodes, as text; empty if only single nodes delay it.
    pub held_up: Vec<String>,
    /// Number of nodes that have the change in force.
    pub in_force: usize,
    /// Nodes that do not have the change yet.
    pub waiting: Vec<Waiting>,
    /// Nodes that are not waited for.
    pub excluded: Vec<Excluded>,
}

impl Verdict {
    /// Adds a reason that delays the change on all nodes.
    pub fn not_yet(&mut self, reason: &str) {
        self.converged = false;
        self.held_up.push(reason.into());
    }
}

/// Merges answers. A node whose agent is connected to no controller is waited for, unless it is not Ready, its Node
/// object is gone, or its agent has not been connected for `unseen` seconds.
///
/// `unseen` is `None` if not all controllers have answered, because that time is unknown then. If `nodes` is `None`,
/// only the time counts.
pub fn merge(
    answers: &[Convergence],
    nodes: Option<&BTreeMap<String, Node>>,
    unseen: Option<u64>,
) -> Verdict {
    let service = answers.first().map(|answer| answer.service.clone());
    let mut waiting: BTreeMap<&str, String> = BTreeMap::new();
    let mut disconnected: Option<BTreeMap<&str, u64>> = None;
    for answer in answers {
        let here = answer.disconnected.iter();
        let here: BTreeMap<_, _> = here.map(|one| (&*one.node, one.seconds)).collect();
        for Waiting { node, reason } in &answer.waiting {
            waiting.insert(node, reason.clone());
        }
        disconnected = Some(match disconnected {
            None => here,
            // A node with a stream to any controller is not disconnected.
            Some(before) => {
                let both = before.into_iter();
                let both =
                    both.filter_map(|(node, seconds)| Some((node, seconds.min(*here.get(node)?))));
                both.collect()
            }
        });
    }
    let mut excluded = Vec::new();
    for (node, seconds) in disconnected.unwrap_or_default() {
        match why_excluded(nodes, node, seconds, unseen) {
            Some(reason) => excluded.push(Excluded {
                node: node.into(),
                reason,
            }),
            None => {
                let reason = format!(
                    "for {seconds} s its agent has not been connected to any controller that answers"
                );
                waiting.insert(node, reason);
            }
        }
    }
    let held_up = held_up(answers);
    let total = answers.iter().map(|answer| answer.nodes).max().unwrap_or(0);
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|(node, reason)| Waiting {
            node: node.into(),
            reason,
        })
        .collect();
    Verdict {
        service: service.unwrap_or_default(),
        converged: held_up.is_empty() && waiting.is_empty(),
        held_up,
        in_force: total.saturating_sub(waiting.len() + excluded.len()),
        waiting,
        excluded,
    }
}

/// Reasons that delay the change on all nodes.
fn held_up(answers: &[Convergence]) -> Vec<String> {
    let mut reasons = BTreeSet::new();
    if answers.is_empty() {
        reasons.insert("no controller answers".to_owned());
    }
    for answer in answers {
        for kind in &answer.behind {
            let controller = &answer.controller;
            reasons.insert(format!(
                "controller {controller} has not planned the newest {kind} yet; if that lasts, its log says whether it \
                 can watch the API server"
            ));
        }
        if answer.listed {
            reasons.insert(format!(
                "the address is still an endpoint of {}",
                answer.service
            ));
        }
    }
    reasons.into_iter().collect()
}

fn why_excluded(
    nodes: Option<&BTreeMap<String, Node>>,
    node: &str,
    seconds: u64,
    unseen: Option<u64>,
) -> Option<String> {
    let known = nodes.map(|nodes| nodes.get(node));
    match known {
        Some(None) => Some("its Node object is gone".into()),
        Some(Some(Node { ready: false })) => {
            Some("it is not Ready, and its agent is not connected".into())
        }
        _ if unseen.is_some_and(|unseen| seconds >= unseen) => Some(format!(
            "its agent has not been connected to any controller for {seconds} s; check that an agent runs there"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Disconnected;
    use super::*;

    fn answer(waiting: &[&str], disconnected: &[(&str, u64)]) -> Convergence {
        Convergence {
            service: "shop/cart".into(),
            served: true,
            nodes: 4,
            waiting: waiting
                .iter()
                .map(|node| Waiting {
                    node: (*node).into(),
                    reason: "its agent has just connected".into(),
                })
                .collect(),
            disconnected: disconnected
                .iter()
                .map(|(node, seconds)| Disconnected {
                    node: (*node).into(),
                    seconds: *seconds,
                })
                .collect(),
            ..Convergence::default()
        }
    }

    #[test]
    fn a_node_is_with_one_of_the_controllers() {
        let one = answer(&[], &[("c", 9), ("d", 9)]);
        let two = answer(&["c"], &[("a", 9), ("b", 9)]);
        let both = merge(&[one.clone(), two], None, Some(60));
        assert!(!both.converged);
        assert_eq!((both.waiting.len(), both.in_force), (1, 3));
        let two = answer(&[], &[("a", 9), ("b", 9)]);
        assert!(merge(&[one.clone(), two], None, Some(60)).converged);
        let alone = merge(&[one], None, Some(60));
        assert!(!alone.converged, "no controller has c and d");
        assert_eq!(alone.waiting.len(), 2);
    }

    #[test]
    fn nodes_that_are_disconnected_are_waited_for_unless_there_is_a_reason() {
        let one = answer(&[], &[("c", 9), ("d", 99)]);
        let found = merge(std::slice::from_ref(&one), None, Some(60));
        assert_eq!((found.waiting.len(), found.excluded.len()), (1, 1));
        assert_eq!(found.excluded[0].node, "d");
        let found = merge(std::slice::from_ref(&one), None, None);
        assert_eq!(
            (found.waiting.len(), found.excluded.len()),
            (2, 0),
            "the controller that does not answer may have their streams"
        );
        let node = |name: &str, ready| (name.to_owned(), Node { ready });
        let nodes = BTreeMap::from([node("a", true), node("b", true), node("c", false)]);
        let found = merge(&[one], Some(&nodes), Some(6000));
        assert!(found.converged, "{found:?}");
        assert_eq!((found.excluded.len(), found.in_force), (2, 2));
    }

    #[test]
    fn an_unplanned_change_is_on_no_node() {
        assert!(!merge(&[], None, Some(60)).converged);
        let behind = Convergence {
            controller: "https://10.0.0.5:10271".into(),
            behind: vec!["EndpointSlice".into()],
            ..answer(&[], &[])
        };
        let listed = Convergence {
            listed: true,
            ..answer(&[], &[])
        };
        let expected = [
            "controller https://10.0.0.5:10271 has not planned the newest EndpointSlice yet",
            "the address is still an endpoint of shop/cart",
        ];
        for (held_up, expected) in [behind, listed].into_iter().zip(expected) {
            let found = merge(&[held_up, answer(&[], &[])], None, Some(60));
            assert!(!found.converged);
            assert_eq!(found.held_up.len(), 1);
            assert!(found.held_up[0].starts_with(expected), "{found:?}");
        }
    }
}
