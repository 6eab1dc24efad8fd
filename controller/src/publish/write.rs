//! Calls to the API server as values, and their outcomes. Pure.

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

/// A target to reconcile. It leads to any number of calls, or to none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The stored objects of a kind.
    Listing(Kind),
    /// The ProxyConfig: its existence, its content, and its status.
    Config,
    /// The plan of a node, and its own slices.
    Plan(Arc<str>),
    /// The status of a node's plan.
    Status(Arc<str>),
    /// The slices of a bucket that nodes share.
    Bucket(u8),
    /// All plans, because counts of the cluster changed.
    Sweep,
}

impl Target {
    /// The main kind of object of the target.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Listing(kind) => *kind,
            Self::Config => Kind::Config,
            Self::Plan(_) | Self::Status(_) | Self::Sweep => Kind::Plan,
            Self::Bucket(_) => Kind::Slice,
        }
    }

    /// Whether each controller reconciles it, not only the leader: each controller has the streams of some agents.
    pub(super) fn is_for_all(&self) -> bool {
        matches!(self, Self::Listing(_) | Self::Status(_))
    }
}

/// A call to the API server.
#[derive(Debug)]
pub(super) struct Call {
    /// The target for which it is made.
    pub(super) target: Target,
    /// The kind of the object.
    pub(super) kind: Kind,
    /// The name of the object; empty for a listing.
    pub(super) name: String,
    /// The operation.
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

/// The operation of a call.
#[derive(Debug)]
pub(super) enum Act {
    List,
    Read,
    /// Create the ProxyConfig with an empty spec. It succeeds if the object exists already.
    Create,
    ApplyPlan(Box<crds::ProxyPlanSpec>),
    ApplyStatus(Box<crds::ProxyPlanStatus>),
    ApplySlice(Box<crds::ProxyPlanSliceSpec>),
    ApplyConfigStatus(Box<crds::ProxyConfigStatus>),
    /// Delete the object. It succeeds if the object does not exist.
    Delete,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The call succeeded.
    Done,
    /// The ProxyConfig; `None` if it does not exist.
    Config(Option<Box<crds::ProxyConfig>>),
    /// When the status of a plan was written last; `None` if it was never written, or the plan does not exist.
    Heartbeat(Option<SystemTime>),
    /// All plans.
    Plans(Vec<ListedPlan>),
    /// All slices.
    Slices(Vec<ListedSlice>),
    /// Leadership ended before there was an answer. It is unknown whether the server carried it out.
    Abandoned,
    /// The call failed.
    Failed(Failure),
}

/// A stored plan.
#[derive(Debug)]
pub(super) struct ListedPlan {
    pub(super) node: Arc<str>,
    pub(super) content: PlanContent,
    pub(super) previous: Previous,
    pub(super) heartbeat: Option<SystemTime>,
}

/// A stored slice.
#[derive(Debug)]
pub(super) struct ListedSlice {
    /// The target that it belongs to, according to its spec.
    pub(super) owner: Target,
    pub(super) name: String,
    pub(super) content: ContentHash,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: FailureClass,
    /// The error text.
    pub(super) text: String,
}

/// What a failure implies for other calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureClass {
    /// The API server is unreachable, so no call will succeed.
    Unreachable,
    /// A server error, for this object or for all.
    Trouble,
    /// The server does not know the kind: the CRD is missing.
    NoSuchKind,
    /// RBAC forbids the operation on all objects of the kind.
    Forbidden,
    /// The object does not exist.
    NoSuchObject,
    /// The server rejects the object as invalid.
    Refused,
    /// Anything else, about this object only.
    Other,
}

impl FailureClass {
    /// What to check next, if the error text does not say it.
    pub(super) fn next_step(self) -> Option<&'static str> {
        Some(match self {
            Self::Unreachable => {
                "check that the API server is up and its address is right; nodes do not need these objects"
            }
            Self::Trouble => "check the logs of the API server and of its store",
            Self::NoSuchKind => {
                "check that the CRDs are installed: `kubectl apply -f charts/portolan/charts/crds/crds`"
            }
            Self::Forbidden => {
                "check that the controller's ClusterRole allows it for proxy.portolan.dev, including status \
                 subresources"
            }
            Self::NoSuchObject => "another client deleted it, and it is created again",
            Self::Refused => {
                "check that the CRDs are of the same release as the controller: `kubectl apply -f \
                 charts/portolan/charts/crds/crds`"
            }
            Self::Other => return None,
        })
    }
}
