//! The progress of a task that a DaemonSet's pods run once, in their init container. Pure.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// The progress on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is done.
    Done,
    /// It failed the maximum number of times; with its last output.
    Failed(String),
    /// It is running or waiting; with the reason.
    Waiting(String),
}

/// The progress on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// By node name.
    by_name: BTreeMap<String, State>,
    /// Number of nodes that should have a pod, once known.
    wanted: Option<usize>,
}

impl Nodes {
    /// The progress from a DaemonSet and its pods. A node where the container failed `tries` times has failed.
    #[must_use]
    pub fn of(set: &DaemonSet, pods: &[Pod], tries: i32) -> Self {
        let status = set.status.as_ref();
        let seen = status.filter(|status| status.observed_generation >= set.metadata.generation);
        let wanted = seen.and_then(|status| usize::try_from(status.desired_number_scheduled).ok());
        let by_name = pods.iter().filter_map(|pod| {
            let node = pod.spec.as_ref()?.node_name.clone()?;
            Some((node, state(pod, tries)))
        });
        Self {
            by_name: by_name.collect(),
            wanted,
        }
    }

    /// Whether every node is done or has failed.
    #[must_use]
    pub fn are_decided(&self) -> bool {
        let mut states = self.by_name.values();
        self.wanted == Some(self.by_name.len())
            && !states.any(|state| matches!(state, State::Waiting(_)))
    }

    /// Whether every node is done.
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.are_decided() && self.by_name.values().all(|state| *state == State::Done)
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, state) in &self.by_name {
            match state {
                State::Done => writeln!(f, "{node}: done")?,
                State::Failed(words) => writeln!(f, "{node}: FAILED\n{}", indented(words))?,
                State::Waiting(words) => writeln!(f, "{node}: not done: {words}")?,
            }
        }
        let done = self.by_name.values().filter(|state| **state == State::Done);
        match self.wanted {
            Some(0) => write!(
                f,
                "the DaemonSet selects no node, so nothing was done; check agents.nodeSelector and agents.affinity of \
                 the chart if that is not intended"
            ),
            Some(wanted) => write!(f, "done on {} of {wanted} nodes", done.count()),
            None => write!(f, "the DaemonSet has no status from its controller yet"),
        }
    }
}

fn indented(words: &str) -> String {
    let lines = words.lines().map(|line| format!("  {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn state(pod: &Pod, tries: i32) -> State {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.init_container_statuses.as_ref());
    let Some(container) = containers.and_then(|all| all.first()) else {
        let phase = status.and_then(|status| status.phase.clone());
        return State::Waiting(phase.unwrap_or_else(|| "no status".to_owned()));
    };
    if let Some((code, words)) = ended(container) {
        if code == 0 {
            return State::Done;
        }
        // The first failure is not a restart.
        if container.restart_count + 1 >= tries {
            return State::Failed(words);
        }
    }
    let waiting = container
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.clone());
    State::Waiting(reason.unwrap_or_else(|| "it runs".to_owned()))
}

/// The exit code of a container's last run, and its last output.
fn ended(container: &ContainerStatus) -> Option<(i32, String)> {
    let states = [&container.state, &container.last_state];
    let mut states = states.into_iter().flatten();
    let ended = states.find_map(|state| state.terminated.as_ref())?;
    let words = ended.message.clone().or_else(|| ended.reason.clone());
    Some((ended.exit_code, words.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, init: &Value) -> Pod {
        let statuses: Vec<_> = init.is_object().then_some(init).into_iter().collect();
        let pod = json!({
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Pending", "initContainerStatuses": statuses},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn container(state: &Value, last: &Value, restarts: i32) -> Value {
        json!({
            "name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
            "state": state, "lastState": last,
        })
    }

    fn set(wanted: i32) -> DaemonSet {
        let set = json!({
            "metadata": {"generation": 1},
            "status": {
                "observedGeneration": 1, "desiredNumberScheduled": wanted, "currentNumberScheduled": 0,
                "numberMisscheduled": 0, "numberReady": 0,
            },
        });
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn nodes_are_decided_once_each_is_done_or_has_failed() {
        let done = container(&json!({"terminated": {"exitCode": 0}}), &json!({}), 0);
        let failed = json!({"terminated": {"exitCode": 1, "message": "no ip_vs"}});
        let again = container(
            &json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            &failed,
            0,
        );
        let nodes = |tries| Nodes::of(&set(2), &[pod("a", &done), pod("b", &again)], tries);
        assert!(nodes(1).are_decided() && !nodes(1).are_done());
        assert_eq!(
            nodes(1).to_string(),
            "a: done\nb: FAILED\n  no ip_vs\ndone on 1 of 2 nodes"
        );
        assert!(!nodes(2).are_decided());
        assert!(
            nodes(2)
                .to_string()
                .contains("b: not done: CrashLoopBackOff")
        );
    }

    #[test]
    fn a_node_without_a_pod_and_one_whose_container_has_not_begun_are_waited_for() {
        let done = container(&json!({"terminated": {"exitCode": 0}}), &json!({}), 0);
        let one = [pod("a", &done)];
        assert!(Nodes::of(&set(1), &one, 1).are_done());
        assert!(!Nodes::of(&set(2), &one, 1).are_decided());
        assert!(!Nodes::of(&set(1), &[pod("a", &Value::Null)], 1).are_decided());
        assert!(!Nodes::of(&DaemonSet::default(), &one, 1).are_decided());
        let none = Nodes::of(&set(0), &[], 1);
        assert!(none.are_done(), "no node has to have one");
        assert!(none.to_string().contains("agents.nodeSelector"), "{none}");
    }
}
