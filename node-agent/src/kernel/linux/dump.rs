//! All loaded iptables rules of both variants, as printed by the tools, for `doctor`. Read-only.

use portolan_plan::Family;

use super::iptables::{self, IptablesChoice, Variant};
use super::rules::left_out;
use super::tool;
use crate::kernel::KernelError;

/// Rules of all variants with installed tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// The variant that the agent uses.
    pub used: Variant,
    /// The rules, by variant and family.
    pub dumps: Vec<Dump>,
}

/// The rules of one variant and family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The variant.
    pub variant: Variant,
    /// The family.
    pub family: Family,
    /// The output of the tool, or why the rules cannot be read.
    pub text: Result<String, String>,
}

impl Tables {
    /// Reads all rules.
    ///
    /// # Errors
    /// If there are no tools, or none of them can read any rules.
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

/// The output of the tool `nft`.
///
/// # Errors
/// If the tool fails or is not installed.
pub fn nft(arguments: &[&str]) -> Result<String, KernelError> {
    let output = tool::run("nft", arguments, None)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
