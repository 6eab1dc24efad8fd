//! Rules, through the iptables tools, which the agent runs only a few times. All rules are in one variant; rules of
//! the agent in the other variant are removed (S-170).

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{File, TryLockError};

use portolan_plan::Family;
use portolan_reconcile::RulesOp;
use portolan_reconcile::rules::{ObservedRules, TABLES, cleanup_text};
use tracing::info;

use super::generation::Generation;
use super::iptables::{self, IptablesChoice, Variant};
use super::tool::{self, Running};
use crate::kernel::{KernelError, LockWait};

/// Timeout of the tools for the iptables lock, in seconds. The whole pass waits during this time.
const LOCK_SECONDS: &str = "5";
/// Timeout after a first one has expired. Without a value, or with 0, the tools would wait forever.
const LOCK_SECONDS_AFTER_TIMEOUT: &str = "1";
/// The file that the tools lock.
const LOCK: &str = "/run/xtables.lock";

/// The tools `iptables-save` and `iptables-restore` of one variant, and their IPv6 twins.
#[derive(Debug)]
pub struct Rules {
    variant: Variant,
    reason: &'static str,
    /// The other variant, and the families for which it may contain chains of the agent.
    left: Option<(Variant, BTreeSet<Family>)>,
    /// Whether waiting for the iptables lock timed out. Later loads of this pass use the short timeout.
    locked: bool,
    /// Whether rules of the last load wait for the lock.
    waits: bool,
    /// Whether they still waited for it when this load began.
    held: bool,
    /// The last read rules, with their generation.
    known: Option<(Generation, Found)>,
    /// Loads that were begun in advance.
    begun: Vec<(RulesOp, Result<Running, KernelError>)>,
}

impl Rules {
    /// Selects the variant to use.
    ///
    /// # Errors
    /// If a tool is not installed, with its package.
    pub fn find(choice: IptablesChoice) -> Result<Self, KernelError> {
        let found = iptables::find(choice)?;
        Ok(Self {
            variant: found.variant,
            reason: found.reason,
            left: found.left.map(|other| (other, Family::BOTH.into())),
            locked: false,
            waits: false,
            held: false,
            known: None,
            begun: Vec::new(),
        })
    }

    /// Logs the selected variant and the reason.
    pub fn log_variant(&self) {
        info!(variant = %self.variant, reason = self.reason, "variant of iptables");
    }

    /// Resets the state for a new read of the kernel. Loads that were begun in advance but not used are finished
    /// first.
    fn reset(&mut self) {
        self.locked = false;
        for (_, begun) in self.begun.drain(..) {
            drop(begun.and_then(Running::finish));
        }
    }

    /// Begins to read the agent's rules of both families in parallel, because most of the time is for starting the
    /// tools. If no rule has changed since the last read, no tool is started. This also resets the state of the
    /// iptables lock.
    pub fn begin_reading(&mut self) -> Reading {
        self.reset();
        // Read before the tools run, so that a later change has another generation.
        let generation = match self.variant {
            Variant::Nft => Generation::now(),
            Variant::Legacy | Variant::Plain => None,
        };
        let known = self.known.as_ref();
        let known = known.filter(|(known, _)| Some(*known) == generation);
        if let Some((_, found)) = known {
            return Reading(ReadSource::Known(found.clone()));
        }
        if generation == Some(Generation::NOTHING) {
            // The generation starts again if nf_tables was reloaded.
            self.known = None;
            return Reading(ReadSource::Known(
                Family::BOTH.map(|_| ObservedRules::default()),
            ));
        }
        let begun = Family::BOTH.map(|family| begin_saving(self.variant, family));
        Reading(ReadSource::Begun(generation, begun))
    }

    /// The agent's loaded rules of both families, or the error of the tool.
    pub fn observe(
        &mut self,
        reading: Reading,
    ) -> [(Family, Result<ObservedRules, KernelError>); 2] {
        let (generation, begun) = match reading.0 {
            ReadSource::Known(found) => return by_family(found.map(Ok)),
            ReadSource::Begun(generation, begun) => (generation, begun),
        };
        let read = by_family(begun).map(|(family, begun)| {
            let found = saved(self.variant, family, begun);
            let action = format!("read {family} rules");
            (
                family,
                found.map_err(|error| explain(&action, self.variant, &error)),
            )
        });
        self.known = match (&read, generation) {
            ([(_, Ok(one)), (_, Ok(other))], Some(generation)) => {
                Some((generation, [one.clone(), other.clone()]))
            }
            _ => None,
        };
        read
    }

