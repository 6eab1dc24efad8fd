//! The constant rules: their number does not depend on the cluster, all that does is in sets.
//!
//! Rules are written exactly as `iptables-save` prints them, so that what is loaded and what is
//! read back compare as text.

mod filter;
mod mangle;
mod nat;
mod observed;
mod restore;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use portolan_plan::{Family, LocalDetection, Settings};

pub use observed::ObservedRules;
pub use restore::{cleanup_text, restore_text};

use crate::set::{SetId, SetRole};

/// What all our chains' names begin with.
pub const CHAIN_PREFIX: &str = "PORTOLAN-";

/// A jump from a chain of the kernel into one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The chain of the kernel.
    pub from: &'static str,
    /// Our chain, without [`CHAIN_PREFIX`].
    pub to: &'static str,
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
            ],
        }
    }

    /// What the kernel shows once these rules are loaded.
    pub fn expected(&self) -> ObservedRules {
        ObservedRules::of(self)
    }
}

fn set(family: Family, role: SetRole) -> String {
    SetId { role, family }.to_string()
}

/// Our bit of the packet mark, as the tools print it.
fn mark(settings: &Settings) -> String {
    let bit = 1u32
        .checked_shl(settings.masquerade.bit.into())
        .unwrap_or_default();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _: Result<(), std::fmt::Error> = write!(text, "{bit:#x}");
    text
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
