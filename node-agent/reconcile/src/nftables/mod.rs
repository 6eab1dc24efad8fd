//! The nftables dataplane: one table per family, with constant chains and rules. Everything that depends on the cluster
//! is an element of a set or map.
//!
//! [`Tables`] is the desired state, made of [`Facts`](crate::Facts). [`ObservedTables`] is the state that was read or
//! written, and [`Tables::diff`] computes a [`Transaction`] between them, which the kernel executes as a whole. Two
//! properties keep a change cheap, whatever the size of the cluster: no set is anonymous, since each of those costs a
//! walk over all sets, and no element is a verdict, since the kernel validates the whole table for each of those.

mod diff;
mod document;
mod drift;
mod element;
mod encode;
mod frontend;
#[cfg(test)]
mod laws;
mod layout;
#[cfg(test)]
mod model;
mod observed;
mod print;
mod read;
mod replace;
mod servers;
mod set;
mod sizes;
mod slots;
mod tables;
mod transaction;

pub use diff::DiffCursor;
pub use document::{
    BackendDocument, FrontendDocument, RangesDocument, ServiceDocument, TablesDocument,
};
pub use drift::{TableDrift, TableDriftKind, drift, in_words};
pub use element::TableElement;
pub use encode::{Encoded, Owner};
pub use frontend::{FrontendElements, WantedFrontend};
pub use layout::{Layout, LayoutOptions};
pub use observed::{ObservedTable, ObservedTables};
pub use print::LayoutPrint;
pub use read::counted;
pub use replace::Touched;
pub use set::SetName;
pub use sizes::Sizes;
pub use slots::{MAX_SLOTS, SizeClass, SlotChange, SlotPlan, Slots};
pub use tables::{FamilyTables, Tables};
pub use transaction::{Operation, Step, Transaction};

use portolan_plan::Family;

/// The name of the tables.
pub const TABLE: &str = "portolan";

/// The table of a family: `ip portolan` or `ip6 portolan`.
pub fn table_id(family: Family) -> nft_rs::TableId {
    nft_rs::TableId::new(nft_family(family), TABLE)
}

fn nft_family(family: Family) -> nft_rs::Family {
    match family {
        Family::Ipv4 => nft_rs::Family::Ipv4,
        Family::Ipv6 => nft_rs::Family::Ipv6,
    }
}
