//! The constant rules: their number does not depend on the cluster, all that does is in sets.
//!
//! Rules are written exactly as `iptables-save` prints them, so that what is loaded and what is
//! read back compare as text.

mod filter;
mod mangle;
mod nat;
mod observed;
mod raw;
mod restore;

use std::collections::BTreeMap;

use portolan_plan::{Family, LocalDetection, Settings};

pub use observed::ObservedRules;
pub use restore::{cleanup_text, restore_text};

use crate::set::{SetId, SetRole};

/// What all our chains' names begin with.
pub const CHAIN_PREFIX: &str = "PORTOLAN-";

/// The tables of iptables that have chains of ours.
pub const TABLES: [&str; 4] = ["filter", "mangle", "nat", "raw"];

/// A jump from a chain of the kernel into one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The chain of the kernel.
    pub from: &'static str,
    /// Our chain, without [`CHAIN_PREFIX`].
    pub to: &'static str,
    /// Whether it has to stand before what other programs put there.
    pub first: bool,
}

/// Our part of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    pub name: &'static str,
    /// How packets come to our chains.
    pub jumps: &'static [Jump],
    /// Our chains without [`CHAIN_PREFIX`], each with its rules.
    pub chains: BTreeMap<&'static str, Vec<String>>,
}

/// Our rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The family.
    pub family: Family,
    /// The tables.
    pub tables: Vec<Table>,
}

impl Rules {
    /// The rules of a family under these settings. Where pods of the family cannot be told from
    /// others, nobody is taken for an outsider that has to be kept out.
    pub fn new(family: Family, settings: &Settings, tells_pods: bool) -> Self {
        Self {
            family,
            tables: vec![
                filter::table(family, settings),
                mangle::table(family, settings, tells_pods),
                nat::table(family, settings),
                raw::table(family, settings),
            ],
        }
    }

    /// What the kernel shows once these rules are loaded.
    pub fn expected(&self) -> ObservedRules {
        ObservedRules::of(self)
    }
}

/// Whether our jump from a chain of the kernel has to be its first rule.
fn has_to_be_first(table: &str, chain: &str) -> bool {
    let mut jumps = nat::JUMPS.iter();
    table == "nat" && jumps.any(|jump| jump.first && jump.from == chain)
}

fn set(family: Family, role: SetRole) -> String {
    SetId { role, family }.to_string()
}

/// A mark, as the tools print it.
fn mark(bits: u32) -> String {
    format!("{bits:#x}")
}

/// Keeps clients out of frontends that are for some sources only (S-86).
fn guard(family: Family) -> String {
    let (guarded, allow) = (set(family, SetRole::Guarded), set(family, SetRole::Allow));
    format!("-m set --match-set {guarded} dst,dst -m set ! --match-set {allow} dst,dst,src -j DROP")
}

/// Matches packets to this set that do not come from what counts as a pod. Interfaces stand before
/// other matches, as the tools print them.
fn not_from_pods(family: Family, settings: &Settings, to: &str) -> String {
    let to = format!("-m set --match-set {to} dst,dst");
    match &settings.local_detection {
        // An empty set of pods excludes nobody, so everybody is masqueraded then.
        LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => {
            format!(
                "{to} -m set ! --match-set {} src",
                set(family, SetRole::Pods)
            )
        }
        LocalDetection::BridgeInterface { bridge } => format!("! -i {bridge} {to}"),
        LocalDetection::InterfaceNamePrefix { prefix } => format!("! -i {prefix}+ {to}"),
    }
}
