//! Sets, chains and rules with every expression.

use std::time::Duration;

use nft_rs::{
    Bytes, Chain, ChainKind, Comparison, ConntrackKey, Expression, Family, FibFlags, FibResult,
    Field, Hook, MetaKey, NatFlags, NatKind, Policy, Register, Rule, Set,
};

pub(super) const R0: Register = Register::R0;

fn address(family: Family) -> Field {
    match family {
        Family::Ipv6 => Field::Ipv6Address,
        _ => Field::Ipv4Address,
    }
}

/// How many registers an address takes.
fn words(family: Family) -> u32 {
    address(family).length() / 4
}

/// Sets and maps of all forms.
pub(super) fn sets(family: Family) -> Vec<Set> {
    let frontend = || [address(family), Field::Protocol, Field::Port];
    let backend = || [address(family), Field::Port];
    let mut endpoint: Vec<Field> = frontend().to_vec();
    endpoint.push(Field::Mark);
    let mut client: Vec<Field> = frontend().to_vec();
    client.push(address(family));
    vec![
        Set::map("endpoint", endpoint, backend()),
        Set::map("affinity", client.clone(), backend()).dynamic(65_536),
        Set::new("frontend", frontend()),
        Set::new("allow", client).with_intervals(),
        Set::new("pods", [address(family)]).with_intervals(),
        Set::new("marks", [Field::Mark]).with_size(10),
        Set::new("names", [Field::InterfaceName]),
        Set::map("ports", [Field::Port], [Field::Mark]),
    ]
}

pub(super) fn chains() -> Vec<Chain> {
    let mut dropping = Chain::base("input", ChainKind::Filter, Hook::Input, -10);
    if let Some(base) = &mut dropping.base {
        base.policy = Some(Policy::Drop);
    }
    vec![
        Chain::new("pick"),
        Chain::new("never"),
        Chain::base("nat-pre", ChainKind::Nat, Hook::Prerouting, -105),
        Chain::base("nat-out", ChainKind::Nat, Hook::Output, -105),
        Chain::base("learn", ChainKind::Filter, Hook::Prerouting, -95),
        Chain::base("nat-post", ChainKind::Nat, Hook::Postrouting, 95),
        dropping,
        Chain::base("route", ChainKind::Route, Hook::Output, -150),
    ]
}

/// Loads the key of a frontend into the first registers, and returns the register after it.
pub(super) fn load_frontend(family: Family) -> (Vec<Expression>, Register) {
    let words = words(family);
    let expressions = vec![
        Expression::destination_address(family, R0),
        Expression::protocol(R0.after(words)),
        Expression::destination_port(R0.after(words + 1)),
    ];
    (expressions, R0.after(words + 2))
}

/// Destination translation by a map, by chance and by hash.
fn picking(family: Family) -> Vec<Rule> {
    let dnat = |index: Expression, before: Option<Expression>| {
        let (mut expressions, _) = load_frontend(family);
        expressions.extend(before);
        expressions.extend([
            index,
            Expression::lookup_map("endpoint", R0, R0),
            Expression::dnat(family, R0, Some(R0.after(words(family)))),
        ]);
        Rule::new("pick", expressions)
    };
    let slot = R0.after(words(family) + 2);
    let client = R0.after(words(family) + 4);
    let length = address(family).length();
    let (mut affinity, after) = load_frontend(family);
    affinity.extend([
        Expression::source_address(family, after),
        Expression::lookup_map("affinity", R0, R0),
        Expression::dnat(family, R0, Some(R0.after(words(family)))),
    ]);
    let (mut known, _) = load_frontend(family);
    known.extend([Expression::lookup("frontend", R0), Expression::goto("pick")]);
    vec![
        Rule::new("nat-pre", known),
        Rule::new("pick", affinity).with_comment("affinity"),
        dnat(Expression::random(8, slot), None).with_comment("by chance"),
        dnat(
            Expression::jhash(client, length, 8, 0x1234, slot),
            Some(Expression::source_address(family, client)),
        ),
        Rule::new(
            "pick",
            [Expression::Numgen {
                random: false,
                modulus: 4,
                offset: 0,
                destination: R0,
            }]
            .into_iter()
            .chain([
                Expression::equal(R0, Bytes::host_u32(3)),
                Expression::leave(),
            ]),
        ),
    ]
}

