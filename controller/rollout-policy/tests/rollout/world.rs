//! A cluster whose nodes apply, with a delay, the revision that a rollout assigns to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_rollout_policy::{
    Agent as Change, Asked, Health, Moment, Node, Policy, Report, Stage, State, Tally,
};

/// A node that applies the revision assigned to it.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) zone: Arc<str>,
    pub(crate) connected: bool,
    pub(crate) failing: bool,
    pub(crate) drifted: bool,
    pub(crate) applied: Option<u64>,
    pub(crate) lag: u64,
    pub(crate) affected: bool,
    /// Its agent has stopped and returns with the assigned revision.
    pub(crate) coming: bool,
}

impl Agent {
    pub(crate) fn sound(zone: &str, applied: u64) -> Self {
        Self {
            zone: zone.into(),
            connected: true,
            failing: false,
            drifted: false,
            applied: Some(applied),
            lag: 10,
            affected: true,
            coming: false,
        }
    }
}

/// The whole cluster.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) agents: BTreeMap<Arc<str>, Agent>,
    pub(crate) state: State,
    pub(crate) asked: Asked,
    pub(crate) now: Moment,
    /// A revision that makes nodes fail once they have it.
    pub(crate) poison: Option<Arc<str>>,
    /// Changes replace agents.
    pub(crate) replaces: bool,
}

impl World {
    /// `nodes` healthy nodes, spread over `zones` zones.
    pub(crate) fn new(nodes: usize, zones: usize, policy: Policy) -> Self {
        let names = (0..nodes).map(|number| format!("node-{number}"));
        let agent = |number: usize| Agent::sound(&format!("zone-{}", number % zones), 1);
        let agents = names.enumerate();
        let agents = agents.map(|(number, name)| (name.into(), agent(number)));
        Self {
            agents: agents.collect(),
            state: State::first("one".into(), 1, 0),
            asked: Asked {
                content: "one".into(),
                generation: 1,
                policy: Some(policy),
            },
            now: 1000,
            poison: None,
            replaces: false,
        }
    }

    pub(crate) fn ask(&mut self, content: &str) {
        self.asked.content = content.into();
        self.asked.generation += 1;
    }

    pub(crate) fn policy(&mut self) -> &mut Policy {
        self.asked.policy.as_mut().unwrap()
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        let node = |(name, agent): (&Arc<str>, &Agent)| Node {
            name: name.clone(),
            zone: agent.zone.clone(),
            affected: agent.affected,
            agent: match self.replaces && agent.affected {
                false => Change::Stays,
                true if agent.applied == Some(self.state.target()) => Change::New,
                true => Change::Old,
            },
            report: Report {
                health: match (agent.connected, agent.failing) {
                    (false, _) => Health::Disconnected,
                    (true, true) => Health::Failing("it does not work".into()),
                    (true, false) => Health::Sound,
                },
                applied: agent.applied,
                drifted: agent.drifted,
                lag: Some(agent.lag),
            },
        };
        self.agents.iter().map(node).collect()
    }

    /// The leader decides once.
    pub(crate) fn decide(&mut self) {
        self.state = self.decided();
    }

    pub(crate) fn decided(&self) -> State {
        let state = self.state.adopt(&self.asked, self.now);
        match &self.asked.policy {
            Some(policy) => state.advance(policy, &self.nodes(), self.now),
            None => state,
        }
    }

    /// Lets the selected nodes apply their revision, if their agents are connected.
    pub(crate) fn take(&mut self, takes: impl Fn(&str) -> bool) {
        let state = self.state.clone();
        for (name, agent) in &mut self.agents {
            if !(agent.connected || agent.coming) || !takes(name) {
                continue;
            }
            let given = state.serves(name, &agent.zone);
            if agent.applied != Some(given) {
                agent.coming = self.replaces && agent.connected;
                agent.connected = !agent.coming;
                if agent.coming {
                    continue;
                }
                agent.applied = Some(given);
                let content = state.revision(given).map(|held| &held.content);
                agent.failing = content.is_some() && content == self.poison.as_ref();
            }
        }
    }

    /// Decides and lets all nodes apply their revision, until the rollout is complete or `most` times. Returns the
    /// distinct summaries.
    pub(crate) fn run(&mut self, most: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..most {
            self.decide();
            let line = self.summary();
            if lines.last() != Some(&line) {
                lines.push(line);
            }
            self.take(|_| true);
            self.now += 60;
            if self.state.stage == Stage::Complete {
                break;
            }
        }
        lines
    }

    /// Wave, phase, and the number of nodes that have received the change.
    pub(crate) fn summary(&self) -> String {
        let phase = self.state.phase(self.asked.policy.as_ref());
        match self.state.rolling() {
            None => format!("{phase:?} {}", self.state.current),
            Some(progress) => {
                let tally = Tally::of(progress, &self.nodes());
                let (touched, total) = (tally.touched, tally.total);
                format!("{} {phase:?} {touched}/{total}", progress.wave)
            }
        }
    }

    /// The nodes to which a revision is assigned.
    pub(crate) fn given(&self, revision: u64) -> BTreeSet<Arc<str>> {
        let given =
            |(name, agent): &(&Arc<str>, &Agent)| self.state.serves(name, &agent.zone) == revision;
        let given = self.agents.iter().filter(given);
        given.map(|(name, _)| name.clone()).collect()
    }
}
