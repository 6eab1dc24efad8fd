//! Whether an endpoint is in a list, and why.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::Scope;

use crate::HintKind;
use crate::model::{Endpoint, SliceId};
use crate::selection::{Reached, Usable, names};

/// An endpoint of a port and family, and what becomes of it in one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedEndpoint {
    /// Its address.
    pub address: IpAddr,
    /// Where it listens.
    pub port: u16,
    /// The node it runs on, if it says so.
    pub node: Option<Arc<str>>,
    /// The zone it runs in, if it says so.
    pub zone: Option<Arc<str>>,
    /// The slice that is believed about it.
    pub slice: SliceId,
    /// Whether it is in the list.
    pub verdict: Verdict,
}

/// Whether an endpoint is in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It takes connections.
    In(In),
    /// It does not.
    Out(Out),
}

/// Why an endpoint is in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum In {
    /// It is ready (S-41).
    Ready,
    /// It is ready, and a hint names this node or its zone (S-58, S-59).
    Meant {
        /// What the hint names.
        kind: HintKind,
        /// The name.
        name: Arc<str>,
    },
    /// None is ready in the whole cluster; it is ending and still answers (S-42).
    EndingNoneReady,
    /// The same among the endpoints of this node (S-43).
    EndingNoneReadyHere,
}

/// Why an endpoint is not in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// It is not ready, and not ending either (S-42).
    NotReady,
    /// It is ending. It still answers, and would be used if none were ready.
    Ending,
    /// It is ending and answers no more.
    Ended,
    /// It runs on another node, and the policy is Local (S-43).
    OnNode(Arc<str>),
    /// It says no node, so it is local to none, and the policy is Local (S-44).
    OnNoNode,
    /// Hints are in force, and its own name others (S-58, S-59).
    MeantForOthers {
        /// What its hints name.
        kind: HintKind,
        /// The names.
        names: Vec<Arc<str>>,
    },
}

impl In {
    /// A word for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Meant {
                kind: HintKind::Node,
                ..
            } => "MeantForNode",
            Self::Meant {
                kind: HintKind::Zone,
                ..
            } => "MeantForZone",
            Self::EndingNoneReady => "EndingNoneReady",
            Self::EndingNoneReadyHere => "EndingNoneReadyHere",
        }
    }
}

impl Out {
    /// A word for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReady => "NotReady",
            Self::Ending => "Ending",
            Self::Ended => "Ended",
            Self::OnNode(_) => "OnAnotherNode",
            Self::OnNoNode => "OnNoNode",
            Self::MeantForOthers {
                kind: HintKind::Node,
                ..
            } => "MeantForOtherNodes",
            Self::MeantForOthers {
                kind: HintKind::Zone,
                ..
            } => "MeantForOtherZones",
        }
    }
}

/// To be read after the endpoint.
impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Meant { kind, name } => write!(f, "ready, meant for {} {name}", kind.as_str()),
            Self::EndingNoneReady => f.write_str("ending, but none is ready and it still answers"),
            Self::EndingNoneReadyHere => {
                f.write_str("ending, but none on this node is ready and it still answers")
            }
        }
    }
}

/// To be read after the endpoint.
impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not ready"),
            Self::Ending => f.write_str("ending; it still answers, but others are ready"),
            Self::Ended => f.write_str("ending, and answers no more"),
            Self::OnNode(node) => write!(f, "runs on node {node}; policy Local"),
            Self::OnNoNode => {
                f.write_str("has no nodeName, so it is local to no node; policy Local")
            }
            Self::MeantForOthers { kind, names } => {
                let many = if names.len() > 1 { "s" } else { "" };
                write!(f, "meant for {}{many} {}", kind.as_str(), names.join(", "))
            }
        }
    }
}

/// What becomes of each endpoint of a port and family in the list of this scope.
pub(super) fn verdicts(scope: &Scope, endpoints: &[Reached<'_>]) -> Vec<Verdict> {
    let local = |endpoint: &Endpoint| match scope {
        Scope::Local(node) => endpoint.node.as_ref() == Some(node),
        Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => true,
    };
    let all = endpoints.iter().map(|(.., endpoint)| *endpoint);
    // Who is not local does not count when a node looks for those that are ready (S-43).
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
    let meant = |kind, name: &Arc<str>| {
        let named = names(endpoint, kind);
        if named.contains(name) {
            let name = name.clone();
            Verdict::In(In::Meant { kind, name })
        } else {
            let names = named.to_vec();
            Verdict::Out(Out::MeantForOthers { kind, names })
        }
    };
    match (scope, usable) {
        (Scope::Zone(zone), _) => meant(HintKind::Zone, zone),
        (Scope::Node(node), _) => meant(HintKind::Node, node),
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
