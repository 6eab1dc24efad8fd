//! All that is loaded into iptables, in both variants, as the tools print it: for whoever asks what is
//! wrong. Nothing here writes.

use portolan_plan::Family;

use super::iptables::{self, IptablesChoice, Variant};
use super::rules::left_out;
use super::tool;
use crate::kernel::KernelError;

/// Rules of all variants that have tools here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// The variant that the agent uses.
    pub used: Variant,
    /// What is loaded, by variant and family.
    pub dumps: Vec<Dump>,
}

/// What is loaded in one variant for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The variant.
    pub variant: Variant,
    /// The family.
    pub family: Family,
    /// What the tool prints, or why that cannot be read.
    pub text: Result<String, String>,
}

impl Tables {
    /// Reads all rules.
    ///
    /// # Errors
    /// There are no tools, or none of them can read anything.
    pub fn read(choice: IptablesChoice) -> Result<Self, KernelError> {
        let used = iptables::find(choice)?.variant;
        let other = used.other().filter(|other| other.is_there().is_ok());
        let variants = [Some(used), other].into_iter().flatten();
        let dump = |variant| Family::BOTH.map(|family| dump(variant, family));
        Ok(Self {
            used,
            dumps: variants.flat_map(dump).collect(),
        })
    }
}

fn dump(variant: Variant, family: Family) -> Dump {
    let text = tool::run(&variant.save(family), &[], None)
        .map_err(|error| error.to_string())
        .and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            match left_out(&text) {
                None => Ok(text),
                Some(remark) => Err(format!("{}: {remark}", variant.save(family))),
            }
        });
    Dump {
        variant,
        family,
        text,
    }
}

/// The names of the tables of nf_tables, as `nft list tables` prints them.
///
/// # Errors
/// What the tool says, or that it is not there.
pub fn nft_tables() -> Result<String, KernelError> {
    let output = tool::run("nft", &["list", "tables"], None)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
