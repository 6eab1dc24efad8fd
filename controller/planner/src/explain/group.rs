//! Explains which list serves a group of frontends in one family, and why.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{
    ExternalClients, Family, HeadPort, ListChoice, ListUse, NodeEntry, Policy, Scope, WhenEmpty,
};

use super::client::{Treatment, treatments};
use super::elsewhere::{Elsewhere, elsewhere};
use super::endpoint::{ExplainedEndpoint, Verdict, verdicts};
use crate::backends::{EndpointCopy, PortEndpoints};
use crate::{HintOutcome, HintsIgnored, PlannedService, Planner};

/// A group of frontends that one list serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Cluster IPs.
    Internal,
    /// All others: node ports, external IPs, load balancer addresses.
    External,
}

impl Group {
    /// Both groups.
    pub const BOTH: [Self; 2] = [Self::Internal, Self::External];

    /// The list for this group of a port; `None` if it has no such frontend.
    pub fn of(self, port: &HeadPort) -> Option<&ListUse> {
        match self {
            Self::Internal => Some(&port.internal),
            Self::External => port.external.as_ref(),
        }
    }

    /// The field of a Service with the traffic policy.
    pub fn field(self) -> &'static str {
        match self {
            Self::Internal => "internalTrafficPolicy",
            Self::External => "externalTrafficPolicy",
        }
    }
}

/// How a group of frontends is served in one family on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupExplanation {
    /// The frontends.
    pub group: Group,
    /// The family.
    pub family: Family,
    /// The policy of the group.
    pub policy: Policy,
    /// The scope of the list.
    pub scope: Scope,
    /// How the policy leads to the list.
    pub because: ListReason,
    /// The outcome of topology hints; `None` without hints.
    pub hints: Option<HintOutcome>,
    /// How external clients are handled.
    pub external_clients: ExternalClients,
    /// How clients are handled if the list is empty.
    pub when_empty: WhenEmpty,
    /// All endpoints of the port and family, in order.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// How each kind of client is handled.
    pub clients: Vec<Treatment>,
    /// How other nodes serve the group.
    pub elsewhere: Vec<Elsewhere>,
}

impl GroupExplanation {
    /// The endpoints in the list.
    pub fn used(&self) -> impl Iterator<Item = &ExplainedEndpoint> {
        let endpoints = self.endpoints.iter();
        endpoints.filter(|endpoint| matches!(endpoint.verdict, Verdict::In(_)))
    }
}

/// How the policy leads to the choice of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListReason {
    /// Policy Cluster: endpoints on any node, depending on hints (S-41).
    Cluster,
    /// Policy Local: endpoints of this node (S-43, S-64).
    Local,
    /// Policy Local without a usable endpoint on this node, but with others elsewhere: pods and the node itself are
    /// served as under policy Cluster, external clients are not served (S-22, S-67).
    LocalButNoneHere,
    /// Policy Local without a usable endpoint on any node (S-49).
    LocalButNoneAnywhere,
}

/// Follows the name of the list in a message.
impl fmt::Display for ListReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "policy Cluster: endpoints anywhere in the cluster",
            Self::Local => "policy Local: endpoints of this node only",
            Self::LocalButNoneHere => {
                "policy Local, but no endpoint of this node can serve: its pods and the node itself are \
                 served as under policy Cluster"
            }
            Self::LocalButNoneAnywhere => {
                "policy Local, but no endpoint can serve, on this node or any other"
            }
        })
    }
}

impl ListReason {
    /// The reason as one word, for tools.
    pub fn code(self) -> &'static str {
        match self {
            Self::Cluster => "PolicyCluster",
            Self::Local => "PolicyLocal",
            Self::LocalButNoneHere => "PolicyLocalNoneHere",
            Self::LocalButNoneAnywhere => "PolicyLocalNoneAnywhere",
        }
    }

    fn of(policy: Policy, scope: &Scope, choice: ListChoice) -> Self {
        match (policy, scope, choice.external_clients) {
            (Policy::Cluster, ..) => Self::Cluster,
            (Policy::Local, Scope::Local(_), _) => Self::Local,
            (Policy::Local, _, ExternalClients::Drop) => Self::LocalButNoneHere,
            (Policy::Local, _, ExternalClients::Allow) => Self::LocalButNoneAnywhere,
        }
    }
}

/// A port of a planned Service in one family, on a node.
pub(super) struct Seen<'a> {
    pub(super) planner: &'a Planner,
    pub(super) planned: &'a PlannedService,
    pub(super) node: &'a Arc<NodeEntry>,
    /// The index of the port in the Service.
    pub(super) place: usize,
    /// The port in the node's head.
    pub(super) port: &'a HeadPort,
    pub(super) family: Family,
    pub(super) merged: &'a PortEndpoints<'a>,
}

impl Seen<'_> {
    /// Explains a group of its frontends.
    pub(super) fn explain(&self, group: Group) -> Option<GroupExplanation> {
        let list = group.of(self.port)?;
        let choice = list.choice(self.family);
        let scope = self.node.complete(choice.scope);
        let endpoints = self.endpoints(&scope);
        let is_empty = endpoints
            .iter()
            .all(|e| matches!(e.verdict, Verdict::Out(_)));
        Some(GroupExplanation {
            group,
            family: self.family,
            policy: list.policy,
            because: ListReason::of(list.policy, &scope, choice),
            hints: self.hints(&scope),
            external_clients: choice.external_clients,
            when_empty: list.when_empty,
            clients: treatments(self.node, group, self.family, list, is_empty),
            elsewhere: elsewhere(self, group),
            endpoints,
            scope,
        })
    }

    fn endpoints(&self, scope: &Scope) -> Vec<ExplainedEndpoint> {
        let all = self.merged.of(self.family);
        let copies = all
            .iter()
            .filter_map(|(address, port, _)| self.believed(scope, (*address, *port)));
        let copies: Vec<_> = copies.collect();
        let reached = copies.iter().map(|copy| {
            let (address, port) = copy.reached();
            (address, port, copy.endpoint)
        });
        let verdicts = verdicts(scope, &reached.collect::<Vec<_>>());
        let explained = copies.iter().zip(verdicts).map(|(copy, verdict)| {
            let endpoint = copy.endpoint;
            ExplainedEndpoint {
                address: endpoint.address,
                port: copy.port,
                node: endpoint.node.clone(),
                zone: endpoint.zone.clone(),
                slice: copy.slice.id.clone(),
                verdict,
            }
        });
        explained.collect()
    }

    /// The copy of an endpoint that a list of this scope uses (S-245).
    fn believed(&self, scope: &Scope, reached: (IpAddr, u16)) -> Option<EndpointCopy<'_>> {
        match scope {
            Scope::Local(node) => self.merged.believed_on(node, reached),
            Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => {
                self.merged.believed(reached).copied()
            }
        }
    }

    /// Hints never apply to lists of policy Local (S-61).
    fn hints(&self, scope: &Scope) -> Option<HintOutcome> {
        let mut hints = self.planned.hints_on(self.node);
        let (_, outcome) =
            hints.find(|(hints, _)| hints.port == self.port.name && hints.family == self.family)?;
        Some(match scope {
            Scope::Local(_) => HintOutcome::Ignored(HintsIgnored::PolicyLocal),
            Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => outcome,
        })
    }
}
