//! Two DaemonSets, blue and green, so that some nodes can have other agents than the rest. Pure.
//!
//! A Node's label says which of the two it belongs to. A Node without it belongs to the one that takes the
//! rest, so agents run everywhere before anybody has labelled anything, and labels are written only once
//! agents were changed in waves. A DaemonSet is given another template while no node belongs to it: then
//! nothing restarts that was not meant to, and a pod that is made anew on a node that the change has not
//! reached is what it was. Where a change is through, the nodes stay with the DaemonSet that they are at, and
//! the other one takes the rest: those that join.

use std::sync::Arc;

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Track {
    /// The first.
    Blue,
    /// The other.
    Green,
}

impl Track {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Blue, Self::Green];
    /// On DaemonSets and their pods: which one it is. On Nodes: which one they belong to.
    pub(super) const LABEL: &'static str = "proxy.portolan.dev/track";

    /// As it is in the label, and at the end of the DaemonSet's name.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Green => "green",
        }
    }

    /// The one with this name.
    #[must_use]
    pub(super) fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|track| track.name() == name)
    }

    /// The one that it is not.
    #[must_use]
    pub(super) fn other(self) -> Self {
        match self {
            Self::Blue => Self::Green,
            Self::Green => Self::Blue,
        }
    }
}

/// The nodes of a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Those with its label.
    Labelled,
    /// All but those with the other one's label.
    Rest,
}

/// A DaemonSet as far as nodes are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// Which template it is made of.
    pub(super) agents: Arc<str>,
    /// Its nodes.
    pub(super) takes: Takes,
}

/// Both, as far as they exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sets {
    /// Blue.
    pub(super) blue: Option<Held>,
    /// Green.
    pub(super) green: Option<Held>,
}

impl Sets {
    /// One of them.
    #[must_use]
    pub(super) fn get(&self, track: Track) -> Option<&Held> {
        match track {
            Track::Blue => self.blue.as_ref(),
            Track::Green => self.green.as_ref(),
        }
    }

    /// Makes one what it should be.
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

    /// The one that a node with this label belongs to.
    #[must_use]
    pub(super) fn of(&self, label: Option<Track>) -> Option<Track> {
        label.or_else(|| self.rest())
    }

    /// The one that takes nodes without a label.
    #[must_use]
    pub(super) fn rest(&self) -> Option<Track> {
        Track::ALL
            .into_iter()
            .find(|track| self.takes(*track) == Some(Takes::Rest))
    }

    /// Which nodes one takes.
    #[must_use]
    pub(super) fn takes(&self, track: Track) -> Option<Takes> {
        self.get(track).map(|held| held.takes)
    }

    /// Whether one is made of this template.
    #[must_use]
    pub(super) fn has(&self, track: Track, agents: &str) -> bool {
        self.get(track).is_some_and(|held| *held.agents == *agents)
    }
}