    /// Whether the last load failed because another program held the iptables lock, and whether it still does. A release
    /// is reported once.
    pub fn lock_wait(&mut self) -> LockWait {
        if !self.waits {
            return LockWait::None;
        }
        if is_lock_free() {
            self.waits = false;
            LockWait::Released
        } else {
            LockWait::Held
        }
    }

    /// Begins to load rules in advance.
    pub fn prepare(&mut self, ops: &[&RulesOp]) {
        self.held = self.waits && !is_lock_free();
        let begin = |op: &&RulesOp| ((*op).clone(), self.begin(op));
        let begun: Vec<_> = ops.iter().map(begin).collect();
        self.begun.extend(begun);
    }

    /// Loads the rules of operations, of all families in parallel, and removes them from the other variant. Errors
    /// contain the message of the tool and what to check.
    pub fn apply(&mut self, ops: &[&RulesOp]) -> Vec<Result<(), KernelError>> {
        // Only once: the tools of this load take the lock, too.
        self.held = self.waits && !is_lock_free();
        let begun: Vec<_> = ops.iter().map(|op| self.begun(op)).collect();
        self.waits = false;
        let finish = |(op, begun): (&&RulesOp, _)| {
            let done = self.finish(op, begun);
            let waits = done.as_ref().is_err_and(is_locked);
            self.locked |= waits;
            self.waits |= waits;
            // Legacy tables are loaded one by one, nft tables atomically.
            let in_doubt = self.variant != Variant::Nft && !self.locked;
            done.map_err(|error| explain(op, self.variant, &error).in_doubt_if(in_doubt))
        };
        ops.iter().zip(begun).map(finish).collect()
    }

    /// The load that was begun for this operation, or a new one.
    fn begun(&mut self, op: &RulesOp) -> Result<Running, KernelError> {
        match self.begun.iter().position(|(begun, _)| begun == op) {
            Some(place) => self.begun.swap_remove(place).1,
            None => self.begin(op),
        }
    }

    fn begin(&self, op: &RulesOp) -> Result<Running, KernelError> {
        self.begin_loading(self.variant, op.family, &op.text)
    }

    /// Begins a load. While the lock is held for which the last load waited until its timeout, no tool that takes it is
    /// started: a pass that waits again would still be busy when the lock is released, and delay all its other work.
    fn begin_loading(
        &self,
        variant: Variant,
        family: Family,
        text: &str,
    ) -> Result<Running, KernelError> {
        let restore = variant.restore(family);
        if self.held && variant != Variant::Nft {
            let action = format!("run {restore}");
            return Err(KernelError::new(&action, STILL_HELD));
        }
        let seconds = match self.locked {
            true => LOCK_SECONDS_AFTER_TIMEOUT,
            false => LOCK_SECONDS,
        };
        tool::start(&restore, &["--noflush", "-w", seconds], Some(text))
    }

    fn finish(
        &mut self,
        op: &RulesOp,
        begun: Result<Running, KernelError>,
    ) -> Result<(), KernelError> {
        begun?.finish()?;
        // A cleanup has nothing to load for a family whose rules are only in the other variant.
        if op.rules.is_empty() {
            let mut families = Family::BOTH.into_iter();
            return families.try_for_each(|family| self.leave(family));
        }
        self.leave(op.family)
    }

    fn leave(&mut self, family: Family) -> Result<(), KernelError> {
        let left = self.left.as_ref();
        let left = left.filter(|(_, families)| families.contains(&family));
        let Some(other) = left.map(|(other, _)| *other) else {
            return Ok(());
        };
        let found = saved(other, family, begin_saving(other, family))?;
        if let Some(text) = cleanup_text(&found) {
            self.begin_loading(other, family, &text)?.finish()?;
            info!(variant = %other, %family, "removed the agent's rules from the other variant of iptables");
        }
        if let Some((_, families)) = &mut self.left {
            families.remove(&family);
        }
        Ok(())
    }
}

/// Rules of both families, in their order.
type Found = [ObservedRules; 2];

/// A read of the rules of both families in progress.
#[derive(Debug)]
pub struct Reading(ReadSource);

#[derive(Debug)]
enum ReadSource {
    /// The rules have not changed since the last read.
    Known(Found),
    /// The running tools, and the generation before they started.
    Begun(Option<Generation>, [Result<Running, KernelError>; 2]),
}

impl Reading {
    /// Whether the rules are known without a read.
    pub fn is_known(&self) -> bool {
        matches!(self.0, ReadSource::Known(_))
    }

    /// Waits for the end of the tools and ignores their results.
    pub(super) fn end(self) {
        if let ReadSource::Begun(_, begun) = self.0 {
            for begun in begun {
                drop(begun.and_then(Running::finish));
            }
        }
    }
}

