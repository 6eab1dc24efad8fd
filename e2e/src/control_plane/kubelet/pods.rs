//! The kubelet's state of pods and nodes, and its next actions. Pure: time is an argument, and
//! decisions are values.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::pool::{AddressPool, PodAddresses};

/// After a failure, and when nothing can be done for lack of a node or an address.
const AGAIN: Duration = Duration::from_millis(300);

/// A pod as last reported by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) containers: Vec<(String, String)>,
    pub(super) node: Option<String>,
    pub(super) addresses: PodAddresses,
    pub(super) running: bool,
    pub(super) terminating: bool,
    /// Succeeded or failed: nothing is to be done but to delete it.
    pub(super) over: bool,
}

#[derive(Debug)]
struct Pod {
    seen: Seen,
    /// Taken from a node's pool for it, from the moment it is to be bound; given back when it is
    /// gone.
    addresses: Option<(String, PodAddresses)>,
    ends: Option<Instant>,
    busy: bool,
}

/// One request to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Bind(String),
    Run {
        addresses: PodAddresses,
        host: Option<IpAddr>,
    },
    Delete,
}

/// An action and the pod that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) pod: Seen,
    pub(super) action: Action,
}

/// A node of this kubelet as last reported by the API server.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenNode {
    pub(super) schedulable: bool,
    pub(super) address: Option<IpAddr>,
}

/// The state of the kubelet.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: HashMap<String, Pod>,
    due: BTreeSet<(Instant, String)>,
    /// Names of this kubelet's nodes, with the Node object as long as it exists.
    nodes: BTreeMap<String, Option<SeenNode>>,
    last_node: String,
    pub(super) pool: AddressPool,
    pub(super) grace: Duration,
    pub(super) trouble: Option<String>,
}

/// Number of pods by state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pods that wait for a node, an address or their first status.
    pub waiting: usize,
    /// Pods that run.
    pub running: usize,
    /// Pods that are being deleted.
    pub terminating: usize,
    /// The last thing that went wrong, if nothing went right since.
    pub trouble: Option<String>,
}

impl Pods {
    /// From now on pods run on this node, those included that it has already.
    pub(super) fn own_node(&mut self, name: &str, now: Instant) {
        self.nodes.entry(name.to_owned()).or_default();
        let of_node = |pod: &&Pod| pod.seen.node.as_deref() == Some(name);
        let uids = self
            .pods
            .values()
            .filter(of_node)
            .map(|pod| pod.seen.uid.clone());
        self.due.extend(uids.map(|uid| (now, uid)));
    }

    pub(super) fn node(&mut self, name: &str, seen: Option<SeenNode>) {
        if let Some(node) = self.nodes.get_mut(name) {
            *node = seen;
        }
    }

    /// Removes nodes that are not in this list.
    pub(super) fn only_nodes(&mut self, names: &BTreeSet<String>) {
        for (name, node) in &mut self.nodes {
            if !names.contains(name) {
                *node = None;
            }
        }
    }

    pub(super) fn pod(&mut self, seen: Seen, now: Instant) {
        let uid = seen.uid.clone();
        let pod = self.pods.entry(uid.clone()).or_insert_with(|| Pod {
            seen: seen.clone(),
            addresses: None,
            ends: None,
            busy: false,
        });
        if pod.addresses.is_none()
            && let (Some(node), false) = (&seen.node, seen.addresses.is_empty())
        {
            self.pool.take_these(node, &seen.addresses);
            pod.addresses = Some((node.clone(), seen.addresses.clone()));
        }
        if seen.terminating && pod.ends.is_none() {
            pod.ends = Some(now + self.grace);
        }
        // The watch may still be behind what our own requests have achieved.
        let before = std::mem::replace(&mut pod.seen, seen);
        pod.seen.running |= before.running && !pod.seen.over;
        pod.seen.node = pod.seen.node.take().or(before.node);
        self.due.insert((now, uid));
    }

