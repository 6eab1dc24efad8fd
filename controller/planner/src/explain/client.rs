//! How each kind of client is handled: whether it is served, and which source address the endpoint sees.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::{ExternalClients, Family, ListUse, LocalDetection, NodeEntry, Policy};

use super::group::Group;

/// A kind of client, as seen from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// A pod of this node.
    Pod,
    /// A pod of another node that comes through this one.
    OtherPod,
    /// The node itself, and pods on its network.
    Node,
    /// All others: other nodes, and clients outside of the cluster.
    Outside,
}

impl Client {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Pod, Self::OtherPod, Self::Node, Self::Outside];
}

/// The subject of a sentence.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "pods of this node",
            Self::OtherPod => "pods of other nodes",
            Self::Node => "the node itself",
            Self::Outside => "all other clients",
        })
    }
}

/// How a kind of client is handled at a group of frontends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Treatment {
    /// The client.
    pub client: Client,
    /// Whether it is served.
    pub reach: Reach,
    /// The source address that the endpoint sees; `None` if the client is not served.
    pub source: Option<SourceAddress>,
}

/// Follows the client in a message.
impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reach, self.source) {
            (Reach::Refused, _) => f.write_str("refused at once"),
            (Reach::Dropped, _) => {
                f.write_str("dropped without an answer, so that a load balancer tries another node")
            }
            (Reach::Served, Some(SourceAddress::Kept(why))) => {
                write!(f, "served, address kept ({why})")
            }
            (Reach::Served, Some(SourceAddress::Masqueraded(why))) => {
                write!(f, "served, masqueraded ({why})")
            }
            (Reach::Served, None) => f.write_str("served"),
        }
    }
}

/// Whether a client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// An endpoint answers.
    Served,
    /// It is rejected at once, because there is no endpoint (S-21, S-23).
    Refused,
    /// Its new connections are dropped without an answer, so that a load balancer tries another node (S-22).
    Dropped,
}

/// The source address that the endpoint sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceAddress {
    /// The address of the client.
    Kept(Kept),
    /// An address of the node.
    Masqueraded(Masqueraded),
}

/// Why the source address is kept. For a pod that connects to itself it never is (S-74).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Replies to a pod of this node pass the node anyway (S-73).
    Pod,
    /// It is in the ranges of all pods, by which the node recognizes pods.
    ClusterRange,
    /// The policy is Local, which preserves the source address for the endpoint (S-66).
    PolicyLocal,
}

/// Why the source address is replaced by one of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masqueraded {
    /// The source address of the node's own connections may be one that endpoints cannot answer (S-69).
    Node,
    /// The setting `masquerade.all` (S-75).
    All,
    /// It is not a pod of this node, and replies might bypass the node (S-75).
    NotAPod,
    /// No client can be recognized as a pod: the settings have no pod range in this family.
    NoRangeOfPods,
    /// The policy is Cluster, so the endpoint may be on any node (S-77).
    PolicyCluster,
    /// The settings have one range for all pods, so pods of this node cannot be distinguished from others.
    ClusterRange,
}

impl Kept {
    /// The reason as one word, for tools.
    pub fn code(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::ClusterRange => "ClusterRange",
            Self::PolicyLocal => "PolicyLocal",
        }
    }
}

impl Masqueraded {
    /// The reason as one word, for tools.
    pub fn code(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::All => "MasqueradeAll",
            Self::NotAPod => "NotAPod",
            Self::NoRangeOfPods => "NoRangeOfPods",
            Self::PolicyCluster => "PolicyCluster",
            Self::ClusterRange => "ClusterRange",
        }
    }
}

/// Follows "address kept" in a message.
impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "replies pass this node",
            Self::ClusterRange => "in the range of all pods",
            Self::PolicyLocal => "policy Local",
        })
    }
}

/// To be read after "masqueraded".
impl fmt::Display for Masqueraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "its source may be one that endpoints cannot answer",
            Self::All => "the setting masquerade.all",
            Self::NotAPod => "not a pod of this node",
            Self::NoRangeOfPods => "localDetection has no pod range in this family",
            Self::PolicyCluster => "policy Cluster: the endpoint may be on any node",
            Self::ClusterRange => {
                "policy Cluster, and localDetection cannot distinguish the pods of this node"
            }
        })
    }
}

/// How a node recognizes pods in one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detection {
    /// It recognizes its own pods.
    Own,
    /// It recognizes pods of the cluster, without distinguishing its own.
    All,
    /// It cannot recognize pods.
    None,
}

