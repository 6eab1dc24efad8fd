//! Takes packets back from the IPVS dataplane while a node changes to this one. Until then, rules of iptables mark
//! packets to frontends, and policy rules route marked packets to IPVS. Connections that IPVS knows stay there. In the
//! other direction, a table with only the first of these rules keeps connections until they end.
//!
//! Each hook of a packet sees the rules at that moment. So a packet that lost its mark before a transaction is translated
//! after it, and one that kept its mark is not translated: otherwise its connection would stay with neither dataplane.

use nft_rs::{Base, Bytes, Chain, ChainKind, Expression, Hook, MetaKey, Policy, Register, Rule};

use super::LayoutOptions;
use super::load::{Loader, leave, new, rule, translated};
use crate::nftables::set::SetName;

/// After the marks of `raw` and `mangle`, and before any translation.
const PRIORITY: i32 = -115;
const CHAINS: [&str; 2] = ["marks-pre", "marks-out"];
/// The chains that translate.
const TRANSLATING: [&str; 2] = ["nat-pre", "nat-out"];

/// The first rules of their chains.
pub(super) fn rules(loader: &Loader, options: &LayoutOptions) -> Vec<Rule> {
    let of_chain = |chain: &'static str| {
        let new = rule(
            chain,
            "new connections are not for IPVS",
            [
                marked(options.ipvs_marks),
                new(),
                loader.to(SetName::Frontend),
                unmark(options.ipvs_marks),
            ],
        );
        [keep(chain, options.ipvs_marks), new]
    };
    let left = |chain| {
        let comment = "packets for IPVS are not translated";
        rule(chain, comment, [marked(options.ipvs_marks), leave()])
    };
    let of_marks = CHAINS.into_iter().flat_map(of_chain);
    of_marks.chain(TRANSLATING.map(left)).collect()
}

/// The rules that only keep existing connections.
pub(super) fn keeping(ipvs_marks: u32) -> Vec<Rule> {
    CHAINS.map(|chain| keep(chain, ipvs_marks)).to_vec()
}

fn keep(chain: &str, ipvs_marks: u32) -> Rule {
    rule(
        chain,
        "connections translated by rules are not for IPVS",
        [marked(ipvs_marks), translated(), unmark(ipvs_marks)],
    )
}

pub(super) fn chains() -> [Chain; 2] {
    let base = |name: &str, hook| Chain {
        base: Some(Base {
            kind: ChainKind::Filter,
            hook,
            priority: PRIORITY,
            policy: Some(Policy::Accept),
        }),
        ..Chain::new(name)
    };
    let [pre, out] = CHAINS;
    [base(pre, Hook::Prerouting), base(out, Hook::Output)]
}

/// Matches packets with a mark for IPVS.
fn marked(ipvs_marks: u32) -> Vec<Expression> {
    let load = vec![Expression::meta(MetaKey::Mark, Register::R0)];
    [load, Expression::any_bit(Register::R0, ipvs_marks).to_vec()].concat()
}

fn unmark(ipvs_marks: u32) -> Vec<Expression> {
    vec![
        Expression::meta(MetaKey::Mark, Register::R0),
        Expression::mask(Register::R0, Bytes::host_u32(!ipvs_marks)),
        Expression::MetaSet {
            key: MetaKey::Mark,
            source: Register::R0,
        },
    ]
}
