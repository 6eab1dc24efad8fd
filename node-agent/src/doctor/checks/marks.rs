//! Checks whether other programs write the agent's bits of the packet mark.

use portolan_reconcile::rules::CHAIN_PREFIX;

use super::some;
use crate::doctor::{Check, Facts, Finding, listing};

/// If other programs write the agent's mark bits, packets are masqueraded or captured for IPVS by mistake, or not
/// when they should be (S-172).
pub(super) fn packet_mark(facts: &Facts) -> Vec<Finding> {
    let check = Check::PacketMark;
    if facts.tables.is_err() {
        return Vec::new();
    }
    let node = facts.node_or_default();
    let (masquerade, capture) = (node.settings.masquerade.bit, node.settings.capture.bit);
    let own = [
        (masquerade, "masquerade.bit", "packets to masquerade"),
        (capture, "capture.bit", "packets to capture for IPVS"),
    ];
    let (harmless, harmful) = whole_marks(facts);
    let findings: Vec<_> = own
        .into_iter()
        .filter_map(|(number, setting, meaning)| written_bit(facts, number, setting, meaning))
        .chain((!harmful.is_empty()).then(|| whole(harmful)))
        .collect();
    if !findings.is_empty() {
        return findings;
    }
    let mut message = format!("no other program writes bits {masquerade} and {capture}");
    if !harmless.is_empty() {
        message += &format!(
            " after Portolan; these rules write the whole mark before it does: {}",
            some(harmless)
        );
    }
    vec![Finding::ok(check, message)]
}

fn written_bit(facts: &Facts, number: u8, setting: &str, meaning: &str) -> Option<Finding> {
    let settings = &facts.node_or_default().settings;
    let bit = bit(number);
    let mut writers = Vec::new();
    let mut used = settings.masquerade.mark() | settings.capture.mark();
    for (variant, family, saved) in facts.rules() {
        for rule in rules_of_others(saved) {
            let written = rule.writes_mark();
            // A rule that writes or reads all bits does not show which of them it needs.
            let part = |bits: &u32| *bits != u32::MAX;
            let touched = [written, rule.reads_mark()].into_iter().filter(part);
            used = touched.fold(used, |used, bits| used | bits);
            if part(&written) && written & bit != 0 {
                writers.push(format!("{variant} {family} {rule}"));
            }
        }
    }
    if writers.is_empty() {
        return None;
    }
    let message = format!(
        "other programs' rules write bit {number} of the packet mark, which selects {meaning}: {}",
        some(writers)
    );
    let free = (0..32).rev().find(|number| used & self::bit(*number) == 0);
    let free = free.map_or_else(String::new, |free| format!(" (no rule uses {free} here)"));
    let remedy = format!(
        "set another bit in spec.settings.{setting} of the ProxyConfig{free}; rules in KUBE- \
         chains belong to kube-proxy or an old kubelet and disappear with it"
    );
    Some(Finding::warn(Check::PacketMark, message, remedy))
}

fn rules_of_others(saved: &str) -> impl Iterator<Item = listing::Rule<'_>> {
    listing::rules(saved).filter(|rule| !rule.chain.starts_with(CHAIN_PREFIX))
}

/// The rules of other programs that write all bits (S-243): those before Portolan's, which do no harm, and the others.
fn whole_marks(facts: &Facts) -> (Vec<String>, Vec<String>) {
    let mut harmless = Vec::new();
    let mut harmful = Vec::new();
    for (variant, family, saved) in facts.rules() {
        for rule in rules_of_others(saved).filter(|rule| rule.writes_mark() == u32::MAX) {
            // Portolan's rule is the last of `mangle` PREROUTING. In OUTPUT, packets that IPVS sends on would lose the
            // mark for masquerading.
            let is_before = ["raw", "mangle"].contains(&rule.table) && rule.chain == "PREROUTING";
            let rules = if is_before {
                &mut harmless
            } else {
                &mut harmful
            };
            rules.push(format!("{variant} {family} {rule}"));
        }
    }
    let nft = facts.nft_rules.as_deref().unwrap_or_default();
    harmful.extend(listing::nft_rules(nft).filter_map(|rule| {
        let is_of_iptables = ["ip ", "ip6 "].iter().any(|family| {
            let name = rule.table.strip_prefix(family);
            name.is_some_and(|name| ["raw", "mangle", "nat", "filter", "security"].contains(&name))
        });
        (!is_of_iptables && rule.writes_whole_mark()).then(|| rule.to_string())
    }));
    (harmless, harmful)
}

fn whole(rules: Vec<String>) -> Finding {
    let message = format!(
        "other programs' rules write all bits of the packet mark, Portolan's too, so packets may miss their Service: {}",
        some(rules)
    );
    let remedy = "limit each rule to the bits of its program (`CONNMARK --restore-mark --nfmask MASK --ctmask MASK`, `MARK \
                  --set-xmark VALUE/MASK`, in nftables `meta mark set ct mark & MASK`), or to its own packets; another \
                  bit for Portolan does not help";
    Finding::warn(Check::PacketMark, message, remedy)
}

fn bit(number: u8) -> u32 {
    1u32.checked_shl(number.into()).unwrap_or_default()
}
