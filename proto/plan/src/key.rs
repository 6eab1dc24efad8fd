//! Keys of entries, and hashes. The text of a key is part of the wire: both sides hash it, so its spelling can never
//! change.

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

/// The nodes that use a list of backends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every node of the cluster uses the same list.
    Cluster,
    /// The nodes of one zone use it.
    Zone(Arc<str>),
    /// One node uses it, because topology hints name that node.
    Node(Arc<str>),
    /// One node uses it for policy Local: it contains only endpoints of this node.
    Local(Arc<str>),
}

impl Scope {
    /// The scope for people. A list that only this node uses is `node/N`, whether the reason is hints or policy
    /// Local.
    pub fn shown(&self) -> String {
        match self {
            Self::Local(node) => format!("node/{node}"),
            other => other.to_string(),
        }
    }

    /// The node, if only one node uses the list.
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

/// A scope without the name of its zone or node. Heads refer to their lists by scope kind, so that the same bytes
/// serve every node; the receiver adds its own zone or name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    /// The cluster-wide list.
    #[default]
    Cluster,
    /// The list of the receiver's zone.
    Zone,
    /// The list that topology hints select for the receiver.
    Node,
    /// The receiver's own endpoints, for policy Local.
    Local,
}

/// The key of a list: one port, one family, one scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListKey {
    /// The Service.
    pub service: ServiceId,
    /// The name of the Service port; empty for a single unnamed port.
    pub port: Arc<str>,
    /// The family of the backends' addresses.
    pub family: Family,
    /// The nodes that use the list.
    pub scope: Scope,
}

/// The stable key of an entry in a node's plan.
///
/// The ordering groups entries by kind, then by Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey {
    /// The node itself, and the settings in force on it.
    Node,
    /// A Service: its frontends and the lists that serve them.
    Head(ServiceId),
    /// The backends of one port of a Service.
    List(ListKey),
    /// This node's own endpoints of a Service.
    Local(ServiceId),
    /// A kind of entry that this version does not know. It is kept as received, so that the hash of the plan still
    /// matches.
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

    /// The bucket of the key, one of 256: the top 8 bits of xxh3-64 of the key's text. Controller and agents compute
    /// the same one.
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
    /// Parses a key sent by a peer. An unknown kind becomes [`EntryKey::Other`].
    pub fn from_peer(text: &str) -> Self {
        text.parse().unwrap_or_else(|_| Self::Other(text.into()))
    }
}

/// The text is not an entry key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not an entry key; expected node, head/NS/NAME, local/NS/NAME, or list/NS/NAME/PORT/FAMILY/SCOPE"
)]
pub struct KeyError {
    /// The text as received.
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
        let mut hasher = EntryHasher::new(key);
        hasher.update(bytes);
        hasher.finish()
    }
}

/// Computes the hash of an entry whose bytes arrive in parts.
pub struct EntryHasher(xxh3::Xxh3);

impl fmt::Debug for EntryHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryHasher")
    }
}

impl EntryHasher {
    /// The hasher for the entry with this key.
    pub fn new(key: &EntryKey) -> Self {
        let mut hasher = xxh3::Xxh3::new();
        hasher.update(key.to_string().as_bytes());
        hasher.update(&[0]);
        Self(hasher)
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of the bytes so far.
    pub fn finish(&self) -> EntryHash {
        EntryHash(self.0.digest128())
    }
}

/// The hash of a set of entries: the wrapping sum of their hashes. It does not depend on the order, and an update
/// costs only the entries that changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PlanHash(pub u128);

impl PlanHash {
    /// The hash with one entry added.
    #[must_use]
    pub fn with(self, entry: EntryHash) -> Self {
        Self(self.0.wrapping_add(entry.0))
    }

    /// The hash with one entry removed.
    #[must_use]
    pub fn without(self, entry: EntryHash) -> Self {
        Self(self.0.wrapping_sub(entry.0))
    }

    /// The hash as 16 big-endian bytes, as on the wire.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Parses 16 big-endian bytes; `None` for any other length.
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