fn by_family<T>([one, other]: [T; 2]) -> [(Family, T); 2] {
    let [first, second] = Family::BOTH;
    [(first, one), (second, other)]
}

fn begin_saving(variant: Variant, family: Family) -> Result<Running, KernelError> {
    tool::start(&variant.save(family), &[], None)
}

fn saved(
    variant: Variant,
    family: Family,
    begun: Result<Running, KernelError>,
) -> Result<ObservedRules, KernelError> {
    let output = begun?.finish()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match left_out(&text) {
        None => Ok(ObservedRules::parse(&text)),
        Some(remark) => {
            let action = format!("run {}", variant.save(family));
            Err(KernelError::new(&action, remark))
        }
    }
}

/// The tool's comment about a table that it left out because the table contains rules that iptables did not write.
/// The tool nevertheless succeeds, so the table would appear to lack the agent's chains, and the jumps to them
/// would be added again and again.
pub(super) fn left_out(saved: &str) -> Option<&str> {
    let remarks = saved
        .lines()
        .filter_map(|line| line.strip_prefix("# Table "));
    let mut incompatible = remarks.filter(|remark| remark.contains("incompatible"));
    incompatible.find(|remark| {
        let quoted = remark
            .strip_prefix('`')
            .and_then(|rest| rest.split_once('\''));
        quoted.is_some_and(|(table, _)| TABLES.contains(&table))
    })
}

/// Whether the lock could be taken now. Tools that take it at the same moment wait for it.
fn is_lock_free() -> bool {
    let file = File::open(LOCK);
    // Any other error is for the tool to report.
    !file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The reason of a load that was not begun, in the words of the tools.
const STILL_HELD: &str = "another program still holds the xtables lock";

/// The tools use this text regardless of the options for waiting.
fn is_locked(error: &KernelError) -> bool {
    error.reason.contains("xtables lock")
}

/// The message is the same for both families, which wait for the same lock, so that it counts as one cause.
const LOCK_IS_HELD: &str = "another program holds the iptables lock (`lsof /run/xtables.lock` shows it); the \
                      rules are loaded soon after it is released";

fn explain(action: &dyn Display, variant: Variant, error: &KernelError) -> KernelError {
    if is_locked(error) {
        return KernelError::new(action, LOCK_IS_HELD);
    }
    let hint = match variant {
        _ if error.reason.contains("incompatible") => {
            "rules in this table were written by nft, and iptables cannot read them: `nft list ruleset` \
             shows them; move them to a table of their own"
        }
        Variant::Legacy => {
            "does this kernel have these tables (modprobe iptable_nat ip6table_nat xt_set), or should \
             --iptables select the other variant?"
        }
        Variant::Nft | Variant::Plain => {
            "does this kernel have nf_tables and xt_set (modprobe nf_tables nft_compat xt_set), or \
             should --iptables select the other variant?"
        }
    };
    KernelError::new(action, &format_args!("{error}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(message: &str) -> String {
        let error = KernelError::new("run iptables-nft-restore", message);
        explain(&"load IPv4 rules", Variant::Nft, &error).to_string()
    }

    /// S-170.
    #[test]
    fn the_error_of_a_tool_contains_what_to_check() {
        for (message, check) in [
            (
                "table `filter' is incompatible, use 'nft' tool.",
                "nft list ruleset",
            ),
            (
                "Could not fetch rule set generation id: Invalid argument",
                "modprobe nf_tables",
            ),
        ] {
            let error = explained(message);
            let begins = format!("load IPv4 rules: run iptables-nft-restore: {message}; ");
            assert!(
                error.starts_with(&begins) && error.contains(check),
                "{error}"
            );
        }
    }

    #[test]
    fn a_table_that_the_tool_leaves_out_is_not_empty() {
        let remark =
            |table| format!("*nat\nCOMMIT\n# Table `{table}' is incompatible, use 'nft' tool.\n");
        for table in TABLES {
            assert!(left_out(&remark(table)).is_some(), "{table}");
        }
        assert_eq!(left_out(&remark("security")), None, "an unused table");
        assert_eq!(
            left_out("# Table `filter' is as it was\n*filter\nCOMMIT\n"),
            None
        );
    }

    /// S-169.
    #[test]
    fn a_held_lock_is_one_cause_regardless_of_the_timeout() {
        let lock = "Another app is currently holding the xtables lock";
        let waited = explained(&format!("{lock}. Stopped waiting after 5s."));
        let again = explained(&format!("{lock}. Stopped waiting after 1s."));
        assert_eq!(waited, again);
        assert!(
            waited.starts_with("load IPv4 rules: another program holds the iptables lock"),
            "{waited}"
        );
    }
}
