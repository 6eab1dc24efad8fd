//! Checks of the iptables tools, the two variants of iptables, and effects of other programs' rules.

use portolan_plan::Family;
use portolan_reconcile::rules::CHAIN_PREFIX;

use super::{some, unless_privileged};
use crate::doctor::{Check, Facts, Finding, listing};
use crate::kernel::linux::{Dump, Tables, Variant};

/// Rules of both variants are active at the same time, and no tool shows their order (S-170).
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
                "the agent uses {}, but {other} also has chains of the agent: {}",
                tables.used,
                some(chains(saved, &[CHAIN_PREFIX]))
            ),
            format!(
                "restart the agent, which removes them; by hand: `{save} | grep -v \
                 {CHAIN_PREFIX} | {restore}`"
            ),
        ));
    }
    findings.extend(mixed(facts, tables));
    if findings.is_empty() {
        let message = format!("the agent uses the variant {}", tables.used);
        findings.push(Finding::ok(check, message));
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
        "find the program that owns the rule with `nft list ruleset`, and let it use a table of its own"
    } else if dump.variant == Variant::Legacy {
        "`modprobe -a iptable_nat iptable_mangle iptable_filter ip6table_nat xt_set`"
    } else {
        "`modprobe -a nf_tables nft_compat xt_set`"
    };
    let remedy = unless_privileged(facts, remedy);
    let message = format!("{family} rules cannot be read: {reason}");
    Some(if dump.variant == tables.used {
        Finding::fail(check, message, remedy)
    } else {
        Finding::warn(check, message, remedy)
    })
}

/// Detects components of Kubernetes that write to different variants.
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
    let message = format!(
        "components of Kubernetes write to both variants: {here} is in {used}, {there} in {other}; both \
         are active, and no tool shows their order"
    );
    let remedy = format!(
        "find their owner with `{} | grep KUBE-`, and configure kubelet, CNI and agent for the same variant \
         (`update-alternatives --config iptables`, --iptables of the agent)",
        other.save(family)
    );
    Some(Finding::warn(Check::Iptables, message, remedy))
}

fn chains<'a>(saved: &'a str, prefixes: &[&str]) -> impl Iterator<Item = &'a str> {
    listing::chains(saved).filter(|chain| prefixes.iter().any(|prefix| chain.starts_with(prefix)))
}

/// Known nftables tables that affect packets in addition to the agent's rules: name, effect, remedy (S-212, S-213).
const TABLES: [(&str, &str, &str); 2] = [
    (
        "cni_hostport",
        "translates packets to the node's addresses even if iptables rules accepted them: a host port takes packets \
         from a node port with the same number",
        "set the backend of the CNI plugin portmap to iptables (`\"backend\": \"iptables\"` in the node's CNI \
         configuration), or use other ports",
    ),
    (
        "firewalld",
        "rejects packets that iptables rules accepted: packets to Services are lost unless a zone allows them",
        "add the interfaces of pods to the zone trusted, and open node ports in the zone of the node's network \
         (`firewall-cmd --permanent --add-port=30000-32767/tcp`)",
    ),
];

/// Detects programs with base chains of their own in nftables: an ACCEPT in iptables does not apply to those.
pub(super) fn nftables(facts: &Facts) -> Vec<Finding> {
    let check = Check::Nftables;
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
            Finding::warn(check, format!("the nftables table {name} {effect}"), remedy)
        })
        .collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            check,
            "no nftables table is known to interfere",
        )],
        false => findings,
    }
}
