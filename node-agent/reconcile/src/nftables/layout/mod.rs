//! The constant part of a table: chains, rules and the definitions of sets. It depends on settings, and on the number of
//! elements in large steps.
//!
//! A frontend is the key `address . protocol . port`. In `nat-pre` and `nat-out`, the first packet of a connection to a
//! frontend is sent to a random backend (`balance`). `learn` remembers the backend of a client. `nat-post` decides who
//! is masqueraded (`masquerade`). Clients are kept out before (`drops`), and refused after that (`reject`). `marks` takes
//! connections over from IPVS.

mod balance;
mod drops;
mod learn;
mod load;
mod marks;
mod masquerade;
mod reject;

use std::collections::BTreeSet;

use nft_rs::{Base, Chain, ChainKind, Hook, Policy, Rule, Set};
use portolan_plan::{Family, LocalDetection, Settings};

use self::load::Loader;
use super::set::SetName;
use super::sizes::Sizes;

pub(super) use learn::CHAINS as LEARN_CHAINS;

/// What the constant part of a table depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutOptions {
    /// How pods are recognised.
    pub detection: LocalDetection,
    /// Whether pods can be recognised; without, no client is kept out as an external one.
    pub recognises_pods: bool,
    /// Whether all clients of cluster IPs are masqueraded.
    pub masquerade_all: bool,
    /// Whether invalid packets of backends are dropped (S-173).
    pub drop_invalid: bool,
    /// Whether connections are refused before routing.
    pub refuses_early: bool,
    /// The bits of packet marks that lead to IPVS.
    pub ipvs_marks: u32,
}

/// The first kernel that can refuse packets before routing.
const REFUSES_EARLY: (u32, u32) = (5, 9);

impl LayoutOptions {
    /// The options under these settings, on a kernel with this major and minor version.
    pub fn new(settings: &Settings, recognises_pods: bool, kernel: (u32, u32)) -> Self {
        Self {
            detection: settings.local_detection.clone(),
            recognises_pods,
            masquerade_all: settings.masquerade.all,
            // Liberal tracking classifies no segment as invalid because of its window.
            drop_invalid: settings.drop_invalid && !settings.conntrack.tcp_be_liberal,
            refuses_early: kernel >= REFUSES_EARLY,
            ipvs_marks: settings.ipvs_marks(),
        }
    }
}

/// The chains, sets and rules of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The family of the table.
    pub family: Family,
    /// The chains, to be added before the rules that lead to them.
    pub chains: Vec<Chain>,
    /// The definitions of sets and maps.
    pub sets: Vec<Set>,
    /// The rules of each chain, in order.
    pub rules: Vec<Rule>,
}

impl Layout {
    /// The constant part of a table, for Services with these affinity timeouts in seconds.
    pub fn new(
        family: Family,
        options: &LayoutOptions,
        affinity: &BTreeSet<u32>,
        sizes: &Sizes,
    ) -> Self {
        let loader = Loader::new(family);
        let mut rules = marks::rules(&loader, options);
        rules.extend(drops::rules(&loader, options));
        rules.extend(balance::rules(&loader));
        rules.extend(learn::rules(family, affinity));
        rules.extend(masquerade::rules(&loader, options));
        rules.extend(reject::rules(&loader, options));
        let names = SetName::constant().chain(affinity.iter().copied().map(SetName::StickyFor));
        Self {
            family,
            chains: chains(options),
            sets: names.map(|set| set.definition(family, sizes)).collect(),
            rules,
        }
    }

    /// The constant part of a table that only keeps existing connections, while IPVS serves new ones. Connection
    /// tracking translates their packets; the rules only prevent that they are routed to IPVS.
    pub fn keeping_connections(family: Family, ipvs_marks: u32) -> Self {
        Self {
            family,
            chains: marks::chains().into(),
            sets: Vec::new(),
            rules: marks::keeping(ipvs_marks),
        }
    }
}

/// Priorities are just before those of other programs: `dstnat` is -100 and `srcnat` 100. Published ports of
/// containers are translated there, and may match the address of a frontend (S-212).
fn chains(options: &LayoutOptions) -> Vec<Chain> {
    let base = |name: &str, kind, hook, priority| Chain {
        base: Some(Base {
            kind,
            hook,
            priority,
            policy: Some(Policy::Accept),
        }),
        ..Chain::new(name)
    };
    let (filter, nat) = (|| ChainKind::Filter, || ChainKind::Nat);
    let mut chains: Vec<_> = balance::chains().map(Chain::new).collect();
    chains.extend(reject::CHAINS.map(Chain::new));
    chains.extend(marks::chains());
    chains.extend([
        base("drops-pre", filter(), Hook::Prerouting, -110),
        base("drops-out", filter(), Hook::Output, -110),
        base("nat-pre", nat(), Hook::Prerouting, -105),
        base("nat-out", nat(), Hook::Output, -105),
        base("learn-pre", filter(), Hook::Prerouting, -95),
        base("learn-out", filter(), Hook::Output, -95),
        base("nat-post", nat(), Hook::Postrouting, 95),
        base("reject-in", filter(), Hook::Input, -10),
        base("reject-fwd", filter(), Hook::Forward, -10),
        base("reject-out", filter(), Hook::Output, -10),
    ]);
    if options.refuses_early {
        chains.push(base("reject-pre", filter(), Hook::Prerouting, -90));
    }
    chains
}
