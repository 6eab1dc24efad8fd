//! The sets and maps of a table: their names and definitions.

use std::fmt;
use std::str::FromStr;

use nft_rs::{Field, Set};
use portolan_plan::Family;

use super::sizes::Sizes;
use super::slots::SizeClass;

/// The highest number of clients that stay with their backends. A client beyond it gets a random backend each time.
const MAX_AFFINITY: u32 = 262_144;

/// The highest number of frontends that count. Connections to others are not counted.
const MAX_COUNTED: u32 = 262_144;

/// A set or map of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetName {
    /// The backends of frontends by slot: the map from which rules draw.
    Endpoint,
    /// The backends of clients that stay with one (`sessionAffinity: ClientIP`), a map that rules fill.
    Affinity,
    /// New connections of frontends, a set that rules fill and in which they count.
    Counted,
    /// All frontends with a backend.
    Frontend,
    /// Frontends by the size class of their slots.
    Class(SizeClass),
    /// Frontends whose clients stay with their backends.
    Sticky,
    /// Those of them with this timeout in seconds.
    StickyFor(u32),
    /// Cluster IPs with their ports.
    ClusterIp,
    /// Other frontends of policy Cluster.
    Masquerade,
    /// Frontends that drop new connections of external clients (S-22).
    NoLocal,
    /// Frontends without a backend, which reject new connections.
    Refuse,
    /// Frontends with source ranges.
    Guarded,
    /// The ranges that may connect to them (S-86).
    Allow,
    /// Frontends that choose a backend by the address of the client.
    SourceHash,
    /// This node's endpoints that connect to themselves (S-74).
    Hairpin,
    /// The ranges whose addresses count as pods.
    Pods,
    /// The service ranges.
    Ranges,
    /// Addresses of load balancers at whose unused ports connections from outside are rejected (S-247).
    Balancers,
}

impl SetName {
    /// All sets that a table always has. [`Self::StickyFor`] exists for the timeouts in use.
    pub fn constant() -> impl Iterator<Item = Self> {
        [
            Self::Endpoint,
            Self::Affinity,
            Self::Counted,
            Self::Frontend,
            Self::Sticky,
            Self::ClusterIp,
            Self::Masquerade,
            Self::NoLocal,
            Self::Refuse,
            Self::Guarded,
            Self::Allow,
            Self::SourceHash,
            Self::Hairpin,
            Self::Pods,
            Self::Ranges,
            Self::Balancers,
        ]
        .into_iter()
        .chain(SizeClass::all().map(Self::Class))
    }

    /// Whether its elements are frontends, nothing else.
    pub fn is_of_frontends(self) -> bool {
        match self {
            Self::Frontend
            | Self::Class(_)
            | Self::Sticky
            | Self::StickyFor(_)
            | Self::ClusterIp
            | Self::Masquerade
            | Self::NoLocal
            | Self::Refuse
            | Self::Guarded
            | Self::SourceHash => true,
            Self::Endpoint
            | Self::Affinity
            | Self::Counted
            | Self::Allow
            | Self::Hairpin
            | Self::Pods
            | Self::Ranges
            | Self::Balancers => false,
        }
    }

    /// Whether packets add and remove its elements, and the agent does not.
    pub fn is_filled_by_packets(self) -> bool {
        matches!(self, Self::Affinity | Self::Counted)
    }

    /// Whether its elements are intervals of the kernel.
    pub(super) fn has_intervals(self) -> bool {
        matches!(
            self,
            Self::Allow | Self::Pods | Self::Ranges | Self::Balancers
        )
    }

    /// Whether its size follows the contents. The others are trees, or have a size of their own.
    pub(super) fn follows_contents(self) -> bool {
        !(self.is_filled_by_packets() || self.has_intervals())
    }

    /// Its definition in the table of a family.
    pub fn definition(self, family: Family, sizes: &Sizes) -> Set {
        let address = match family {
            Family::Ipv4 => Field::Ipv4Address,
            Family::Ipv6 => Field::Ipv6Address,
        };
        let frontend = [address, Field::Protocol, Field::Port];
        let and = |field| frontend.into_iter().chain([field]);
        let backend = [address, Field::Port];
        let name = self.to_string();
        let set = match self {
            Self::Endpoint => Set::map(name, and(Field::Mark), backend),
            Self::Affinity => Set::map(name, and(address), backend).dynamic(MAX_AFFINITY),
            Self::Counted => Set::new(name, frontend).dynamic(MAX_COUNTED),
            Self::Allow => Set::new(name, and(address)).with_intervals(),
            Self::Hairpin => Set::new(name, [address, address, Field::Protocol, Field::Port]),
            Self::Pods | Self::Ranges | Self::Balancers => {
                Set::new(name, [address]).with_intervals()
            }
            _ => Set::new(name, frontend),
        };
        match sizes.of(self) {
            Some(size) => set.with_size(size),
            None => set,
        }
    }
}

/// The name in the kernel.
impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Endpoint => "endpoint",
            Self::Affinity => "affinity",
            Self::Counted => "counted",
            Self::Frontend => "frontend",
            Self::Class(class) => return write!(f, "c{class}"),
            Self::Sticky => "sticky",
            Self::StickyFor(seconds) => return write!(f, "sticky-{seconds}"),
            Self::ClusterIp => "clusterip",
            Self::Masquerade => "masq",
            Self::NoLocal => "nolocal",
            Self::Refuse => "refuse",
            Self::Guarded => "guarded",
            Self::Allow => "allow",
            Self::SourceHash => "source-hash",
            Self::Hairpin => "hairpin",
            Self::Pods => "pods",
            Self::Ranges => "ranges",
            Self::Balancers => "balancers",
        })
    }
}

/// The name is not that of a set of Portolan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSet;

impl FromStr for SetName {
    type Err = UnknownSet;

    fn from_str(name: &str) -> Result<Self, UnknownSet> {
        let found = Self::constant().find(|set| set.to_string() == name);
        let sticky = || {
            let seconds = name.strip_prefix("sticky-")?.parse().ok()?;
            Some(Self::StickyFor(seconds)).filter(|set| set.to_string() == name)
        };
        found.or_else(sticky).ok_or(UnknownSet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for set in SetName::constant().chain([SetName::StickyFor(10_800)]) {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        for other in ["", "c3", "c8192", "sticky-", "sticky-010", "endpoints"] {
            assert_eq!(other.parse::<SetName>(), Err(UnknownSet), "{other}");
        }
    }
}
