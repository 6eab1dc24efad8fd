//! What the operator asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{
    CaptureSettings, ConntrackSettings, DiskSettings, DrainSettings, Drift, HostFirewall,
    ListenSettings, LocalDetection, MasqueradeSettings, PortRange, Settings, SyncSettings,
    TimeoutSettings,
};
use portolan_rollout::Reach;

use super::{Guarding, Node, Object};

/// A ProxyConfig; the one named `default` is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Its name.
    pub name: Arc<str>,
    /// What nodes have that no change has reached, and what all nodes share.
    pub current: Arc<Revision>,
    /// A change on its way.
    pub staged: Option<Arc<Staged>>,
    /// What is done about endpoints that vanish in mass; no node's settings.
    pub guarding: Guarding,
}

/// Settings for all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revision {
    /// Its number; `None` while nobody has given it one.
    pub number: Option<u64>,
    /// The settings, completed.
    pub settings: Settings,
    /// What some nodes have in their place; of several that name a node, a later one wins.
    pub overrides: Vec<Override>,
}

/// A change that some nodes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// What they have.
    pub revision: Revision,
    /// Who they are.
    pub reach: Reach,
}

/// Other settings for some nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Labels that such a node has.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// What it has.
    pub settings: SettingsPatch,
}

/// The fields of settings that one node may have otherwise than another one.
macro_rules! patch {
    ($($field:ident: $type:ty),* $(,)?) => {
        /// Settings in place of others: whole fields. What is served is for all nodes the same, so that is
        /// not among them.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each field is the one of that name in the settings")]
        pub struct SettingsPatch {
            $(pub $field: Option<$type>,)*
        }

        impl SettingsPatch {
            /// Puts the fields that are given in their places.
            pub fn apply(&self, settings: &mut Settings) {
                $(if let Some(value) = &self.$field {
                    settings.$field.clone_from(value);
                })*
            }
        }
    };
}

patch! {
    scheduler: Arc<str>,
    node_port_addresses: Vec<String>,
    node_port_range: PortRange,
    capture: CaptureSettings,
    host_firewall: HostFirewall,
    local_detection: LocalDetection,
    masquerade: MasqueradeSettings,
    exclude_cidrs: Vec<ipnet::IpNet>,
    timeouts: TimeoutSettings,
    conntrack: ConntrackSettings,
    sync: SyncSettings,
    drain: DrainSettings,
    drift: Drift,
    drop_invalid: bool,
    device: Arc<str>,
    disk: DiskSettings,
    healthz: ListenSettings,
    metrics: ListenSettings,
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
    /// The name of the one that is in force.
    pub const DEFAULT: &'static str = "default";

    /// The one in force, with these settings for all nodes.
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

    /// Whether nodes are served alike by both.
    pub fn serves_like(&self, other: &Self) -> bool {
        (&self.current, &self.staged) == (&other.current, &other.staged)
    }

    /// What a node has.
    pub fn revision_of(&self, node: &Node) -> &Revision {
        let zone = node.zone.as_deref().unwrap_or_default();
        match &self.staged {
            Some(staged) if staged.reach.includes(&node.name, zone) => &staged.revision,
            _ => &self.current,
        }
    }
}

impl Object for ProxyConfig {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }
}
