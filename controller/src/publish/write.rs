//! Calls to the API server as values, and what came of them. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use portolan_crds as crds;

use super::content::ContentHash;
use super::plan::PlanContent;
use super::previous::Previous;

/// The kinds of objects that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Config,
    Plan,
    Slice,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Config => "ProxyConfig",
            Self::Plan => "ProxyPlan",
            Self::Slice => "ProxyPlanSlice",
        })
    }
}

/// Something to look at: it leads to some calls, or to none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// What is in the store already.
    Listing(Kind),
    /// The ProxyConfig: that it is there, what it says, its status.
    Config,
    /// A node's plan, and the slices of its own.
    Plan(Arc<str>),
    /// The status of a node's plan.
    Status(Arc<str>),
    /// The slices of a bucket that nodes share.
    Bucket(u8),
    /// All plans, because figures of the cluster changed.
    Sweep,
}

impl Target {
    /// The kind of object that it is mostly about.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Listing(kind) => *kind,
            Self::Config => Kind::Config,
            Self::Plan(_) | Self::Status(_) | Self::Sweep => Kind::Plan,
            Self::Bucket(_) => Kind::Slice,
        }
    }

    /// Whether each of several controllers sees to it: each has the streams of some agents.
    pub(super) fn is_for_all(&self) -> bool {
        matches!(self, Self::Listing(_) | Self::Status(_))
    }
}

/// A call to the API server.
#[derive(Debug)]
pub(super) struct Call {
    /// What it is made for.
    pub(super) target: Target,
    /// The kind of the object.
    pub(super) kind: Kind,
    /// The name of the object; empty for a listing.
    pub(super) name: String,
    /// What is done.
    pub(super) act: Act,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, .. } = self;
        let what = match self.act {
            Act::List => return write!(f, "list all objects of kind {kind}"),
            Act::Create => "create",
            Act::Read => "read",
            Act::ApplyPlan(_) | Act::ApplySlice(_) => "write",
            Act::ApplyStatus(_) | Act::ApplyConfigStatus(_) => "write the status of",
            Act::Delete => "delete",
        };
        write!(f, "{what} {kind} {name}")
    }
}

/// What a call does.
#[derive(Debug)]
pub(super) enum Act {
    List,
    Read,
    /// The ProxyConfig with an empty spec; that it is there already is fine.
    Create,
    ApplyPlan(Box<crds::ProxyPlanSpec>),
    ApplyStatus(Box<crds::ProxyPlanStatus>),
    ApplySlice(Box<crds::ProxyPlanSliceSpec>),
    ApplyConfigStatus(Box<crds::ProxyConfigStatus>),
    /// That it is gone already is fine.
    Delete,
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done.
    Done,
    /// The ProxyConfig; `None` when there is none.
    Config(Option<Box<crds::ProxyConfig>>),
    /// When the status of a plan was written last; `None` when never, or there is no plan.
    Heartbeat(Option<SystemTime>),
    /// All plans.
    Plans(Vec<ListedPlan>),
    /// All slices.
    Slices(Vec<ListedSlice>),
    /// It is not done.
    Failed(Failure),
}

/// A plan in the store.
#[derive(Debug)]
pub(super) struct ListedPlan {
    pub(super) node: Arc<str>,
    pub(super) content: PlanContent,
    pub(super) previous: Previous,
    pub(super) heartbeat: Option<SystemTime>,
}

/// A slice in the store.
#[derive(Debug)]
pub(super) struct ListedSlice {
    /// Whose it is, by its own words.
    pub(super) owner: Target,
    pub(super) name: String,
    pub(super) content: ContentHash,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: FailureClass,
    /// What the API server said.
    pub(super) text: String,
}

/// What a failure says about other calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureClass {
    /// No call will succeed now.
    Unreachable,
    /// The server has trouble, with this object or with all.
    Trouble,
    /// The server does not know the kind.
    NoSuchKind,
    /// We may not do this to any object of the kind.
    Forbidden,
    /// The object is not there.
    NoSuchObject,
    /// The object does not make sense to the server.
    Refused,
    /// Anything else, about this object only.
    Other,
}

impl FailureClass {
    /// What to check next.
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "is the API server up, and its address right? Nodes do not need these objects"
            }
            Self::Trouble => "what do the logs of the API server and of its store say?",
            Self::NoSuchKind => {
                "are the definitions installed? `kubectl apply -f charts/portolan/charts/crds/crds`"
            }
            Self::Forbidden => {
                "does the controller's ClusterRole allow it for proxy.portolan.dev, the status \
                 subresources included?"
            }
            Self::NoSuchObject => "somebody deleted it; it is written again",
            Self::Refused => {
                "are the definitions of the same release as the controller? \
                 `kubectl apply -f charts/portolan/charts/crds/crds`"
            }
            Self::Other => "the controller tries again by itself",
        }
    }
}
