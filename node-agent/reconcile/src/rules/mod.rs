//! The constant iptables rules. Their number does not depend on the cluster; everything that does is in sets.
//! The function `guard` below enforces `loadBalancerSourceRanges`.
//!
//! Rules are written exactly as `iptables-save` prints them, so that loaded and observed rules can be compared as
//! text.

mod filter;
mod mangle;
mod nat;
mod observed;
mod raw;
mod restore;

use std::collections::BTreeMap;

use portolan_plan::{Family, LocalDetection, Settings};

pub(crate) use nat::MASQUERADE_PORTS;
pub use observed::ObservedRules;
pub use restore::{cleanup_text, restore_text};

use crate::set::{SetId, SetRole};

/// The prefix of the names of Portolan's chains.
pub const CHAIN_PREFIX: &str = "PORTOLAN-";

/// The iptables tables that contain Portolan's chains.
pub const TABLES: [&str; 4] = ["filter", "mangle", "nat", "raw"];

/// A jump from a built-in chain into one of Portolan's chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The built-in chain.
    pub from: &'static str,
    /// Portolan's chain, without [`CHAIN_PREFIX`].
    pub to: &'static str,
    /// Its place among the rules of other programs.
    pub place: Place,
}

/// The place of a jump among the rules of other programs in the same chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before them.
    First,
    /// After them.
    Last,
    /// Anywhere.
    Any,
}

/// Portolan's part of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    pub name: &'static str,
    /// The jumps into Portolan's chains.
    pub jumps: &'static [Jump],
    /// Portolan's chains without [`CHAIN_PREFIX`], each with its rules.
    pub chains: BTreeMap<&'static str, Vec<String>>,
}

/// Portolan's rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The family.
    pub family: Family,
    /// The tables.
    pub tables: Vec<Table>,
}

impl Rules {
    /// The rules of a family under these settings. If pods of the family cannot be recognised, no client is treated
    /// as an external client that has to be kept out.
    pub fn new(family: Family, settings: &Settings, recognises_pods: bool) -> Self {
        Self {
            family,
            tables: vec![
                filter::table(family, settings, recognises_pods),
                mangle::table(family, settings, recognises_pods),
                nat::table(family, settings),
                raw::table(family, settings),
            ],
        }
    }

    /// The rules that the kernel lists after these rules are loaded.
    pub fn expected(&self) -> ObservedRules {
        ObservedRules::of(self)
    }
}

/// The place of Portolan's jump in a built-in chain.
fn place(table: &str, chain: &str) -> Place {
    let jumps = match table {
        "mangle" => mangle::JUMPS,
        "nat" => nat::JUMPS,
        _ => &[],
    };
    let found = jumps.iter().find(|jump| jump.from == chain);
    found.map_or(Place::Any, |jump| jump.place)
}

fn set(family: Family, role: SetRole) -> String {
    SetId { role, family }.to_string()
}

/// A mark in the format of the iptables tools.
fn mark(bits: u32) -> String {
    format!("{bits:#x}")
}

/// Keeps clients outside of `loadBalancerSourceRanges` from a frontend (S-86).
fn guard(family: Family) -> String {
    let (guarded, allow) = (set(family, SetRole::Guarded), set(family, SetRole::Allow));
    format!("-m set --match-set {guarded} dst,dst -m set ! --match-set {allow} dst,dst,src -j DROP")
}

/// Matches packets to this set that do not come from a recognised pod. Interfaces precede other matches, as in the
/// output of the tools.
fn not_from_pods(family: Family, settings: &Settings, to: &str) -> String {
    let Others { input, source } = Others::new(family, settings);
    format!("{input}-m set --match-set {to} dst,dst{source}")
}

/// Matches packets that do not come from a recognised pod.
struct Others {
    /// By interface; comes first.
    input: String,
    /// By address; comes after the destination.
    source: String,
}

impl Others {
    fn new(family: Family, settings: &Settings) -> Self {
        let nothing = String::new();
        match &settings.local_detection {
            // An empty set of pods excludes no source, so all connections are masqueraded.
            LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => Self {
                input: nothing,
                source: format!(" -m set ! --match-set {} src", set(family, SetRole::Pods)),
            },
            LocalDetection::BridgeInterface { bridge } => Self {
                input: format!("! -i {bridge} "),
                source: nothing,
            },
            LocalDetection::InterfaceNamePrefix { prefix } => Self {
                input: format!("! -i {prefix}+ "),
                source: nothing,
            },
        }
    }
}
