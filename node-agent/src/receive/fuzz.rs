//! Property tests: with any input from a controller, an agent does not panic, keeps its plan until a complete batch
//! has the right hash, and does not stage more than was sent.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use portolan_plan::{BackendList, Entry, EntryHash, EntryKey, NodePlan, strategies};
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{CHUNK_BYTES, encode_entry, item, wire};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use super::session::{Commit, MAX_UNDECODABLE, Session, Step};
use crate::plan_watch::PlanWatch;

/// The number of generated streams; `PORTOLAN_FUZZ_CASES` overrides it.
fn cases() -> u32 {
    let named = std::env::var("PORTOLAN_FUZZ_CASES").ok();
    named.and_then(|cases| cases.parse().ok()).unwrap_or(20_000)
}

/// Valid items, some with the same keys. Generated once, because this takes longer than the rest of the test.
static ITEMS: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let mut runner = TestRunner::deterministic();
    let mut items = Vec::new();
    let mut lists: Vec<(EntryKey, Arc<BackendList>)> = Vec::new();
    for _ in 0..48 {
        let (key, entry) = strategies::entry().new_tree(&mut runner).unwrap().current();
        items.push(item::upsert(&key, encode_entry(&entry)));
        items.push(item::remove(&key));
        items.extend(item::upserts(&key, vec![0; 2 * CHUNK_BYTES].into()));
        if let Entry::List(list) = entry {
            for (_, other) in &lists {
                let base = EntryHash::of(&key, &encode_entry(&Entry::List(list.clone())));
                items.push(item::patch(&key, base, &list, other));
            }
            lists.push((key, list));
        }
    }
    items
});

fn some_item() -> impl Strategy<Value = Bytes> {
    let right = || any::<prop::sample::Index>().prop_map(|at| at.get(&ITEMS).clone());
    let damaged =
        (right(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(item, at, by)| {
            let mut bytes = item.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            Bytes::from(bytes)
        });
    prop_oneof![
        12 => right(),
        2 => damaged,
        1 => vec(any::<u8>(), 0..24).prop_map(Bytes::from),
    ]
}

fn begin() -> impl Strategy<Value = wire::Begin> {
    let buckets = prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<u8>(), 0..5)];
    let trace = prop_oneof![vec(any::<u8>(), 24), vec(any::<u8>(), 0..30)];
    let triggered = vec(any::<u64>(), 0..20);
    (0..3_u64, any::<bool>(), buckets, trace, triggered).prop_map(
        |(batch, snapshot, buckets, trace, triggered_microseconds)| wire::Begin {
            batch,
            snapshot,
            buckets,
            trace,
            triggered_microseconds,
            ..wire::Begin::default()
        },
    )
}

fn items() -> impl Strategy<Value = wire::Items> {
    vec(some_item(), 0..6).prop_map(|items| wire::Items { items })
}

fn commit() -> impl Strategy<Value = wire::Commit> {
    let hash = prop_oneof![9 => vec(any::<u8>(), 16), 1 => vec(any::<u8>(), 0..20)];
    (0..3_u64, hash).prop_map(|(batch, plan_hash)| wire::Commit { batch, plan_hash })
}

fn message() -> impl Strategy<Value = wire::PlanMessage> {
    let whole = (
        prop::option::weighted(0.9, begin()),
        prop::option::weighted(0.9, items()),
        prop::option::weighted(0.9, commit()),
    );
    let whole = whole.prop_map(|(begin, items, commit)| wire::Batch {
        begin,
        items,
        commit,
    });
    let gone = vec(vec(any::<u8>(), 0..18), 0..3);
    let message = prop_oneof![
        4 => begin().prop_map(Message::Begin),
        6 => items().prop_map(Message::Items),
        4 => commit().prop_map(Message::Commit),
        3 => whole.prop_map(Message::Batch),
        1 => gone.prop_map(|addresses| Message::Gone(wire::Gone { addresses })),
        1 => any::<u64>().prop_map(|age_milliseconds| {
            Message::Freshness(wire::Freshness { age_milliseconds })
        }),
    ];
    prop::option::weighted(0.98, message).prop_map(|message| wire::PlanMessage { message })
}

/// Follows a stream until its end; after an error it continues with a new session.
fn follow(messages: Vec<wire::PlanMessage>) {
    let plans = PlanWatch::default();
    let mut session = Session::new("node-a".into());
    let mut sent = 0;
    for message in messages {
        sent += match &message.message {
            Some(Message::Items(items)) => items.items.len(),
            Some(Message::Batch(batch)) => batch.items.as_ref().map_or(0, |all| all.items.len()),
            _ => 0,
        };
        let before = plans.peek(NodePlan::hash);
        match session.take(message, |key| plans.list(key)) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(plans.peek(NodePlan::hash), before);
                // The next stream begins with a new session.
                session = Session::new("node-a".into());
            }
            Ok(Step::More | Step::Gone(_) | Step::Age(_)) => {
                assert_eq!(plans.peek(NodePlan::hash), before);
            }
            Ok(Step::Commit(commit)) => {
                let Commit {
                    staged, expected, ..
                } = *commit;
                assert!(staged.len() <= sent, "more than was sent");
                let wrong = plans.commit(staged.clone(), expected);
                let Err(mismatch) = wrong else {
                    assert_eq!(plans.peek(NodePlan::hash), expected);
                    continue;
                };
                let now = plans.peek(NodePlan::hash);
                assert_eq!(now, before, "a wrong hash changes nothing");
                // The same batch with the right hash.
                plans.commit(staged, mismatch.found).unwrap();
                plans.peek(|plan| {
                    assert_eq!(plan.hash(), mismatch.found);
                    let sum = plan.bucket_hashes().total();
                    assert_eq!(sum, mismatch.found, "the hash is that of the entries");
                });
            }
        }
        assert!(session.undecodable() <= MAX_UNDECODABLE);
    }
}

/// I-3, over whole streams.
#[test]
fn no_controller_can_make_an_agent_panic_or_apply_a_partial_batch() {
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let tried = runner.run(&vec(message(), 1..12), |messages| {
        follow(messages);
        Ok(())
    });
    tried.unwrap();
}
