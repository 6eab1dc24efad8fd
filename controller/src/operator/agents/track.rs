//! Two DaemonSets, blue and green, so that some nodes can have other agents than the rest. Pure.
//!
//! The label of a Node says which of the two it belongs to. A Node without the label belongs to the DaemonSet that
//! takes the rest. So agents run on all nodes before any Node is labelled, and labels are written only once agents
//! are changed in waves. The template of a DaemonSet changes only while no node belongs to it. So no agent restarts
//! unintentionally, and a pod that is recreated on a node that the rollout has not reached keeps its version. After a
//! rollout, the nodes stay with their DaemonSet, and the new one takes the rest, which are the nodes that join.

use std::sync::Arc;

/// One of the two DaemonSets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Track {
    /// The first DaemonSet.
    Blue,
    /// The second DaemonSet.
    Green,
}

impl Track {
    /// Both tracks.
    pub(super) const ALL: [Self; 2] = [Self::Blue, Self::Green];
    /// The label key. On DaemonSets and their pods: the track that they are. On Nodes: the track that they belong to.
    pub(super) const LABEL: &'static str = "proxy.portolan.dev/track";

    /// The value of the label, and the suffix of the DaemonSet's name.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Green => "green",
        }
    }

    /// Parses a name; `None` if it is unknown.
    #[must_use]
    pub(super) fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|track| track.name() == name)
    }

    /// The other track.
    #[must_use]
    pub(super) fn other(self) -> Self {
        match self {
            Self::Blue => Self::Green,
            Self::Green => Self::Blue,
        }
    }
}

/// Which nodes a DaemonSet selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nodes with its label.
    Labelled,
    /// All nodes except those with the label of the other DaemonSet.
    Rest,
}

/// The template and the node selection of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// The hash of its template.
    pub(super) agents: Arc<str>,
    /// Which nodes it selects.
    pub(super) takes: Takes,
}

/// Both DaemonSets, if they exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sets {
    /// The blue one.
    pub(super) blue: Option<Held>,
    /// The green one.
    pub(super) green: Option<Held>,
}

impl Sets {
    /// The DaemonSet of a track.
    #[must_use]
    pub(super) fn get(&self, track: Track) -> Option<&Held> {
        match track {
            Track::Blue => self.blue.as_ref(),
            Track::Green => self.green.as_ref(),
        }
    }

    /// Sets the template and node selection of a DaemonSet.
    pub(super) fn put(&mut self, track: Track, agents: &str, takes: Takes) {
        let held = Some(Held {
            agents: agents.into(),
            takes,
        });
        match track {
            Track::Blue => self.blue = held,
            Track::Green => self.green = held,
        }
    }

    /// The DaemonSet that a node with this label belongs to.
    #[must_use]
    pub(super) fn of(&self, label: Option<Track>) -> Option<Track> {
        label.or_else(|| self.rest())
    }

    /// The DaemonSet that takes nodes without a label.
    #[must_use]
    pub(super) fn rest(&self) -> Option<Track> {
        Track::ALL
            .into_iter()
            .find(|track| self.takes(*track) == Some(Takes::Rest))
    }

    /// Which nodes a DaemonSet selects; `None` if it does not exist.
    #[must_use]
    pub(super) fn takes(&self, track: Track) -> Option<Takes> {
        self.get(track).map(|held| held.takes)
    }

    /// Whether a DaemonSet has the template with this hash.
    #[must_use]
    pub(super) fn has(&self, track: Track, agents: &str) -> bool {
        self.get(track).is_some_and(|held| *held.agents == *agents)
    }
}
