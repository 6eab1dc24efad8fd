//! Parses the output of `iptables-save`, and of `nft list ruleset`, into chains and rules of all programs.

use std::fmt;

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule<'a> {
    pub(super) table: &'a str,
    pub(super) chain: &'a str,
    /// The text after the chain.
    pub(super) text: &'a str,
}

/// The names of chains, including built-in ones.
pub(super) fn chains(saved: &str) -> impl Iterator<Item = &str> {
    let declared = saved.lines().filter_map(|line| line.strip_prefix(':'));
    declared.filter_map(|line| line.split_whitespace().next())
}

/// All rules in order.
pub(super) fn rules(saved: &str) -> impl Iterator<Item = Rule<'_>> {
    let mut table = "";
    saved.lines().filter_map(move |line| {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        }
        // With `-c` each rule begins with its counters: `[12:720] -A INPUT …`.
        let rule = match line.strip_prefix('[') {
            Some(counted) => counted.split_once("] ")?.1,
            None => line,
        };
        let (chain, text) = rule.strip_prefix("-A ")?.split_once(' ')?;
        Some(Rule { table, chain, text })
    })
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: -A {} {}", self.table, self.chain, self.text)
    }
}

/// A rule of nftables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NftRule<'a> {
    /// Family and name.
    pub(super) table: &'a str,
    pub(super) chain: &'a str,
    pub(super) text: &'a str,
}

impl fmt::Display for NftRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, chain, text } = self;
        write!(f, "nft table {table}, chain {chain}: {text}")
    }
}

/// All lines of chains in order.
pub(super) fn nft_rules(listed: &str) -> impl Iterator<Item = NftRule<'_>> {
    let (mut table, mut chain) = ("", None);
    listed.lines().filter_map(move |line| {
        let text = line.trim();
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
        } else if let Some(name) = text.strip_prefix("chain ") {
            chain = Some(name.trim_end_matches(" {"));
        } else if text == "}" {
            chain = None;
        } else if let Some(chain) = chain {
            return Some(NftRule { table, chain, text });
        }
        None
    })
}

impl NftRule<'_> {
    /// Whether it writes all bits of the packet mark, for example from the connection mark.
    pub(super) fn writes_whole_mark(&self) -> bool {
        let sets = self.text.match_indices(SET_MARK);
        sets.map(|(place, found)| (&self.text[..place], &self.text[place + found.len()..]))
            .any(|(before, value)| {
                let is_of_connection = before.ends_with("ct ");
                let keeps_bits = ["mark ", "meta mark "]
                    .iter()
                    .any(|old| value.starts_with(old))
                    || [" & ", " | ", " ^ "]
                        .iter()
                        .any(|operator| value.contains(operator));
                !is_of_connection && !keeps_bits
            })
    }
}

const SET_MARK: &str = "mark set ";

impl<'a> Rule<'a> {
    /// The target or chain of its jump or goto.
    pub(super) fn target(&self) -> Option<&'a str> {
        self.after(&["-j", "-g"])
    }

    /// The bits of the packet mark that it writes: sets, clears, inverts, or restores from the connection mark.
    pub(super) fn writes_mark(&self) -> u32 {
        match self.target() {
            Some("MARK") => self
                .after(&["--set-xmark", "--set-mark"])
                .and_then(bits)
                .map_or(0, |(value, mask)| value | mask),
            Some("CONNMARK") if self.words().any(|word| word == "--restore-mark") => self
                .after(&["--nfmask", "--mask"])
                .and_then(number)
                .unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    /// The bits of the packet mark that it matches.
    pub(super) fn reads_mark(&self) -> u32 {
        self.after(&["--mark"])
            .and_then(bits)
            .map_or(0, |(_, mask)| mask)
    }

    /// The words except those in comments, which may look like options.
    fn words(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let outside_quotes = self.text.split('"').step_by(2);
        outside_quotes.flat_map(str::split_whitespace)
    }

    /// The word after one of these.
    fn after(&self, options: &[&str]) -> Option<&'a str> {
        let mut words = self.words();
        words.find(|word| options.contains(word))?;
        words.next()
    }
}

