//! Names of entries and their hashes. The text of a key is part of the wire: it is hashed on both
//! sides, so its spelling can never change.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3;

use crate::Family;

/// Namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceId {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl ServiceId {
    /// The Service `namespace/name`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The Service of the API server itself, `default/kubernetes`.
    pub fn api_server() -> Self {
        Self::new("default", "kubernetes")
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whose list of backends it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every node of the cluster uses the same list.
    Cluster,
    /// Nodes of one zone use it.
    Zone(Arc<str>),
    /// One node uses it, because topology hints name the node.
    Node(Arc<str>),
    /// One node uses it for a policy Local: it holds endpoints of this node only.
    Local(Arc<str>),
}

impl Scope {
    /// Whose list it is, as people read it: one that only this node uses is `node/N`, for whatever
    /// reason it is.
    pub fn shown(&self) -> String {
        match self {
            Self::Local(node) => format!("node/{node}"),
            other => other.to_string(),
        }
    }

    /// The node that alone uses it.
    pub fn node(&self) -> Option<&Arc<str>> {
        match self {
            Self::Node(node) | Self::Local(node) => Some(node),
            Self::Cluster | Self::Zone(_) => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Zone(zone) => write!(f, "zone/{zone}"),
            Self::Node(node) => write!(f, "node/{node}"),
            Self::Local(node) => write!(f, "local/{node}"),
        }
    }
}

impl FromStr for Scope {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text.split_once('/') {
            None if text == "cluster" => Ok(Self::Cluster),
            Some(("zone", zone)) if !zone.is_empty() => Ok(Self::Zone(zone.into())),
            Some(("node", node)) if !node.is_empty() => Ok(Self::Node(node.into())),
            Some(("local", node)) if !node.is_empty() => Ok(Self::Local(node.into())),
            _ => Err(KeyError { text: text.into() }),
        }
    }
}

/// A scope without its name. Heads name their lists this way, so that the same bytes serve every
/// node; the receiver completes it with its own zone and name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    /// The cluster-wide list.
    #[default]
    Cluster,
    /// The list of the receiver's zone.
    Zone,
    /// The list that topology hints make for the receiver.
    Node,
    /// The receiver's own endpoints, for a policy Local.
    Local,
}

/// Which list: of one port, in one family, for one scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListKey {
    /// The Service.
    pub service: ServiceId,
    /// The name of the Service port; empty for a single unnamed one.
    pub port: Arc<str>,
    /// The family of the backends' addresses.
    pub family: Family,
    /// Whose list it is.
    pub scope: Scope,
}

/// The stable name of an entry in a node's plan.
///
/// The order groups entries by kind, then by Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey {
    /// What the node itself is, and the settings in force on it.
    Node,
    /// A Service: its frontends and which lists they use.
    Head(ServiceId),
    /// Backends of one port of a Service.
    List(ListKey),
    /// This node's own endpoints of a Service.
    Local(ServiceId),
    /// A kind of entry that this version does not know: held as bytes received, so that the hash
    /// of the plan still agrees.
    Other(Arc<str>),
}

impl EntryKey {
    /// The Service this entry belongs to, if any.
    pub fn service(&self) -> Option<&ServiceId> {
        match self {
            Self::Node | Self::Other(_) => None,
            Self::Head(service) | Self::Local(service) => Some(service),
            Self::List(list) => Some(&list.service),
        }
    }

    /// One of 256 buckets, the same for everybody: the top 8 bits of xxh3-64 of the key's text.
    pub fn bucket(&self) -> u8 {
        xxh3::xxh3_64(self.to_string().as_bytes()).to_be_bytes()[0]
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("node"),
            Self::Head(service) => write!(f, "head/{service}"),
            Self::List(ListKey {
                service,
                port,
                family,
                scope,
            }) => {
                write!(f, "list/{service}/{port}/{family}/{scope}")
            }
            Self::Local(service) => write!(f, "local/{service}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl EntryKey {
    /// The key a peer sent; one of a kind that is not known here is kept as it is.
    pub fn from_peer(text: &str) -> Self {
        text.parse().unwrap_or_else(|_| Self::Other(text.into()))
    }
}

/// A text that names no entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no entry key; expected node, head/NS/NAME, local/NS/NAME, or list/NS/NAME/PORT/FAMILY/SCOPE"
)]
pub struct KeyError {
    /// The text as it came.
    pub text: String,
}

impl FromStr for EntryKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let error = || KeyError { text: text.into() };
        if text == "node" {
            return Ok(Self::Node);
        }
        let mut parts = text.splitn(6, '/');
        let mut part = || parts.next().ok_or_else(error);
        let kind = part()?;
        let service = ServiceId::new(part()?, part()?);
        match kind {
            "head" | "local" if part().is_ok() => Err(error()),
            "head" => Ok(Self::Head(service)),
            "local" => Ok(Self::Local(service)),
            "list" => {
                let port = part()?.into();
                let family = match part()? {
                    "IPv4" => Family::Ipv4,
                    "IPv6" => Family::Ipv6,
                    _ => return Err(error()),
                };
                let scope = part()?.parse().map_err(|_| error())?;
                Ok(Self::List(ListKey {
                    service,
                    port,
                    family,
                    scope,
                }))
            }
            _ => Err(error()),
        }
    }
}

/// The content hash of one entry: xxh3-128 of its key, a zero byte, and its encoded bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EntryHash(pub u128);

impl EntryHash {
    /// The hash of `bytes` under `key`.
    pub fn of(key: &EntryKey, bytes: &[u8]) -> Self {
        let mut hasher = xxh3::Xxh3::new();
        hasher.update(key.to_string().as_bytes());
        hasher.update(&[0]);
        hasher.update(bytes);
        Self(hasher.digest128())
    }
}

/// The hash of a set of entries: the wrapping sum of their hashes, so that it does not depend on
/// order and follows a change at the cost of the change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PlanHash(pub u128);

impl PlanHash {
    /// The hash with one more entry.
    #[must_use]
    pub fn with(self, entry: EntryHash) -> Self {
        Self(self.0.wrapping_add(entry.0))
    }

    /// The hash with one entry less.
    #[must_use]
    pub fn without(self, entry: EntryHash) -> Self {
        Self(self.0.wrapping_sub(entry.0))
    }

    /// Big-endian bytes, as the wire carries them.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The hash in 16 big-endian bytes; `None` for any other length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(u128::from_be_bytes(bytes.try_into().ok()?)))
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for PlanHash {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}
