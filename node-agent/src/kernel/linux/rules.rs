//! Rules, through the tools that every node has: once to read and once to write, a few times in the
//! life of the agent. All in one variant of them; what the other has of ours goes (S-170).

use std::collections::BTreeSet;
use std::fmt::Display;

use portolan_plan::Family;
use portolan_reconcile::RulesOp;
use portolan_reconcile::rules::{ObservedRules, TABLES, cleanup_text};
use tracing::info;

use super::generation::Generation;
use super::iptables::{self, IptablesChoice, Variant};
use super::tool::{self, Running};
use crate::kernel::KernelError;

/// How long the tools wait for the lock of the tables, in seconds. Everything else waits as long.
const LOCK_SECONDS: &str = "5";
/// The same once that was in vain. Without a time, or with 0, they would wait for ever.
const LOCK_SECONDS_AGAIN: &str = "1";

/// The tools `iptables-save` and `iptables-restore` of one variant, and their IPv6 twins.
#[derive(Debug)]
pub struct Rules {
    variant: Variant,
    reason: &'static str,
    /// The other variant, and the families for which it may have chains of ours.
    left: Option<(Variant, BTreeSet<Family>)>,
    /// Whether somebody held the lock of the tables all the time that we may wait for it. Whatever is
    /// loaded next hardly waits for it again.
    locked: bool,
    /// What was read last, and of which generation that is.
    known: Option<(Generation, Found)>,
    /// What is being loaded ahead of its turn.
    begun: Vec<(RulesOp, Result<Running, KernelError>)>,
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
            locked: false,
            known: None,
            begun: Vec::new(),
        })
    }

    /// Logs which variant is used, and why.
    pub fn tell(&self) {
        info!(variant = %self.variant, reason = self.reason, "variant of iptables");
    }

    /// Forgets that the lock was held: the kernel is looked at again. What was foreseen and did not come
    /// has its end first.
    fn look(&mut self) {
        self.locked = false;
        for (_, begun) in self.begun.drain(..) {
            drop(begun.and_then(Running::finish));
        }
    }

    /// Begins to read our rules as they are loaded, both families at once: most of the time goes into
    /// starting the tools. Where nothing was changed since they were read, none is. The kernel is
    /// looked at again, so a lock that was held is forgotten.
    pub fn begin_reading(&mut self) -> Reading {
        self.look();
        // Of before the tools read: what changes meanwhile has another one.
        let generation = match self.variant {
            Variant::Nft => Generation::now(),
            Variant::Legacy | Variant::Plain => None,
        };
        let known = self.known.as_ref();
        let known = known.filter(|(known, _)| Some(*known) == generation);
        if let Some((_, found)) = known {
            return Reading(Way::Known(found.clone()));
        }
        if generation == Some(Generation::NOTHING) {
            // Counting began anew where nf_tables was loaded anew.
            self.known = None;
            return Reading(Way::Known(Family::BOTH.map(|_| ObservedRules::default())));
        }
        let begun = Family::BOTH.map(|family| begin_saving(self.variant, family));
        Reading(Way::Begun(generation, begun))
    }

    /// Our rules of both families as they are loaded, or what the tool says.
    pub fn observe(
        &mut self,
        reading: Reading,
    ) -> [(Family, Result<ObservedRules, KernelError>); 2] {
        let (generation, begun) = match reading.0 {
            Way::Known(found) => return by_family(found.map(Ok)),
            Way::Begun(generation, begun) => (generation, begun),
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

    /// Begins to load rules whose turn comes soon.
    pub fn foresee(&mut self, ops: &[&RulesOp]) {
        let begin = |op: &&RulesOp| ((*op).clone(), self.begin(op));
        let begun: Vec<_> = ops.iter().map(begin).collect();
        self.begun.extend(begun);
    }

    /// Loads the rules of operations, of all families at once, and takes them out of the other
    /// variant. The errors are what the tool says, and what to check.
    pub fn apply(&mut self, ops: &[&RulesOp]) -> Vec<Result<(), KernelError>> {
        let begun: Vec<_> = ops.iter().map(|op| self.begun(op)).collect();
        let finish = |(op, begun): (&&RulesOp, _)| {
            let done = self.finish(op, begun);
            self.locked |= done.as_ref().is_err_and(is_locked);
            // The older tables are loaded one after the other, the newer ones all at once or not at
            // all.
            let in_doubt = self.variant != Variant::Nft && !self.locked;
            done.map_err(|error| explain(op, self.variant, &error).in_doubt_if(in_doubt))
        };
        ops.iter().zip(begun).map(finish).collect()
    }

    /// What was begun for this operation, or begins now.
    fn begun(&mut self, op: &RulesOp) -> Result<Running, KernelError> {
        match self.begun.iter().position(|(begun, _)| begun == op) {
            Some(place) => self.begun.swap_remove(place).1,
            None => self.begin(op),
        }
    }

    fn begin(&self, op: &RulesOp) -> Result<Running, KernelError> {
        begin_loading(self.variant, op.family, &op.text, self.locked)
    }

    fn finish(
        &mut self,
        op: &RulesOp,
        begun: Result<Running, KernelError>,
    ) -> Result<(), KernelError> {
        begun?.finish()?;
        // A cleanup has nothing to load for a family that stands in the other variant alone.
        if op.rules.is_empty() {
            let mut families = Family::BOTH.into_iter();
            return families.try_for_each(|family| self.leave(family));
        }
        self.leave(op.family)
    }

    fn leave(&mut self, family: Family) -> Result<(), KernelError> {
        let Some((other, families)) = &mut self.left else {
            return Ok(());
        };
        if families.contains(&family) {
            let found = saved(*other, family, begin_saving(*other, family))?;
            if let Some(text) = cleanup_text(&found) {
                begin_loading(*other, family, &text, self.locked)?.finish()?;
                info!(variant = %other, %family, "took our rules out of the other variant of iptables");
            }
            families.remove(&family);
        }
        Ok(())
    }
}

/// Rules of both families, in their order.
type Found = [ObservedRules; 2];

/// The rules of both families, on their way.
#[derive(Debug)]
pub struct Reading(Way);

#[derive(Debug)]
enum Way {
    /// Nobody has changed what was known.
    Known(Found),
    /// Tools that read them, and the generation that they find or one before.
    Begun(Option<Generation>, [Result<Running, KernelError>; 2]),
}

impl Reading {
    /// Whether nobody has to read them.
    pub fn is_known(&self) -> bool {
        matches!(self.0, Way::Known(_))
    }

    /// Waits for the end of what was begun, whatever it says.
    pub(super) fn end(self) {
        if let Way::Begun(_, begun) = self.0 {
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

/// What the tool remarks about a table of ours that it leaves out, because somebody's rules in it are
/// not of iptables. It calls that a success, and a table without our chains would be given the jumps
/// into them once more, time and again.
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

fn begin_loading(
    variant: Variant,
    family: Family,
    text: &str,
    locked: bool,
) -> Result<Running, KernelError> {
    let seconds = if locked {
        LOCK_SECONDS_AGAIN
    } else {
        LOCK_SECONDS
    };
    let arguments = ["--noflush", "-w", seconds];
    tool::start(&variant.restore(family), &arguments, Some(text))
}

/// The tools say so in these words, whichever way they were asked to wait.
fn is_locked(error: &KernelError) -> bool {
    error.reason.contains("xtables lock")
}

/// The same for both families, which wait for the same lock: it is one cause.
const LOCKED: &str = "somebody holds the lock of the tables (`lsof /run/xtables.lock` shows who); the \
                      rules are loaded soon after it is free";

fn explain(action: &dyn Display, variant: Variant, error: &KernelError) -> KernelError {
    if is_locked(error) {
        return KernelError::new(action, LOCKED);
    }
    let hint = match variant {
        _ if error.reason.contains("incompatible") => {
            "somebody's rules in this table were written by nft, and iptables cannot read them: \
             `nft list ruleset` shows them; they belong into a table of their own"
        }
        Variant::Legacy => {
            "does this kernel have these tables (modprobe iptable_nat ip6table_nat xt_set), or should \
             --iptables name the other variant?"
        }
        Variant::Nft | Variant::Plain => {
            "does this kernel have nf_tables and xt_set (modprobe nf_tables nft_compat xt_set), or \
             should --iptables name the other variant?"
        }
    };
    KernelError::new(action, &format_args!("{error}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str) -> String {
        let error = KernelError::new("run iptables-nft-restore", words);
        explain(&"load IPv4 rules", Variant::Nft, &error).to_string()
    }

    /// S-170.
    #[test]
    fn a_tool_that_fails_is_told_with_what_to_check() {
        for (words, check) in [
            (
                "table `filter' is incompatible, use 'nft' tool.",
                "nft list ruleset",
            ),
            (
                "Could not fetch rule set generation id: Invalid argument",
                "modprobe nf_tables",
            ),
        ] {
            let told = told(words);
            let begins = format!("load IPv4 rules: run iptables-nft-restore: {words}; ");
            assert!(told.starts_with(&begins) && told.contains(check), "{told}");
        }
    }

    #[test]
    fn a_table_that_the_tool_leaves_out_is_not_empty() {
        let remark =
            |table| format!("*nat\nCOMMIT\n# Table `{table}' is incompatible, use 'nft' tool.\n");
        for table in TABLES {
            assert!(left_out(&remark(table)).is_some(), "{table}");
        }
        assert_eq!(left_out(&remark("security")), None, "we have nothing there");
        assert_eq!(
            left_out("# Table `filter' is as it was\n*filter\nCOMMIT\n"),
            None
        );
    }

    /// S-169.
    #[test]
    fn a_lock_that_is_held_is_one_cause_however_long_a_tool_waited() {
        let lock = "Another app is currently holding the xtables lock";
        let waited = told(&format!("{lock}. Stopped waiting after 5s."));
        let again = told(&format!("{lock}. Stopped waiting after 1s."));
        assert_eq!(waited, again);
        assert!(
            waited.starts_with("load IPv4 rules: somebody holds the lock"),
            "{waited}"
        );
    }
}
