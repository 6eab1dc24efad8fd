//! Load balancing: a rule draws a slot of the frontend's size class, and translates to the backend in that slot. An
//! empty slot ends the rule, and the next rule draws again.
//!
//! A transaction can take effect between two look-ups of a packet, which then finds no class, or only empty slots of a
//! larger class. Without a translation, all packets of its connection would stay without one. So the last rule of each
//! chain takes the first slot, which every served frontend has before and after the transaction.

use std::time::Duration;

use nft_rs::{Expression, Register, Rule};

use super::load::{Loader, rule, step};
use crate::nftables::set::SetName;
use crate::nftables::slots::SizeClass;

/// How often a rule draws from the whole class. More than half of its slots are in use, so all draws miss with a
/// probability below 1/256.
const TRIES: u32 = 8;

/// A frontend without a new connection during this time is forgotten, and counts from zero again. This is no usual period
/// of jobs: if a job connected just after it, its counts before and after would look like one.
const COUNTED: Duration = Duration::from_secs(17 * 12 * 3600);

/// The chains to which rules lead.
pub(super) fn chains() -> impl Iterator<Item = String> {
    let random = SizeClass::all().map(random_chain);
    let hash = SizeClass::all().skip(1).map(hash_chain);
    let entry = ["pick-hash", "pick"].map(String::from);
    random.chain(hash).chain(entry)
}

fn random_chain(class: SizeClass) -> String {
    format!("n{class}")
}

fn hash_chain(class: SizeClass) -> String {
    format!("h{class}")
}

pub(super) fn rules(loader: &Loader) -> Vec<Rule> {
    let mut rules = Vec::new();
    for chain in ["nat-pre", "nat-out"] {
        rules.push(enter(loader, chain, SetName::Frontend, "pick", "Services"));
    }
    rules.push(count(loader));
    rules.push(affinity(loader));
    let hash = "by the address of the client";
    rules.push(enter(
        loader,
        "pick",
        SetName::SourceHash,
        "pick-hash",
        hash,
    ));
    for class in SizeClass::all() {
        let (set, comment) = (SetName::Class(class), "size class");
        rules.push(enter(loader, "pick", set, &random_chain(class), comment));
        // The only slot needs no hash.
        let hashed = match class.size() {
            1 => random_chain(class),
            _ => hash_chain(class),
        };
        rules.push(enter(loader, "pick-hash", set, &hashed, comment));
    }
    rules.extend(["pick", "pick-hash"].map(|chain| first(loader, chain)));
    for class in SizeClass::all() {
        rules.extend(random(loader, class));
    }
    for class in SizeClass::all().skip(1) {
        rules.extend(hashed(loader, class));
    }
    rules
}

/// Counts new connections. If the set is full, only this rule ends.
fn count(loader: &Loader) -> Rule {
    let count = Expression::count_in(SetName::Counted.to_string(), Register::R0, COUNTED);
    rule(
        "pick",
        "count connections",
        [loader.destination(), step(count)],
    )
}

/// Packets to the frontends of a set enter another chain.
fn enter(loader: &Loader, chain: &str, set: SetName, to: &str, comment: &str) -> Rule {
    rule(chain, comment, [loader.to(set), step(Expression::goto(to))])
}

/// A known client goes to its backend.
fn affinity(loader: &Loader) -> Rule {
    let client = Expression::source_address(loader.family, loader.register(1, 2));
    let translate = translate(loader, SetName::Affinity);
    rule(
        "pick",
        "clients that stay with their backend",
        [loader.to(SetName::Sticky), step(client), translate],
    )
}

/// Translates to the backend that a map has for the loaded key.
fn translate(loader: &Loader, map: SetName) -> Vec<Expression> {
    let port = loader.register(1, 0);
    vec![
        Expression::lookup_map(map.to_string(), Register::R0, Register::R0),
        Expression::dnat(loader.family, Register::R0, Some(port)),
    ]
}

fn draw(loader: &Loader, chain: &str, comment: &str, slot: Vec<Expression>) -> Rule {
    let translate = translate(loader, SetName::Endpoint);
    rule(chain, comment, [loader.destination(), slot, translate])
}

/// Translates to the backend in the first slot.
fn first(loader: &Loader, chain: &str) -> Rule {
    let slot = step(Expression::random(1, loader.register(1, 2)));
    draw(loader, chain, "the first slot", slot)
}

/// The lower half of a class, all of whose slots are in use.
fn lower_half(class: SizeClass) -> u32 {
    (class.size() / 2).max(1)
}

fn random(loader: &Loader, class: SizeClass) -> Vec<Rule> {
    let chain = random_chain(class);
    let slot = loader.register(1, 2);
    let draw = |modulus, comment| {
        let number = step(Expression::random(modulus, slot));
        draw(loader, &chain, comment, number)
    };
    let tries = if class.size() == 1 { 0 } else { TRIES };
    let mut rules: Vec<_> = (0..tries)
        .map(|_| draw(class.size(), "a random slot"))
        .collect();
    if lower_half(class) > 1 {
        rules.push(draw(lower_half(class), "a slot in use"));
    }
    rules.push(first(loader, &chain));
    rules
}

/// Each try has another seed, so that the tries of a client differ.
fn hashed(loader: &Loader, class: SizeClass) -> Vec<Rule> {
    let chain = hash_chain(class);
    let slot = loader.register(1, 2);
    let client = Register::R8;
    let draw = |modulus, seed, comment| {
        let bytes = loader.address_bytes();
        let number = vec![
            Expression::source_address(loader.family, client),
            Expression::jhash(client, bytes, modulus, seed, slot),
        ];
        draw(loader, &chain, comment, number)
    };
    let mut rules: Vec<_> = (1..=TRIES)
        .map(|seed| draw(class.size(), seed, "a slot by the client"))
        .collect();
    let half = lower_half(class);
    // Kernels before 4.17 refuse a hash below 1.
    if half > 1 {
        rules.push(draw(half, TRIES.saturating_add(1), "a slot in use"));
    }
    rules.push(first(loader, &chain));
    rules
}