impl Detection {
    pub(super) fn of(node: &NodeEntry, family: Family) -> Self {
        let any = |ranges: &[IpNet]| ranges.iter().any(|r| Family::of(r.addr()) == family);
        match &node.settings.local_detection {
            LocalDetection::NodeCidr if any(&node.pod_cidrs) => Self::Own,
            LocalDetection::ClusterCidr { cluster_cidrs } if any(cluster_cidrs) => Self::All,
            LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => Self::None,
            LocalDetection::BridgeInterface { .. } | LocalDetection::InterfaceNamePrefix { .. } => {
                Self::Own
            }
        }
    }

    /// Whether packets of this client count as those of a pod.
    fn is_pod(self, client: Client) -> bool {
        match self {
            Self::Own => client == Client::Pod,
            Self::All => matches!(client, Client::Pod | Client::OtherPod),
            Self::None => false,
        }
    }

    /// The kind of client that the node assumes for a client of this kind with this address.
    pub(super) fn taken_for(node: &NodeEntry, client: Client, address: IpAddr) -> Client {
        let within = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&address));
        match (client, &node.settings.local_detection) {
            // Its own connections do not arrive on an interface.
            (Client::Node, _) => Client::Node,
            (_, LocalDetection::NodeCidr) if within(&node.pod_cidrs) => Client::Pod,
            (Client::Pod, LocalDetection::NodeCidr) => Client::Outside,
            (_, LocalDetection::ClusterCidr { cluster_cidrs }) => {
                match (client, within(cluster_cidrs)) {
                    (_, false) => Client::Outside,
                    (Client::Outside, true) => Client::OtherPod,
                    (_, true) => client,
                }
            }
            _ => client,
        }
    }
}

/// How each kind of client is handled.
pub(super) fn treatments(
    node: &NodeEntry,
    group: Group,
    family: Family,
    list: &ListUse,
    is_empty: bool,
) -> Vec<Treatment> {
    let detection = Detection::of(node, family);
    let treatment = |client| {
        let reach = reach(
            client,
            detection,
            list.choice(family).external_clients,
            is_empty,
        );
        let all = node.settings.masquerade.all;
        let source = || match group {
            Group::Internal => to_cluster_ip(client, detection, all),
            Group::External => to_others(client, detection, list.policy),
        };
        Treatment {
            client,
            reach,
            source: (reach == Reach::Served).then(source),
        }
    };
    Client::ALL.map(treatment).into()
}

fn reach(
    client: Client,
    detection: Detection,
    external_clients: ExternalClients,
    is_empty: bool,
) -> Reach {
    if is_empty {
        return Reach::Refused;
    }
    // If pods cannot be recognized, dropping external clients would drop pods too.
    let welcome =
        client == Client::Node || detection == Detection::None || detection.is_pod(client);
    match external_clients {
        ExternalClients::Drop if !welcome => Reach::Dropped,
        ExternalClients::Drop | ExternalClients::Allow => Reach::Served,
    }
}

fn to_cluster_ip(client: Client, detection: Detection, all: bool) -> SourceAddress {
    use SourceAddress::{Kept as Keeps, Masqueraded as Masquerades};
    match (client, detection) {
        (Client::Node, _) => Masquerades(Masqueraded::Node),
        _ if all => Masquerades(Masqueraded::All),
        (_, Detection::None) => Masquerades(Masqueraded::NoRangeOfPods),
        (Client::Pod, _) => Keeps(Kept::Pod),
        (Client::OtherPod, Detection::All) => Keeps(Kept::ClusterRange),
        (Client::OtherPod | Client::Outside, _) => Masquerades(Masqueraded::NotAPod),
    }
}

fn to_others(client: Client, detection: Detection, policy: Policy) -> SourceAddress {
    use SourceAddress::{Kept as Keeps, Masqueraded as Masquerades};
    match (client, policy, detection) {
        (Client::Node, ..) => Masquerades(Masqueraded::Node),
        (_, Policy::Local, _) => Keeps(Kept::PolicyLocal),
        (Client::Pod, Policy::Cluster, Detection::Own) => Keeps(Kept::Pod),
        (Client::Pod, Policy::Cluster, Detection::All) => Masquerades(Masqueraded::ClusterRange),
        (Client::Pod, Policy::Cluster, Detection::None) => Masquerades(Masqueraded::NoRangeOfPods),
        (Client::OtherPod | Client::Outside, Policy::Cluster, _) => {
            Masquerades(Masqueraded::PolicyCluster)
        }
    }
}
