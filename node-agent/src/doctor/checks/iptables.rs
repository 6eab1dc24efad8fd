//! The tools of iptables, their two variants, and what others' rules do to ours.

use portolan_plan::Family;
use portolan_reconcile::rules::CHAIN_PREFIX;

use super::{some, unless_privileged};
use crate::doctor::{Check, Facts, Finding, listing};
use crate::kernel::linux::{Dump, Tables, Variant};

/// Rules of both variants are in force side by side, and nobody sees the order (S-170).
pub(super) fn variants(facts: &Facts) -> Vec<Finding> {
    let check = Check::Iptables;
    let tables = match &facts.tables {
        Ok(tables) => tables,
        Err(reason) => {
            let install = "install the package iptables (`apt install iptables`, `dnf install \
                           iptables-nft`) where the agent runs";
            let remedy = unless_privileged(facts, install);
            return vec![Finding::fail(check, reason, remedy)];
        }
    };
    let mut findings = Vec::new();
    let unread = tables
        .dumps
        .iter()
        .filter_map(|dump| unread(facts, tables, dump));
    findings.extend(unread);
    let other = facts.rules().find(|(variant, _, saved)| {
        *variant != tables.used && chains(saved, &[CHAIN_PREFIX]).next().is_some()
    });
    if let Some((other, family, saved)) = other {
        let (save, restore) = (
            other.save(family),
            other.save(family).replace("save", "restore"),
        );
        findings.push(Finding::fail(
            check,
            format!(
                "the agent uses {}, and chains of ours are in {other}, too: {}",
                tables.used,
                some(chains(saved, &[CHAIN_PREFIX]))
            ),
            format!(
                "restart the agent, which takes them out there; by hand: `{save} | grep -v \
                 {CHAIN_PREFIX} | {restore}`"
            ),
        ));
    }
    findings.extend(mixed(facts, tables));
    if findings.is_empty() {
        let told = format!("the variant in use is {}", tables.used);
        findings.push(Finding::ok(check, told));
    }
    findings
}

fn unread(facts: &Facts, tables: &Tables, dump: &Dump) -> Option<Finding> {
    let reason = dump.text.as_ref().err()?;
    let (check, family) = (Check::Iptables, dump.family);
    let desired = facts.desired();
    let matters = |family: Family| {
        let mut rules = desired.iter().flat_map(|desired| &desired.rules);
        rules.any(|rules| rules.family == family) || desired.is_none() && family == Family::Ipv4
    };
    if !matters(family) {
        return None;
    }
    let remedy = if reason.contains("incompatible") {
        "see whose it is with `nft list ruleset`, and have its owner put it into a table of its own"
    } else if dump.variant == Variant::Legacy {
        "`modprobe -a iptable_nat iptable_mangle iptable_filter ip6table_nat xt_set`"
    } else {
        "`modprobe -a nf_tables nft_compat xt_set`"
    };
    let remedy = unless_privileged(facts, remedy);
    let told = format!("{family} rules cannot be read: {reason}");
    Some(if dump.variant == tables.used {
        Finding::fail(check, told, remedy)
    } else {
        Finding::warn(check, told, remedy)
    })
}

/// Whether parts of Kubernetes write into different variants.
fn mixed(facts: &Facts, tables: &Tables) -> Option<Finding> {
    let in_used = |variant: Variant| variant == tables.used;
    let first = |used: bool, prefixes: &[&str]| {
        let mut all = facts
            .rules()
            .filter(|(variant, ..)| in_used(*variant) == used);
        all.find_map(|(variant, family, saved)| {
            let chain = chains(saved, prefixes).next()?.to_owned();
            Some((variant, family, chain))
        })
    };
    let (used, _, here) = first(true, &["KUBE-", CHAIN_PREFIX])?;
    let (other, family, there) = first(false, &["KUBE-"])?;
    let told = format!(
        "parts of Kubernetes write into both variants: {here} is in {used}, {there} in {other}; both \
         are in force, in an order that nobody sees"
    );
    let remedy = format!(
        "see with `{} | grep KUBE-` whose they are, and give kubelet, CNI and agent one variant \
         (`update-alternatives --config iptables`, --iptables of the agent)",
        other.save(family)
    );
    Some(Finding::warn(Check::Iptables, told, remedy))
}

