//! The outcome of topology hints (S-56 to S-61), for messages. `selection` makes the endpoint lists, and `heads`
//! assigns them to nodes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::Family;

/// What a hint names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintKind {
    /// Nodes (`hints.forNodes`).
    Node,
    /// Zones (`hints.forZones`).
    Zone,
}

impl HintKind {
    /// `node` or `zone`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Zone => "zone",
        }
    }
}

/// The outcome of the hints on the endpoints of one port in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintUse {
    /// The name of the Service port; empty for a single unnamed one.
    pub port: Arc<str>,
    /// The family of the endpoints' addresses.
    pub family: Family,
    /// Hints that name nodes. They take precedence over those that name zones (S-58).
    pub nodes: HintState,
    /// Hints that name zones.
    pub zones: HintState,
}

/// The outcome of hints of one kind, in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HintState {
    /// No endpoint has one.
    Absent,
    /// Every ready endpoint has one: each node or zone that they name has a list of its own.
    InForce,
    /// They have no effect anywhere.
    Ignored(HintsIgnored),
}

/// The outcome of the hints of one port and family on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HintOutcome {
    /// The node uses the list from hints of this kind.
    Used(HintKind),
    /// The node uses the list of nodes without hints.
    Ignored(HintsIgnored),
}

/// Why hints have no effect, in the whole cluster or on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintsIgnored {
    /// A ready endpoint has no hint of this kind; the first such endpoint by address (S-57).
    EndpointWithout {
        /// The missing kind.
        kind: HintKind,
        /// The endpoint.
        endpoint: IpAddr,
    },
    /// Hints apply to ready endpoints only (S-42, S-57).
    NoneReady,
    /// Hints never apply to policy Local (S-61).
    PolicyLocal,
    /// The node is in no zone (S-60).
    NodeWithoutZone,
    /// No ready endpoint names the zone of the node (S-59).
    NoneForZone(Arc<str>),
    /// No ready endpoint names the node, and none names a zone (S-58).
    NoneForNode(Arc<str>),
}

/// Follows "hints ignored because" in a message.
impl fmt::Display for HintsIgnored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndpointWithout { kind, endpoint } => {
                write!(f, "endpoint {endpoint} has no {} hint", kind.as_str())
            }
            Self::NoneReady => f.write_str("no endpoint is ready"),
            Self::PolicyLocal => f.write_str("the traffic policy is Local"),
            Self::NodeWithoutZone => f.write_str("the node is in no zone"),
            Self::NoneForZone(zone) => write!(f, "no ready endpoint has a hint for zone {zone}"),
            Self::NoneForNode(node) => write!(f, "no ready endpoint has a hint for node {node}"),
        }
    }
}