    pub(super) fn gone(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid)
            && let Some((node, addresses)) = pod.addresses
        {
            self.pool.give_back(&node, addresses);
        }
    }

    /// Pods that are not in this list are gone.
    pub(super) fn only(&mut self, uids: &BTreeSet<String>) {
        let gone: Vec<String> = self
            .pods
            .keys()
            .filter(|uid| !uids.contains(*uid))
            .cloned()
            .collect();
        gone.iter().for_each(|uid| self.gone(uid));
    }

    /// The next request that is due, if one is; its pod gets no other until [`Self::done`].
    pub(super) fn next(&mut self, now: Instant) -> Option<Work> {
        while let Some((when, _)) = self.due.first()
            && *when <= now
        {
            let (_, uid) = self.due.pop_first()?;
            let Some(mut pod) = self.pods.remove(&uid) else {
                continue;
            };
            let work = if pod.busy {
                None
            } else {
                self.decide(&uid, &mut pod, now)
            };
            pod.busy |= work.is_some();
            self.pods.insert(uid, pod);
            if work.is_some() {
                return work;
            }
        }
        None
    }

    /// When the next request is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(when, _)| *when)
    }

    /// Handles the response of a request. Its effect counts at once, since the watch event may come
    /// later.
    pub(super) fn done(&mut self, work: Work, result: Result<(), String>, now: Instant) {
        let Some(pod) = self.pods.get_mut(&work.pod.uid) else {
            return;
        };
        pod.busy = false;
        let uid = work.pod.uid;
        match result {
            Ok(()) => {
                self.trouble = None;
                match work.action {
                    Action::Bind(node) => pod.seen.node = Some(node),
                    Action::Run { .. } => pod.seen.running = true,
                    // Only its disappearance is to be waited for.
                    Action::Delete => return,
                }
                self.due.insert((now, uid));
            }
            Err(error) => {
                self.trouble = Some(error);
                if matches!(work.action, Action::Bind(_))
                    && let Some((node, addresses)) = pod.addresses.take()
                {
                    self.pool.give_back(&node, addresses);
                }
                self.due.insert((now + AGAIN, uid));
            }
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary {
            trouble: self.trouble.clone(),
            ..Summary::default()
        };
        for pod in self.pods.values().filter(|pod| self.is_ours(&pod.seen)) {
            if pod.seen.terminating {
                summary.terminating += 1;
            } else if pod.seen.running {
                summary.running += 1;
            } else if !pod.seen.over {
                summary.waiting += 1;
            }
        }
        summary
    }

    /// Whether the pod is on a node of this kubelet or can be bound to one.
    fn is_ours(&self, pod: &Seen) -> bool {
        pod.node
            .as_ref()
            .is_none_or(|node| self.nodes.contains_key(node))
    }

    fn decide(&mut self, uid: &str, pod: &mut Pod, now: Instant) -> Option<Work> {
        let work = |pod: &Pod, action| {
            Some(Work {
                pod: pod.seen.clone(),
                action,
            })
        };
        if !self.is_ours(&pod.seen) {
            return None;
        }
        if let Some(ends) = pod.ends {
            if ends <= now {
                return work(pod, Action::Delete);
            }
            self.due.insert((ends, uid.to_owned()));
            return None;
        }
        let Some(node) = pod.seen.node.clone() else {
            let Some(node) = self.next_node() else {
                return self.later(uid, now, "no node takes pods".to_owned());
            };
            // Taken now: another pod that is bound at the same time must not count on it.
            pod.addresses = self.pool.take(&node).map(|some| (node.clone(), some));
            return work(pod, Action::Bind(node));
        };
        if pod.seen.running || pod.seen.over {
            return None;
        }
        if pod.addresses.is_none() {
            pod.addresses = self.pool.take(&node).map(|some| (node.clone(), some));
        }
        let Some((_, addresses)) = pod.addresses.clone() else {
            return self.later(uid, now, format!("no address is left on {node}"));
        };
        let host = self
            .nodes
            .get(&node)
            .and_then(|node| node.as_ref()?.address);
        work(pod, Action::Run { addresses, host })
    }

    fn later(&mut self, uid: &str, now: Instant, why: String) -> Option<Work> {
        self.trouble = Some(why);
        self.due.insert((now + AGAIN, uid.to_owned()));
        None
    }

    /// Nodes that take pods and have room, one after the other.
    fn next_node(&mut self) -> Option<String> {
        let takes = |name: &&String| {
            self.nodes
                .get(*name)
                .and_then(Option::as_ref)
                .is_some_and(|node| node.schedulable && self.pool.left(name) > 0)
        };
        let after = self
            .nodes
            .keys()
            .filter(|name| **name > self.last_node)
            .find(takes);
        let chosen = after.or_else(|| self.nodes.keys().find(takes))?.clone();
        self.last_node.clone_from(&chosen);
        Some(chosen)
    }
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
