//! Rules, through the tools that every node has: once to read and once to write, a few times in the
//! life of the agent. All in one variant of them; what the other has of ours goes (S-170).

use std::collections::BTreeSet;

use portolan_plan::Family;
use portolan_reconcile::Op;
use portolan_reconcile::rules::{ObservedRules, cleanup_text};
use tracing::info;

use super::iptables::{self, IptablesChoice, Variant};
use super::tool;
use crate::kernel::KernelError;

/// How long the tools wait for the lock of the tables, in seconds.
const LOCK_SECONDS: &str = "5";

/// The tools `iptables-save` and `iptables-restore` of one variant, and their IPv6 twins.
#[derive(Debug)]
pub struct Rules {
    variant: Variant,
    reason: &'static str,
    /// The other variant, and the families for which it may have chains of ours.
    left: Option<(Variant, BTreeSet<Family>)>,
}

impl Rules {
    /// Finds the variant to use.
    ///
    /// # Errors
    /// Which tool is not there, and which package has it.
    pub fn find(choice: IptablesChoice) -> Result<Self, KernelError> {
        let found = iptables::find(choice)?;
        Ok(Self {
            variant: found.variant,
            reason: found.reason,
            left: found.left.map(|other| (other, Family::BOTH.into())),
        })
    }

    /// Logs which variant is used, and why.
    pub fn tell(&self) {
        info!(variant = %self.variant, reason = self.reason, "variant of iptables");
    }

    /// Our rules as they are loaded.
    ///
    /// # Errors
    /// What the tool says.
    pub fn observe(&self, family: Family) -> Result<ObservedRules, KernelError> {
        saved(self.variant, family)
    }

    /// Loads the rules of an operation, and takes them out of the other variant.
    ///
    /// # Errors
    /// What the tool says.
    pub fn apply(&mut self, op: &Op) -> Result<(), KernelError> {
        let Op::LoadRules {
            family,
            text,
            rules,
        } = op
        else {
            return Err(KernelError::new(op, "no rules"));
        };
        load(self.variant, *family, text)?;
        // A cleanup has nothing to load for a family that stands in the other variant alone.
        let moved = if rules.is_empty() {
            Vec::from(Family::BOTH)
        } else {
            vec![*family]
        };
        moved.into_iter().try_for_each(|family| self.leave(family))
    }

    fn leave(&mut self, family: Family) -> Result<(), KernelError> {
        let Some((other, families)) = &mut self.left else {
            return Ok(());
        };
        if families.contains(&family) {
            if let Some(text) = cleanup_text(&saved(*other, family)?) {
                load(*other, family, &text)?;
                info!(variant = %other, %family, "took our rules out of the other variant of iptables");
            }
            families.remove(&family);
        }
        Ok(())
    }
}

fn saved(variant: Variant, family: Family) -> Result<ObservedRules, KernelError> {
    let output = tool::run(&variant.save(family), &[], None)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(ObservedRules::parse(&text))
}

fn load(variant: Variant, family: Family, text: &str) -> Result<(), KernelError> {
    let arguments = ["--noflush", "-w", LOCK_SECONDS];
    tool::run(&variant.restore(family), &arguments, Some(text)).map(drop)
}
