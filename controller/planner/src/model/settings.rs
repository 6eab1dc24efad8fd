//! The settings from ProxyConfigs, and which nodes an override applies to.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{Settings, SettingsPatch};
use portolan_rollout_policy::Reach;

use super::{ClusterObject, Guarding, Node};

/// A ProxyConfig; the one named `default` is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Its name.
    pub name: Arc<str>,
    /// The settings of nodes that no change has reached, and what all nodes share.
    pub current: Arc<Revision>,
    /// The change in progress.
    pub staged: Option<Arc<Staged>>,
    /// The policy and state of the guard against mass loss; not settings of nodes.
    pub guarding: Guarding,
}

/// Settings for all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revision {
    /// Its revision number; `None` until it has one.
    pub number: Option<u64>,
    /// The settings with defaults filled in.
    pub settings: Settings,
    /// Overrides for some nodes; if several select a node, the last one wins.
    pub overrides: Vec<Override>,
}

/// A change that has reached some nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The settings of these nodes.
    pub revision: Revision,
    /// The nodes.
    pub reach: Reach,
}

/// Other settings for some nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Labels that select nodes.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The settings in place of the common ones.
    pub settings: SettingsPatch,
}

impl Revision {
    /// The settings of a node.
    pub fn settings_of(&self, node: &Node) -> Settings {
        let mut settings = self.settings.clone();
        for other in self.overrides.iter().filter(|other| other.names(node)) {
            other.settings.apply(&mut settings);
        }
        settings
    }
}

impl Override {
    fn names(&self, node: &Node) -> bool {
        let mut labels = self.labels.iter();
        labels.all(|(name, value)| node.labels.get(name) == Some(value))
    }
}

impl ProxyConfig {
    /// The name of the ProxyConfig in force.
    pub const DEFAULT: &'static str = "default";

    /// A ProxyConfig in force with these settings for all nodes.
    pub fn of(settings: Settings) -> Self {
        Self {
            name: Self::DEFAULT.into(),
            current: Arc::new(Revision {
                settings,
                ..Revision::default()
            }),
            staged: None,
            guarding: Guarding::default(),
        }
    }

    /// Whether both give the same settings to nodes.
    pub fn serves_like(&self, other: &Self) -> bool {
        (&self.current, &self.staged) == (&other.current, &other.staged)
    }

    /// The revision of a node.
    pub fn revision_of(&self, node: &Node) -> &Revision {
        let zone = node.zone.as_deref().unwrap_or_default();
        match &self.staged {
            Some(staged) if staged.reach.includes(&node.name, zone) => &staged.revision,
            _ => &self.current,
        }
    }
}

impl ClusterObject for ProxyConfig {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }

    fn id_of(_: &str, name: &str) -> Arc<str> {
        name.into()
    }
}
