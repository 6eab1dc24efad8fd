//! Selects the variant of iptables. Rules of both variants are active at the same time, so rules in the wrong variant
//! are invisible to other programs, and no tool shows the order of all rules.
//!
//! The selection follows that of the Kubernetes iptables wrapper. Read-only.

use std::cmp::Ordering;
use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;
use portolan_plan::Family;
use portolan_reconcile::rules::CHAIN_PREFIX;

use super::tool;
use crate::kernel::KernelError;

/// The chains that the kubelet creates in the variant that it uses.
const HINTS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// Number of attempts to read a variant. A tool may fail while another program changes the tables.
const ATTEMPTS: usize = 3;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// The configured variant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum IptablesChoice {
    /// The one in use on the node.
    #[default]
    Auto,
    /// Rules in nf_tables.
    Nft,
    /// Rules in the kernel's older tables.
    Legacy,
}

/// A variant of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Rules in nf_tables.
    Nft,
    /// Rules in the kernel's older tables.
    Legacy,
    /// The variant of plain `iptables`, if neither variant has tools with names of their own.
    Plain,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
            Self::Plain => "the only one installed",
        })
    }
}

impl Variant {
    /// The tool that prints the loaded rules.
    pub fn save(self, family: Family) -> String {
        self.program(family, "save")
    }

    pub(super) fn restore(self, family: Family) -> String {
        self.program(family, "restore")
    }

    fn program(self, family: Family, act: &str) -> String {
        let iptables = match family {
            Family::Ipv4 => "iptables",
            Family::Ipv6 => "ip6tables",
        };
        match self {
            Self::Plain => format!("{iptables}-{act}"),
            Self::Nft => format!("{iptables}-nft-{act}"),
            Self::Legacy => format!("{iptables}-legacy-{act}"),
        }
    }

    /// Checks that its tools are installed for both families.
    pub(super) fn is_there(self) -> Result<(), KernelError> {
        for family in Family::BOTH {
            tool::run(&self.restore(family), &["--version"], None)?;
        }
        Ok(())
    }

    /// The other variant.
    pub(super) fn other(self) -> Option<Self> {
        match self {
            Self::Nft => Some(Self::Legacy),
            Self::Legacy => Some(Self::Nft),
            Self::Plain => None,
        }
    }
}

/// The selected variant, and the reason.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) variant: Variant,
    pub(super) reason: &'static str,
    /// The other variant, if it contains chains of the agent, which have to be removed.
    pub(super) left: Option<Variant>,
}

/// Selects the variant to use.
///
/// # Errors
/// If a tool is not installed (with its package), or the tables of neither variant can be read.
pub(super) fn find(choice: IptablesChoice) -> Result<Found, KernelError> {
    let there = |variant: Variant| variant.is_there().is_ok();
    let (variant, reason) = match choice {
        IptablesChoice::Nft => (Variant::Nft, "it is configured"),
        IptablesChoice::Legacy => (Variant::Legacy, "it is configured"),
        IptablesChoice::Auto => match (there(Variant::Nft), there(Variant::Legacy)) {
            (true, true) => choose(
                VariantSummary::of(Variant::Nft),
                VariantSummary::of(Variant::Legacy),
                default(),
            )?,
            (true, false) => (Variant::Nft, "the other one is not installed"),
            (false, true) => (Variant::Legacy, "the other one is not installed"),
            (false, false) => (Variant::Plain, "no variant has tools with its name"),
        },
    };
    variant.is_there()?;
    let holds_ours = |other: &Variant| {
        there(*other) && VariantSummary::of(*other).is_ok_and(|seen| seen.own > 0)
    };
    let left = variant.other().filter(holds_ours);
    Ok(Found {
        variant,
        reason,
        left,
    })
}

/// Summary of the rules in a variant, for both families.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct VariantSummary {
    /// Number of the agent's chains.
    own: usize,
    /// Number of the kubelet's hint chains.
    hints: usize,
    /// Number of all rules.
    rules: usize,
    /// Number of families that could not be read.
    unread: usize,
}

impl VariantSummary {
    /// # Errors
    /// That of the tool, if no family can be read.
    fn of(variant: Variant) -> Result<Self, KernelError> {
        Self::read(|family| {
            // Without a table name, which would make the legacy variant load and create that table.
            let output = patiently(|| tool::run(&variant.save(family), &[], None))?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }

    fn read(
        mut saved: impl FnMut(Family) -> Result<String, KernelError>,
    ) -> Result<Self, KernelError> {
        let mut seen = Self::default();
        let mut last = None;
        for family in Family::BOTH {
            match saved(family) {
                Ok(text) => seen.add(&text),
                Err(error) => {
                    seen.unread += 1;
                    last = Some(error);
                }
            }
        }
        match last {
            Some(error) if seen.unread == Family::BOTH.len() => Err(error),
            _ => Ok(seen),
        }
    }

    fn add(&mut self, saved: &str) {
        let mut table = "";
        for line in saved.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            } else if let Some(chain) = line.strip_prefix(':') {
                let name = chain.split_whitespace().next().unwrap_or_default();
                self.own += usize::from(name.starts_with(CHAIN_PREFIX));
                self.hints += usize::from(table == "mangle" && HINTS.contains(&name));
            } else if line.starts_with('-') {
                self.rules += 1;
            }
        }
    }
}

/// Retries after a failure.
fn patiently<T>(mut read: impl FnMut() -> Result<T, KernelError>) -> Result<T, KernelError> {
    for _ in 1..ATTEMPTS {
        if let Ok(done) = read() {
            return Ok(done);
        }
        sleep(PAUSE);
    }
    read()
}

