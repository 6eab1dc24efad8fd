//! Strategies for expressions of all kinds.

use nft_rs::{
    Comparison, ConntrackKey, Direction, Expression, FibFlags, FibResult, Hash, HeaderBase,
    Masquerade, MetaKey, Nat, NatFlags, NatKind, Register, Reject, SetChange, SetUpdate, Verdict,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{bytes, duration, family, name, others};

fn register() -> impl Strategy<Value = Register> {
    (0_u8..16).prop_map(|index| Register::new(index).unwrap())
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        select(vec![
            Verdict::Accept,
            Verdict::Drop,
            Verdict::Return,
            Verdict::Continue,
            Verdict::Other(0x0001_0003),
        ]),
        name().prop_map(Verdict::Jump),
        name().prop_map(Verdict::Goto),
    ]
}

/// The last register of a range differs from the first.
fn range() -> impl Strategy<Value = (Option<Register>, Option<Register>)> {
    (option::of(register()), option::of(register()))
        .prop_map(|(first, last)| (first, last.filter(|last| Some(*last) != first)))
}

fn nat_flags() -> impl Strategy<Value = NatFlags> {
    select(vec![
        NatFlags::NONE,
        NatFlags::RANDOM,
        NatFlags::FULLY_RANDOM,
        NatFlags::PERSISTENT.and(NatFlags::FULLY_RANDOM),
    ])
}

fn nat() -> impl Strategy<Value = Expression> {
    let kind = select(vec![NatKind::Source, NatKind::Destination]);
    let dnat = (kind, family(), range(), range(), nat_flags()).prop_map(
        |(kind, family, addresses, ports, flags)| {
            Expression::Nat(Nat {
                kind,
                family,
                address: addresses.0,
                last_address: addresses.1,
                port: ports.0,
                last_port: ports.1,
                flags,
            })
        },
    );
    let masquerade = (range(), nat_flags()).prop_map(|((port, last_port), flags)| {
        Expression::Masquerade(Masquerade {
            flags,
            port,
            last_port,
        })
    });
    prop_oneof![dnat, masquerade]
}

fn loading() -> impl Strategy<Value = Expression> {
    let number = || any::<u32>();
    let direction = option::of(select(vec![Direction::Original, Direction::Reply]));
    prop_oneof![
        (number(), number(), number(), register()).prop_map(|(base, offset, length, to)| {
            Expression::payload(HeaderBase::from_number(base % 6), offset, length, to)
        }),
        (0_u32..40, register())
            .prop_map(|(key, to)| Expression::meta(MetaKey::from_number(key), to)),
        (0_u32..40, register()).prop_map(|(key, source)| Expression::MetaSet {
            key: MetaKey::from_number(key),
            source
        }),
        (0_u32..30, direction, register()).prop_map(|(key, direction, destination)| {
            Expression::Conntrack {
                key: ConntrackKey::from_number(key),
                direction,
                destination,
            }
        }),
        (register(), bytes()).prop_map(|(to, value)| Expression::immediate(to, value)),
        (any::<bool>(), number(), number(), register()).prop_map(
            |(random, modulus, offset, destination)| Expression::Numgen {
                random,
                modulus,
                offset,
                destination
            }
        ),
        (
            any::<[u32; 3]>(),
            option::of(number()),
            register(),
            register()
        )
            .prop_map(|([length, modulus, offset], seed, source, destination)| {
                Expression::Jhash(Hash {
                    source,
                    length,
                    modulus,
                    seed,
                    offset,
                    destination,
                })
            }),
        (1_u32..5, number(), register()).prop_map(|(result, flags, destination)| {
            Expression::Fib {
                result: FibResult::from_number(result),
                flags: FibFlags(flags),
                destination,
            }
        }),
    ]
}

/// A change of a set.
fn update() -> impl Strategy<Value = Expression> {
    let change = select(vec![SetChange::Add, SetChange::Update, SetChange::Delete]);
    let update = (
        name(),
        change,
        register(),
        option::of(register()),
        option::of(duration()),
        any::<(bool, bool)>(),
    );
    update.prop_map(|(set, change, key, data, timeout, (inverted, counts))| {
        Expression::SetUpdate(SetUpdate {
            set,
            change,
            key,
            data,
            timeout,
            inverted,
            counts,
        })
    })
}

fn deciding() -> impl Strategy<Value = Expression> {
    let reject = prop_oneof![
        Just(Reject::TcpReset),
        any::<u8>().prop_map(|code| Reject::IcmpUnreachable { code }),
        any::<u8>().prop_map(|code| Reject::IcmpxUnreachable { code }),
    ];
    prop_oneof![
        (register(), 0_u32..7, bytes()).prop_map(|(source, operator, value)| {
            Expression::compare(source, Comparison::from_number(operator), value)
        }),
        (register(), any::<bool>(), bytes(), bytes()).prop_map(
            |(source, inverted, first, last)| Expression::Range {
                source,
                inverted,
                first,
                last
            }
        ),
        (register(), register(), bytes(), bytes()).prop_map(|(source, destination, mask, xor)| {
            Expression::Bitwise {
                source,
                destination,
                mask,
                xor,
            }
        }),
        (name(), register(), option::of(register()), any::<bool>()).prop_map(
            |(set, source, destination, inverted)| Expression::Lookup {
                set,
                source,
                destination,
                inverted
            }
        ),
        verdict().prop_map(Expression::Verdict),
        reject.prop_map(Expression::Reject),
        update(),
        any::<[u64; 2]>().prop_map(|[packets, bytes]| Expression::Counter { packets, bytes }),
        ("[a-z]{9,12}", others()).prop_map(|(name, attributes)| Expression::Other {
            name: name.into(),
            attributes
        }),
    ]
}

/// An expression of any kind.
pub(crate) fn expression() -> impl Strategy<Value = Expression> {
    prop_oneof![loading(), deciding(), nat()]
}
