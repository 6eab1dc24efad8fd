//! Explains whether an endpoint is in a list, and why.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::Scope;

use crate::HintKind;
use crate::model::{Endpoint, SliceId};
use crate::selection::{Reached, Usable, names};

/// An endpoint of a port and family, and whether one list contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedEndpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its node, if known.
    pub node: Option<Arc<str>>,
    /// Its zone, if known.
    pub zone: Option<Arc<str>>,
    /// The slice whose copy is used.
    pub slice: SliceId,
    /// Whether it is in the list.
    pub verdict: Verdict,
}

/// Whether an endpoint is in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The list contains it.
    In(In),
    /// The list does not contain it.
    Out(Out),
}

/// Why an endpoint is in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum In {
    /// It is ready (S-41).
    Ready,
    /// It is ready, and a hint names this node or its zone (S-58, S-59).
    Hinted {
        /// What the hint names.
        kind: HintKind,
        /// The name.
        name: Arc<str>,
    },
    /// No endpoint in the cluster is ready; it is terminating and still serving (S-42).
    EndingNoneReady,
    /// The same among the endpoints of this node (S-43).
    EndingNoneReadyHere,
}

/// Why an endpoint is not in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// It is neither ready nor terminating (S-42).
    NotReady,
    /// It is terminating and still serving; it would be used if none were ready.
    Ending,
    /// It is terminating and no longer serving.
    Ended,
    /// It runs on another node, and the policy is Local (S-43).
    OnNode(Arc<str>),
    /// It has no node, so it is local to none, and the policy is Local (S-44).
    OnNoNode,
    /// Hints are effective, and its own name other zones or nodes (S-58, S-59).
    HintedForOthers {
        /// What its hints name.
        kind: HintKind,
        /// The names.
        names: Vec<Arc<str>>,
    },
}

impl In {
    /// The reason as one word, for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Hinted {
                kind: HintKind::Node,
                ..
            } => "MeantForNode",
            Self::Hinted {
                kind: HintKind::Zone,
                ..
            } => "MeantForZone",
            Self::EndingNoneReady => "EndingNoneReady",
            Self::EndingNoneReadyHere => "EndingNoneReadyHere",
        }
    }
}

impl Out {
    /// The reason as one word, for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReady => "NotReady",
            Self::Ending => "Ending",
            Self::Ended => "Ended",
            Self::OnNode(_) => "OnAnotherNode",
            Self::OnNoNode => "OnNoNode",
            Self::HintedForOthers {
                kind: HintKind::Node,
                ..
            } => "MeantForOtherNodes",
            Self::HintedForOthers {
                kind: HintKind::Zone,
                ..
            } => "MeantForOtherZones",
        }
    }
}

/// Follows the endpoint in a message.
impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Hinted { kind, name } => write!(f, "ready, hint for {} {name}", kind.as_str()),
            Self::EndingNoneReady => {
                f.write_str("terminating but still serving, and no endpoint is ready")
            }
            Self::EndingNoneReadyHere => {
                f.write_str("terminating but still serving, and no endpoint on this node is ready")
            }
        }
    }
}

/// Follows the endpoint in a message.
impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not ready"),
            Self::Ending => f.write_str("terminating and still serving, but others are ready"),
            Self::Ended => f.write_str("terminating and no longer serving"),
            Self::OnNode(node) => write!(f, "runs on node {node}; policy Local"),
            Self::OnNoNode => {
                f.write_str("has no nodeName, so it is local to no node; policy Local")
            }
            Self::HintedForOthers { kind, names } => {
                let many = if names.len() > 1 { "s" } else { "" };
                let kind = kind.as_str();
                write!(f, "hint{many} for {kind}{many} {}", names.join(", "))
            }
        }
    }
}

/// The verdicts on all endpoints of a port and family for the list of this scope.
pub(super) fn verdicts(scope: &Scope, endpoints: &[Reached<'_>]) -> Vec<Verdict> {
    let local = |endpoint: &Endpoint| match scope {
        Scope::Local(node) => endpoint.node.as_ref() == Some(node),
        Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => true,
    };
    let all = endpoints.iter().map(|(.., endpoint)| *endpoint);
    // Endpoints on other nodes do not count for the fallback of a node (S-43).
    let usable = Usable::among(all.clone().filter(|endpoint| local(endpoint)));
    all.map(|endpoint| verdict(scope, usable, endpoint))
        .collect()
}

fn verdict(scope: &Scope, usable: Usable, endpoint: &Endpoint) -> Verdict {
    if let Scope::Local(here) = scope {
        match &endpoint.node {
            Some(node) if node == here => {}
            Some(node) => return Verdict::Out(Out::OnNode(node.clone())),
            None => return Verdict::Out(Out::OnNoNode),
        }
    }
    if !usable.takes(endpoint) {
        return Verdict::Out(not_usable(endpoint));
    }
    let hinted = |kind, name: &Arc<str>| {
        let named = names(endpoint, kind);
        if named.contains(name) {
            let name = name.clone();
            Verdict::In(In::Hinted { kind, name })
        } else {
            let names = named.to_vec();
            Verdict::Out(Out::HintedForOthers { kind, names })
        }
    };
    match (scope, usable) {
        (Scope::Zone(zone), _) => hinted(HintKind::Zone, zone),
        (Scope::Node(node), _) => hinted(HintKind::Node, node),
        (Scope::Cluster | Scope::Local(_), Usable::Ready) => Verdict::In(In::Ready),
        (Scope::Cluster, Usable::Ending) => Verdict::In(In::EndingNoneReady),
        (Scope::Local(_), Usable::Ending) => Verdict::In(In::EndingNoneReadyHere),
    }
}

fn not_usable(endpoint: &Endpoint) -> Out {
    match (endpoint.terminating, endpoint.serving) {
        (true, true) => Out::Ending,
        (true, false) => Out::Ended,
        (false, _) => Out::NotReady,
    }
}