/// Learning from connections.
fn learning(family: Family) -> Vec<Rule> {
    let words = words(family);
    let client = R0.after(words + 2);
    let data = client.after(words);
    let mut expressions = vec![Expression::conntrack(ConntrackKey::State, R0)];
    expressions.extend(Expression::any_bit(R0, ConntrackKey::NEW));
    expressions.push(Expression::conntrack(ConntrackKey::Status, R0));
    expressions.extend(Expression::any_bit(R0, ConntrackKey::DNAT));
    expressions.extend([
        Expression::original_address(family, NatKind::Destination, R0),
        Expression::conntrack(ConntrackKey::Protocol, R0.after(words)),
        Expression::conntrack_original(ConntrackKey::DestinationPort, R0.after(words + 1)),
        Expression::original_address(family, NatKind::Source, client),
        Expression::destination_address(family, data),
        Expression::destination_port(data.after(words)),
        Expression::update_map("affinity", R0, data, Duration::from_secs(10_800)),
    ]);
    vec![Rule::new("learn", expressions)]
}

/// Masquerading in all forms.
pub(super) fn masquerading(family: Family) -> Vec<Rule> {
    let oif = |name: &str| {
        [
            Expression::meta(MetaKey::OutputInterfaceName, R0),
            Expression::equal(R0, Bytes::interface_name(name)),
        ]
    };
    let local = [
        Expression::address_type(FibFlags::SOURCE, R0),
        Expression::equal(R0, Bytes::host_u32(FibResult::LOCAL)),
    ];
    let not_translated = [
        Expression::conntrack(ConntrackKey::Status, R0),
        Expression::mask(R0, Bytes::host_u32(ConntrackKey::DNAT)),
        Expression::equal(R0, Bytes::host_u32(0)),
    ];
    let ports = [
        Expression::protocol(R0),
        Expression::equal(R0, [6]),
        Expression::immediate(R0, Bytes::port(1024)),
        Expression::immediate(Register::R1, Bytes::port(29_999)),
        Expression::masquerade_to_ports(NatFlags::FULLY_RANDOM, R0, Register::R1),
    ];
    let from_pods = [
        Expression::source_address(family, R0),
        Expression::lookup_missing("pods", R0),
        Expression::masquerade(NatFlags::FULLY_RANDOM),
    ];
    let chain = "nat-post";
    vec![
        Rule::new(
            chain,
            not_translated.into_iter().chain([Expression::leave()]),
        ),
        Rule::new(chain, oif("lo").into_iter().chain([Expression::leave()])),
        Rule::new(
            chain,
            local
                .into_iter()
                .chain([Expression::masquerade(NatFlags::NONE)]),
        ),
        Rule::new(chain, ports),
        Rule::new(chain, from_pods),
    ]
}

/// Refusals, and what is left.
fn filtering(family: Family) -> Vec<Rule> {
    let input = |expressions: Vec<Expression>| Rule::new("input", expressions);
    vec![
        input(vec![
            Expression::meta(MetaKey::InputInterfaceName, R0),
            Expression::equal(R0, *b"cali"),
            Expression::accept(),
        ]),
        input(vec![
            Expression::protocol(R0),
            Expression::equal(R0, [6]),
            Expression::reject_tcp(),
        ]),
        input(vec![
            Expression::protocol(R0),
            Expression::equal(R0, [17]),
            Expression::destination_port(R0),
            Expression::Range {
                source: R0,
                inverted: false,
                first: Bytes::port(1000),
                last: Bytes::port(2000),
            },
            Expression::counter(),
            Expression::jump("never"),
        ]),
        input(vec![
            Expression::protocol(R0),
            Expression::equal(R0, [17]),
            Expression::destination_port(R0),
            Expression::compare(R0, Comparison::Greater, Bytes::port(30_000)),
            Expression::drop(),
        ]),
        input(vec![
            Expression::immediate(R0, Bytes::host_u32(0x4000)),
            Expression::MetaSet {
                key: MetaKey::Mark,
                source: R0,
            },
        ]),
        input(vec![Expression::reject_port(family)]),
    ]
}

pub(super) fn rules(family: Family) -> Vec<Rule> {
    let mut rules = picking(family);
    rules.extend(learning(family));
    rules.extend(masquerading(family));
    rules.extend(filtering(family));
    rules
}
