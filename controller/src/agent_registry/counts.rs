//! What the registry knows about all nodes together: how many have a version of the plans, and which do not.

use std::sync::Arc;

use super::{AgentRegistry, Delivery, MAX_LISTED_ITEMS};

impl AgentRegistry {
    /// Number of agents with an open stream to this controller.
    pub fn connected_agents(&self) -> usize {
        let nodes = self.nodes();
        let open = nodes.deliveries.values().filter(|of| of.connected);
        open.count()
    }

    /// Number of connected nodes that have this version of the plans in force, and number of those that do not.
    pub fn convergence(&self, version: u64, is_node: impl Fn(&str) -> bool) -> (usize, usize) {
        let nodes = self.nodes();
        let (mut in_force, mut behind) = (0, 0);
        for (node, delivery) in &nodes.deliveries {
            if !(delivery.connected && is_node(node)) {
                continue;
            }
            if delivery.in_force.version() >= version {
                in_force += 1;
            } else {
                behind += 1;
            }
        }
        (in_force, behind)
    }

    /// Number of agents that do not have this version of the plans in force yet, and the first [`MAX_LISTED_ITEMS`] of
    /// their nodes. An agent whose last answer had failures or unreadable entries is not waited for, because these
    /// may never end. Nor is one without any answer: its first plan is not a change.
    pub fn waited_for(
        &self,
        version: u64,
        is_node: impl Fn(&str) -> bool,
    ) -> (usize, Vec<Arc<str>>) {
        let nodes = self.nodes();
        let waited = nodes.deliveries.iter().filter(|(node, delivery)| {
            delivery.in_force.version() < version && delivery.makes_wait() && is_node(node)
        });
        let (mut count, mut first) = (0, Vec::new());
        for (node, _) in waited {
            count += 1;
            if first.len() < MAX_LISTED_ITEMS {
                first.push(node.clone());
            }
        }
        (count, first)
    }

    /// The lowest version of the plans that is in force on an agent that can be waited for, see [`Self::waited_for`];
    /// `None` without such agents. All of them have this version and the ones before.
    pub fn lowest_in_force(&self, is_node: impl Fn(&str) -> bool) -> Option<u64> {
        let nodes = self.nodes();
        let mut lowest = None;
        for (node, delivery) in &nodes.deliveries {
            let version = delivery.in_force.version();
            let is_lower = lowest.is_none_or(|lowest| version < lowest);
            if is_lower && delivery.makes_wait() && is_node(node) {
                lowest = Some(version);
            }
        }
        lowest
    }

    /// Number of connected nodes on which some Service is not in force, and the largest number of such Services on one
    /// node.
    pub fn failing_services(&self, is_node: impl Fn(&str) -> bool) -> (usize, u32) {
        let nodes = self.nodes();
        let connected = nodes.deliveries.iter();
        let connected = connected.filter(|(node, of)| of.connected && is_node(node));
        let failing = connected.map(|(_, delivery)| delivery.failing_services());
        let failing = failing.filter(|services| *services > 0);
        failing.fold((0, 0), |(count, most), services| {
            (count + 1, most.max(services))
        })
    }
}

impl Delivery {
    /// Whether changes wait for this agent.
    fn makes_wait(&self) -> bool {
        let answered = self.acked.as_ref();
        self.connected
            && answered.is_some_and(|(_, acked)| {
                acked.failed_operations == 0 && acked.unreadable().is_none()
            })
    }
}
