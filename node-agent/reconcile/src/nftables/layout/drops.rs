//! Clients that are kept out: their packets are dropped before anything can answer (S-22, S-86, S-93).

use nft_rs::{Expression, Rule};

use super::LayoutOptions;
use super::load::{Loader, is_not_in, new, rule, step};
use crate::nftables::set::SetName;

/// Only new connections are dropped; existing ones end by themselves.
pub(super) fn rules(loader: &Loader, options: &LayoutOptions) -> Vec<Rule> {
    let mut rules = Vec::new();
    if options.recognises_pods {
        rules.push(rule(
            "drops-pre",
            "policy Local: other nodes serve external clients",
            [
                new(),
                loader.to(SetName::NoLocal),
                loader.not_from_pods(&options.detection),
                step(Expression::drop()),
            ],
        ));
    }
    // The node's own packets pass the hook output only (S-91).
    rules.extend(["drops-pre", "drops-out"].map(|chain| guard(loader, chain)));
    rules
}

fn guard(loader: &Loader, chain: &str) -> Rule {
    // The source extends the key of the frontend in the registers before it.
    let source = Expression::source_address(loader.family, loader.register(1, 2));
    rule(
        chain,
        "loadBalancerSourceRanges",
        [
            new(),
            loader.to(SetName::Guarded),
            step(source),
            is_not_in(SetName::Allow),
            step(Expression::drop()),
        ],
    )
}