/// `value/mask`; without a mask all bits count.
fn bits(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a node with kubelet, kube-proxy and Calico.
    const SAVED: &str = "\
# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 22 03:00:00 2026
*mangle
:PREROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:cali-PREROUTING - [0:0]
-A PREROUTING -m comment --comment \"cali:6gwbT8clXdHdC1b1\" -j cali-PREROUTING
-A cali-PREROUTING -j MARK --set-xmark 0x0/0x10000
-A cali-PREROUTING -j CONNMARK --restore-mark --nfmask 0xff00 --ctmask 0xff00
COMMIT
# Completed on Sun Nov 22 03:00:00 2026
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
[12:720] -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment \"so -j MARK --set-xmark 1/1\" -j MASQUERADE --random-fully
COMMIT
";

    #[test]
    fn chains_and_rules_of_all_tables_are_read() {
        let found: Vec<_> = chains(SAVED).collect();
        assert_eq!(found.len(), 6, "{found:?}");
        assert_eq!(found[1], "KUBE-KUBELET-CANARY");
        let found: Vec<_> = rules(SAVED).collect();
        assert_eq!(found.len(), 8, "{found:?}");
        let portals = found[3];
        assert_eq!((portals.table, portals.chain), ("nat", "PREROUTING"));
        assert_eq!(portals.target(), Some("KUBE-SERVICES"));
    }

    #[test]
    fn bits_of_the_mark_are_those_that_a_rule_may_change() {
        let written: Vec<_> = rules(SAVED).map(|rule| rule.writes_mark()).collect();
        let written_by_hand = [0, 0x1_0000, 0xff00, 0, 0x4000, 0, 0x4000, 0];
        assert_eq!(written, written_by_hand);
        let read: Vec<_> = rules(SAVED).map(|rule| rule.reads_mark()).collect();
        assert_eq!(read, [0, 0, 0, 0, 0, 0x4000, 0, 0]);
        let writes = |text: &str| {
            let line = format!("-A OUTPUT {text}");
            rules(&line).map(|rule| rule.writes_mark()).sum::<u32>()
        };
        assert_eq!(writes("-j MARK --set-xmark 0x1"), u32::MAX);
        assert_eq!(writes("-j MARK --set-xmark 7/7"), 7);
        assert_eq!(writes("-j CONNMARK --restore-mark"), u32::MAX);
        assert_eq!(writes("-j CONNMARK --save-mark"), 0, "the packet's stays");
        assert_eq!(writes("-j CONNMARK --set-xmark 0x4000/0x4000"), 0);
        assert_eq!(writes("-j MARK --set-xmark nonsense"), 0);
    }

    #[test]
    fn rules_of_nftables_that_write_all_bits_are_found() {
        let listed = "table inet tunnel {\n\tchain premangle {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n\
                      \t\tmeta l4proto udp meta mark set ct mark\n\t\tmeta mark set ct mark & 0x000000ff\n\
                      \t\tmeta mark set meta mark | 0x00000001\n\t\tmeta mark 0x0000ca6c ct mark set meta mark\n\t}\n}\n\
                      table ip6 other {\n\tset marks {\n\t\ttype mark\n\t}\n\n\tchain out {\n\t\tmeta mark set 0x00000007 accept\n\t}\n}\n";
        let whole = nft_rules(listed).filter(NftRule::writes_whole_mark);
        let whole: Vec<_> = whole.map(|rule| rule.to_string()).collect();
        assert_eq!(
            whole,
            [
                "nft table inet tunnel, chain premangle: meta l4proto udp meta mark set ct mark",
                "nft table ip6 other, chain out: meta mark set 0x00000007 accept"
            ]
        );
    }

    #[test]
    fn text_that_is_not_a_listing_yields_no_rules() {
        for text in ["", "\n\n", "iptables: not found", "-A", "[", "[0:0] -A X"] {
            assert_eq!(rules(text).count(), 0, "{text:?}");
        }
    }
}