fn chains<'a>(saved: &'a str, prefixes: &[&str]) -> impl Iterator<Item = &'a str> {
    listing::chains(saved).filter(|chain| prefixes.iter().any(|prefix| chain.starts_with(prefix)))
}

/// A bit that others write is not ours: packets are masqueraded or led to IPVS that should not be, or the other way
/// round (S-172).
pub(super) fn mark(facts: &Facts) -> Vec<Finding> {
    let check = Check::Mark;
    if facts.tables.is_err() {
        return Vec::new();
    }
    let node = facts.node_or_default();
    let (masquerade, capture) = (node.settings.masquerade.bit, node.settings.capture.bit);
    let ours = [
        (masquerade, "masquerade.bit", "what is masqueraded"),
        (capture, "capture.bit", "what is led to IPVS"),
    ];
    let findings: Vec<_> = ours
        .into_iter()
        .filter_map(|(number, setting, meaning)| written_bit(facts, number, setting, meaning))
        .collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            check,
            format!("nobody else writes bits {masquerade} and {capture}"),
        )],
        false => findings,
    }
}

fn written_bit(facts: &Facts, number: u8, setting: &str, meaning: &str) -> Option<Finding> {
    let settings = &facts.node_or_default().settings;
    let bit = bit(number);
    let mut writers = Vec::new();
    let mut used = settings.masquerade.mark() | settings.capture.mark();
    for (variant, family, saved) in facts.rules() {
        let others = listing::rules(saved).filter(|rule| !rule.chain.starts_with(CHAIN_PREFIX));
        for rule in others {
            let written = rule.writes_mark();
            // Who writes or looks at all bits leaves none free, and says nothing of those it needs.
            let whole = |bits: &u32| *bits != u32::MAX;
            let touched = [written, rule.reads_mark()].into_iter().filter(whole);
            used = touched.fold(used, |used, bits| used | bits);
            if written & bit != 0 {
                let (table, chain, text) = (rule.table, rule.chain, rule.text);
                writers.push(format!("{variant} {family} {table}: -A {chain} {text}"));
            }
        }
    }
    if writers.is_empty() {
        return None;
    }
    let told = format!(
        "rules of others write bit {number} of the packet mark, which says {meaning}: {}",
        some(writers)
    );
    let free = (0..32).rev().find(|number| used & self::bit(*number) == 0);
    let free = free.map_or_else(String::new, |free| format!(" (no rule uses {free} here)"));
    let remedy = format!(
        "another bit in spec.settings.{setting} of the ProxyConfig{free}; rules in KUBE- \
         chains are kube-proxy's or an old kubelet's, and go with them"
    );
    Some(Finding::warn(Check::Mark, told, remedy))
}

/// Tables of nftables whose programs decide about packets beside our rules, and what to do (S-212, S-213).
const TABLES: [(&str, &str, &str); 2] = [
    (
        "cni_hostport",
        "translates what comes to the node's addresses, whatever rules of iptables accepted: host ports take packets of \
         node ports with the same number",
        "give CNI's portmap the backend iptables (`\"backend\": \"iptables\"` in the node's CNI configuration), or use \
         other ports",
    ),
    (
        "firewalld",
        "refuses what rules of iptables accepted: packets to Services that no zone lets in are lost",
        "put the interfaces of pods into the zone trusted, and open node ports in the zone of the node's network \
         (`firewall-cmd --permanent --add-port=30000-32767/tcp`)",
    ),
];

/// Programs with base chains of their own in nftables: an ACCEPT of iptables holds for its own chains alone.
pub(super) fn neighbours(facts: &Facts) -> Vec<Finding> {
    let check = Check::Neighbours;
    let Ok(listed) = &facts.nft_tables else {
        return Vec::new();
    };
    let is_there = |name: &str| {
        let mut tables = listed.lines();
        tables.any(|line| line.split_whitespace().nth(2) == Some(name))
    };
    let found = TABLES.into_iter().filter(|(name, ..)| is_there(name));
    let findings: Vec<_> = found
        .map(|(name, effect, remedy)| {
            Finding::warn(
                check,
                format!("the table {name} of nftables {effect}"),
                remedy,
            )
        })
        .collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            check,
            "no table of nftables is known to be in the way",
        )],
        false => findings,
    }
}

fn bit(number: u8) -> u32 {
    1u32.checked_shl(number.into()).unwrap_or_default()
}
