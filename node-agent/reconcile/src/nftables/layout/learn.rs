//! Session affinity (`sessionAffinity: ClientIP`, S-94): after the translation of a connection's first packet, a rule
//! remembers the backend of the client, and each further connection prolongs that.

use std::collections::BTreeSet;
use std::time::Duration;

use nft_rs::{Expression, Register, Rule};
use portolan_plan::Family;

use super::load::{Loader, new, rule, translated};
use crate::nftables::set::SetName;

/// The chains of these rules.
pub(in crate::nftables) const CHAINS: [&str; 2] = ["learn-pre", "learn-out"];

/// The timeout is a constant of a rule, so there is a rule and a set of frontends for each.
pub(super) fn rules(family: Family, affinity: &BTreeSet<u32>) -> Vec<Rule> {
    let loader = Loader::new(family);
    let rules = |chain| {
        let each = affinity.iter();
        each.map(|seconds| learn(&loader, chain, *seconds))
            .collect::<Vec<_>>()
    };
    CHAINS.into_iter().flat_map(rules).collect()
}

/// For IPv6, key and data take 15 of the 16 registers.
fn learn(loader: &Loader, chain: &str, seconds: u32) -> Rule {
    let (client, backend) = (loader.register(1, 2), loader.register(2, 2));
    let update = vec![
        loader.original_source(client),
        Expression::destination_address(loader.family, backend),
        Expression::destination_port(loader.register(3, 2)),
        Expression::update_map(
            SetName::Affinity.to_string(),
            Register::R0,
            backend,
            Duration::from_secs(seconds.into()),
        ),
    ];
    rule(
        chain,
        "remember the backend of the client",
        [
            new(),
            translated(),
            loader.originally_to(SetName::StickyFor(seconds)),
            update,
        ],
    )
}