/// Selects a variant. One that cannot be read at all is never selected, and the default is not used if more of the
/// other variant can be read: its rules may be the ones in use.
fn choose(
    nft: Result<VariantSummary, KernelError>,
    legacy: Result<VariantSummary, KernelError>,
    default: Variant,
) -> Result<(Variant, &'static str), KernelError> {
    let (nft, legacy) = match (nft, legacy) {
        (Ok(nft), Ok(legacy)) => (nft, legacy),
        (Err(_), Ok(_)) => return Ok((Variant::Legacy, "the tables of nft cannot be read")),
        (Ok(_), Err(_)) => return Ok((Variant::Nft, "the tables of legacy cannot be read")),
        (Err(error), Err(_)) => return Err(error),
    };
    let answers = [
        (nft.own.cmp(&legacy.own), "it has the agent's chains"),
        (nft.hints.cmp(&legacy.hints), "the kubelet uses it"),
        (
            nft.rules.cmp(&legacy.rules),
            "it has more of the node's rules",
        ),
        (
            legacy.unread.cmp(&nft.unread),
            "a family of the other variant cannot be read",
        ),
    ];
    for (nft_against_legacy, reason) in answers {
        match nft_against_legacy {
            Ordering::Greater => return Ok((Variant::Nft, reason)),
            Ordering::Less => return Ok((Variant::Legacy, reason)),
            Ordering::Equal => {}
        }
    }
    Ok((default, "it is the system's default"))
}

/// The variant of plain `iptables`; without it, nft.
fn default() -> Variant {
    let plain = Variant::Plain.restore(Family::Ipv4);
    let version = tool::run(&plain, &["--version"], None);
    let legacy =
        version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("(legacy)"));
    if legacy {
        Variant::Legacy
    } else {
        Variant::Nft
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(saved: &str) -> VariantSummary {
        let mut seen = VariantSummary::default();
        seen.add(saved);
        seen
    }

    fn of_two(
        nft: VariantSummary,
        legacy: VariantSummary,
        default: Variant,
    ) -> (Variant, &'static str) {
        choose(Ok(nft), Ok(legacy), default).unwrap()
    }

    fn refused() -> KernelError {
        KernelError::new("run a tool", "it gave up")
    }

    #[test]
    fn a_failed_read_is_retried() {
        for (failures, calls, works) in [(0, 1, true), (1, 2, true), (2, 3, true), (3, 3, false)] {
            let mut called = 0;
            let read = patiently(|| {
                called += 1;
                if called > failures {
                    Ok(())
                } else {
                    Err(refused())
                }
            });
            assert_eq!((read.is_ok(), called), (works, calls));
        }
    }

    #[test]
    fn an_unreadable_variant_is_not_empty() {
        let rule = "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n";
        let only = |readable: &[Family]| {
            VariantSummary::read(|family| {
                let found = readable.contains(&family);
                found.then(|| rule.to_owned()).ok_or_else(refused)
            })
        };
        let both = only(&Family::BOTH).unwrap();
        let half = only(&[Family::Ipv6]).unwrap();
        assert_eq!((both.rules, both.unread), (2, 0));
        assert_eq!((half.rules, half.unread), (1, 1));
        assert!(only(&[]).is_err());
    }

    /// S-170.
    #[test]
    fn a_variant_that_cannot_be_read_is_not_chosen() {
        let empty = VariantSummary::default();
        let half = VariantSummary { unread: 1, ..empty };
        for default in [Variant::Nft, Variant::Legacy] {
            let chosen = choose(Err(refused()), Ok(empty), default).unwrap();
            assert_eq!(
                chosen,
                (Variant::Legacy, "the tables of nft cannot be read")
            );
            let chosen = choose(Ok(empty), Err(refused()), default).unwrap();
            assert_eq!(
                chosen,
                (Variant::Nft, "the tables of legacy cannot be read")
            );
            assert!(choose(Err(refused()), Err(refused()), default).is_err());
            assert_eq!(of_two(half, empty, default).0, Variant::Legacy);
            assert_eq!(of_two(empty, half, default).0, Variant::Nft);
            assert_eq!(of_two(half, half, default).0, default);
        }
    }

    /// S-170.
    #[test]
    fn own_chains_count_before_hints_and_hints_before_rules() {
        let own = seen("*nat\n:PORTOLAN-OUTPUT - [0:0]\n-A PORTOLAN-OUTPUT -j ACCEPT\nCOMMIT\n");
        let hint = seen("*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n");
        let canary = seen("*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n");
        let rules = seen("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\n-A INPUT -j DROP\n");
        let nothing = seen("# nothing\n*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
        assert_eq!(nothing, VariantSummary::default());
        for (better, worse) in [
            (own, hint),
            (hint, rules),
            (canary, rules),
            (rules, nothing),
        ] {
            for default in [Variant::Nft, Variant::Legacy] {
                assert_eq!(of_two(better, worse, default).0, Variant::Nft);
                assert_eq!(of_two(worse, better, default).0, Variant::Legacy);
            }
        }
        let reason = "it is the system's default";
        for default in [Variant::Nft, Variant::Legacy] {
            assert_eq!(of_two(rules, rules, default), (default, reason));
        }
    }

    #[test]
    fn a_hint_counts_in_its_own_table_only() {
        assert_eq!(seen("*filter\n:KUBE-IPTABLES-HINT - [0:0]\n").hints, 0);
    }
}
