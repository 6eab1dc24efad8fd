//! Strategies for values of all kinds.

mod expressions;

use std::sync::Arc;
use std::time::Duration;

use nft_rs::{
    Base, Bytes, Chain, ChainKind, DefaultNla, Element, Elements, Family, Field, Generation, Hook,
    Operation, Policy, Reply, Rule, Set, SetFlags, SetPolicy, Table, TableFlags, TableId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) use expressions::expression;

fn family() -> impl Strategy<Value = Family> {
    any::<u8>().prop_map(Family::from_number)
}

fn name() -> impl Strategy<Value = Arc<str>> {
    "[A-Za-z0-9_-]{1,31}".prop_map(Arc::from)
}

fn table_id() -> impl Strategy<Value = TableId> {
    (family(), name()).prop_map(|(family, name)| TableId { family, name })
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..64).prop_map(Bytes::from)
}

/// Whole milliseconds, and not zero, which means none.
fn duration() -> impl Strategy<Value = Duration> {
    (1..=u64::MAX).prop_map(Duration::from_millis)
}

fn user_data() -> impl Strategy<Value = Vec<u8>> {
    vec((8_u8..=255, vec(any::<u8>(), 0..20)), 0..3).prop_map(|items| {
        let mut data = Vec::new();
        for (kind, value) in items {
            nft_rs::user_data::put(&mut data, kind, &value).unwrap();
        }
        data
    })
}

fn others() -> impl Strategy<Value = Vec<DefaultNla>> {
    vec((64_u16..512, vec(any::<u8>(), 0..12)), 0..3).prop_map(|items| {
        let other = |(kind, value)| DefaultNla::new(kind, value);
        items.into_iter().map(other).collect()
    })
}

fn table() -> impl Strategy<Value = Table> {
    let flags = any::<[bool; 3]>().prop_map(|[dormant, owner, persist]| TableFlags {
        dormant,
        owner,
        persist,
    });
    let numbers = (
        option::of(any::<u64>()),
        option::of(any::<u32>()),
        option::of(any::<u32>()),
    );
    (table_id(), flags, user_data(), numbers).prop_map(
        |(id, flags, user_data, (handle, uses, owner))| Table {
            flags,
            user_data,
            handle,
            uses,
            owner,
            ..Table::new(id.family, id.name)
        },
    )
}

fn chain() -> impl Strategy<Value = Chain> {
    let kind = select(vec![
        ChainKind::Filter,
        ChainKind::Nat,
        ChainKind::Route,
        ChainKind::Other("ingress".into()),
    ]);
    let hook = select(vec![
        Hook::Prerouting,
        Hook::Input,
        Hook::Forward,
        Hook::Output,
        Hook::Postrouting,
        Hook::Other(9),
    ]);
    let policy = option::of(select(vec![Policy::Accept, Policy::Drop]));
    let base = (kind, hook, any::<i32>(), policy).prop_map(|(kind, hook, priority, policy)| Base {
        kind,
        hook,
        priority,
        policy,
    });
    let numbers = (option::of(any::<u64>()), option::of(any::<u32>()));
    (name(), option::of(base), user_data(), numbers).prop_map(
        |(name, base, user_data, (handle, uses))| Chain {
            base,
            user_data,
            handle,
            uses,
            ..Chain::new(name)
        },
    )
}

fn field() -> impl Strategy<Value = Field> {
    select(vec![
        Field::Ipv4Address,
        Field::Ipv6Address,
        Field::EtherAddress,
        Field::Protocol,
        Field::Port,
        Field::Mark,
        Field::InterfaceIndex,
        Field::InterfaceName,
    ])
}

/// A type number has room for five components.
fn fields() -> impl Strategy<Value = Vec<Field>> {
    let other =
        (42_u32..64, 1_u32..64).prop_map(|(kind, length)| vec![Field::Other { kind, length }]);
    prop_oneof![4 => vec(field(), 1..=5), 1 => other]
}

fn set() -> impl Strategy<Value = Set> {
    let flags =
        any::<[bool; 5]>().prop_map(
            |[interval, timeout, dynamic, constant, anonymous]| SetFlags {
                interval,
                timeout,
                dynamic,
                constant,
                anonymous,
                other: 0,
            },
        );
    let rest = (
        option::of(any::<u32>()),
        option::of(duration()),
        option::of((1..=u32::MAX).prop_map(|ms| Duration::from_millis(ms.into()))),
        select(vec![SetPolicy::Performance, SetPolicy::Memory]),
        user_data(),
        option::of(any::<u64>()),
    );
    (name(), fields(), option::of(fields()), flags, rest).prop_map(
        |(name, key, data, flags, (size, timeout, gc_interval, policy, user_data, handle))| Set {
            name,
            key,
            data,
            flags,
            size,
            timeout,
            gc_interval,
            policy,
            user_data,
            handle,
        },
    )
}

fn element() -> impl Strategy<Value = Element> {
    let times = (option::of(duration()), option::of(duration()));
    (
        bytes(),
        option::of(bytes()),
        any::<[bool; 2]>(),
        option::of(bytes()),
        times,
        others(),
    )
        .prop_map(
            |(key, key_end, [interval_end, catch_all], data, times, other)| Element {
                key: if catch_all { Bytes::new() } else { key },
                key_end,
                interval_end,
                catch_all,
                data,
                timeout: times.0,
                expiration: times.1,
                other,
            },
        )
}

fn elements() -> impl Strategy<Value = Elements> {
    (table_id(), name(), vec(element(), 0..20)).prop_map(|(table, set, elements)| Elements {
        table,
        set,
        elements,
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    (
        name(),
        vec(expression(), 0..8),
        option::of("[ -~]{0,120}".prop_map(Arc::from)),
        user_data(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    )
        .prop_map(
            |(chain, expressions, comment, user_data, handle, position)| Rule {
                chain,
                expressions,
                comment,
                user_data,
                handle,
                position,
            },
        )
}

/// A change of any kind.
pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let named = || (table_id(), name());
    prop_oneof![
        table().prop_map(Operation::AddTable),
        table_id().prop_map(Operation::DeleteTable),
        (table_id(), chain()).prop_map(|(table, chain)| Operation::AddChain(table, chain)),
        named().prop_map(|(table, name)| Operation::DeleteChain(table, name)),
        (table_id(), set()).prop_map(|(table, set)| Operation::AddSet(table, set)),
        named().prop_map(|(table, name)| Operation::DeleteSet(table, name)),
        named().prop_map(|(table, name)| Operation::FlushSet(table, name)),
        (table_id(), rule()).prop_map(|(table, rule)| Operation::AddRule(table, rule)),
        (table_id(), option::of(name()), option::of(any::<u64>())).prop_map(
            |(table, chain, handle)| Operation::DeleteRules {
                table,
                chain,
                handle
            }
        ),
        elements().prop_map(Operation::AddElements),
        elements().prop_map(Operation::DeleteElements),
    ]
}

/// An answer of any kind.
pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    let generation = (any::<u32>(), option::of(any::<u32>()), option::of(name())).prop_map(
        |(id, process, process_name)| Generation {
            id,
            process,
            process_name,
        },
    );
    prop_oneof![
        table().prop_map(Reply::Table),
        (table_id(), chain()).prop_map(|(table, chain)| Reply::Chain(table, chain)),
        (table_id(), set()).prop_map(|(table, set)| Reply::Set(table, set)),
        (table_id(), rule()).prop_map(|(table, rule)| Reply::Rule(table, rule)),
        elements().prop_map(Reply::Elements),
        generation.prop_map(Reply::Generation),
        (18_u8..30).prop_map(Reply::Other),
    ]
}
