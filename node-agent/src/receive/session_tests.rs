//! Tests of sessions, message by message.

use std::net::{IpAddr, Ipv4Addr};

use portolan_plan::{
    Backend, BackendList, BucketHashes, Buckets, Change, Entry, EntryHash, ServiceId,
};
use portolan_proto::{MAX_MESSAGE_BYTES, encode_entry};
use prost::Message as _;

use super::*;

fn list(last: u8) -> Arc<BackendList> {
    let backend = |number: u8| Backend {
        address: IpAddr::from(Ipv4Addr::new(10, 244, 1, number)),
        port: 8080,
        weight: 1,
    };
    Arc::new((1..=last).map(backend).collect())
}

fn key() -> EntryKey {
    "list/shop/cart/http/IPv4/cluster".parse().unwrap()
}

fn hash(list: &Arc<BackendList>) -> EntryHash {
    EntryHash::of(&key(), &encode_entry(&Entry::List(list.clone())))
}

fn whole(begin: wire::Begin, items: Vec<Bytes>) -> wire::PlanMessage {
    let commit = wire::Commit {
        batch: begin.batch,
        plan_hash: vec![7; 16],
    };
    let batch = wire::Batch {
        begin: Some(begin),
        items: Some(wire::Items { items }),
        commit: Some(commit),
    };
    wire::PlanMessage {
        message: Some(Message::Batch(batch)),
    }
}

/// The staged changes of a batch in one message.
fn staged(begin: wire::Begin, items: Vec<Bytes>, held: Option<&HeldList>) -> StagedChanges {
    let mut session = Session::new("node-a".into());
    let step = session
        .take(whole(begin, items), |_| held.cloned())
        .unwrap();
    let Step::Commit(commit) = step else {
        panic!("{step:?} is not a complete batch");
    };
    let Commit {
        staged, expected, ..
    } = *commit;
    assert_eq!(Some(expected), PlanHash::from_bytes(&[7; 16]));
    staged
}

fn delta() -> wire::Begin {
    wire::Begin {
        batch: 1,
        ..wire::Begin::default()
    }
}

#[test]
fn a_patch_applies_only_to_the_list_that_it_is_based_on() {
    let (from, to) = (list(5), list(6));
    let items = || vec![item::patch(&key(), hash(&from), &from, &to)];
    let mut expected = StagedChanges::delta();
    expected.push(Change::Upsert {
        key: key(),
        hash: hash(&to),
        entry: Some(Entry::List(to.clone())),
    });
    let held = Some((hash(&from), from.clone()));
    assert_eq!(staged(delta(), items(), held.as_ref()), expected);
    // The hash of the plan then does not match, and the complete plan is sent.
    let other = Some((hash(&to), to.clone()));
    assert!(staged(delta(), items(), other.as_ref()).is_empty());
    assert!(staged(delta(), items(), None).is_empty());
}

#[test]
fn the_cause_of_a_batch_is_decoded_and_invalid_values_are_ignored() {
    let cause = |trace: Vec<u8>, triggered_microseconds: Vec<u64>| {
        let begin = wire::Begin {
            trace,
            triggered_microseconds,
            ..delta()
        };
        let mut session = Session::new("node-a".into());
        match session.take(whole(begin, Vec::new()), |_| None).unwrap() {
            Step::Commit(commit) => commit.cause,
            other => panic!("{other:?} is not a complete batch"),
        }
    };
    let context = TraceContext {
        trace: [7; 16],
        span: [8; 8],
    };
    let decoded = cause(context.to_bytes(), vec![1_500_000, u64::MAX]);
    assert_eq!(decoded.trace, Some(context));
    let first = Duration::from_millis(1500);
    assert_eq!(decoded.triggered, [first, Duration::from_micros(u64::MAX)]);
    let invalid = cause(vec![7; 23], vec![1; MAX_TRIGGERS + 5]);
    assert_eq!(invalid.trace, None);
    assert_eq!(invalid.triggered.len(), MAX_TRIGGERS);
}

#[test]
fn an_acknowledgement_has_a_timing_only_if_requested() {
    let session = Session::new("node-a".into());
    let timing = |whole, applied: &Applied| {
        let closed = ClosedChecks::new();
        let ack = session.ack(1, PlanHash::default(), applied, &closed, whole);
        match ack.message {
            Some(Answer::Ack(ack)) => ack.timing,
            other => panic!("{other:?} is not an acknowledgement"),
        }
    };
    let whole = Instant::now();
    let step = crate::programmer::Step {
        name: "servers",
        after: Duration::from_millis(2),
        took: Duration::from_millis(3),
        operations: 4,
        failed: 1,
    };
    let applied = Applied {
        began: Some(whole + Duration::from_millis(1)),
        steps: [step].into(),
        ..Applied::default()
    };
    assert_eq!(timing(None, &applied), None);
    let found = timing(Some(whole), &applied).unwrap();
    assert_eq!(found.waited_microseconds, 1000);
    let expected = wire::Step {
        name: "servers".into(),
        after_microseconds: 2000,
        microseconds: 3000,
        operations: 4,
        failed: 1,
    };
    assert_eq!(found.steps, [expected]);
    // If the pass had already begun for another reason, there was no wait.
    let later = whole + Duration::from_secs(1);
    assert_eq!(
        timing(Some(later), &applied).unwrap().waited_microseconds,
        0
    );
}

#[test]
fn a_batch_replaces_its_buckets() {
    let begin = wire::Begin {
        buckets: vec![3, 200],
        ..delta()
    };
    let buckets: Buckets = [3, 200].into_iter().collect();
    assert_eq!(
        staged(begin, Vec::new(), None),
        StagedChanges::of_buckets(buckets)
    );
}

#[test]
fn an_invalid_item_ends_the_stream_with_an_error() {
    let mut session = Session::new("node-a".into());
    let damaged = whole(delta(), vec![Bytes::from_static(b"\xff")]);
    let error = session.take(damaged, |_| None).unwrap_err().to_string();
    assert!(
        error.starts_with("the controller sent an item that cannot be decoded: "),
        "{error}"
    );
}

/// The result of a pass with more and longer texts than a message can have.
fn largest_result() -> Applied {
    let step = crate::programmer::Step {
        name: "virtual servers of the other family",
        after: Duration::MAX,
        took: Duration::MAX,
        operations: usize::MAX,
        failed: usize::MAX,
    };
    Applied {
        failures: endless_texts().collect(),
        failed: usize::MAX,
        operations: usize::MAX,
        took: Duration::MAX,
        steps: vec![step; 64].into(),
        ..Applied::default()
    }
}

fn endless_texts() -> impl Iterator<Item = String> {
    (0..50).map(|number| format!("{number}{}", "\u{10ffff}".repeat(1000)))
}

/// A controller rejects larger messages. The law is about the largest texts and numbers, each list with more items than
/// an agent ever has.
#[test]
fn the_largest_messages_of_an_agent_fit() {
    let texts = endless_texts;
    let mut session = Session::new("n".repeat(253).into());
    session.undecodable = texts().take(MAX_UNDECODABLE).collect();
    let mark = |kind: &str| wire::KindWatermark {
        kind: kind.into(),
        newest: u64::MAX,
        sum: u64::MAX,
    };
    let held = Held {
        hash: PlanHash(u128::MAX),
        buckets: BucketHashes::default(),
    };
    let watermark = wire::Watermark {
        kinds: vec![mark("EndpointSlice"); 10],
    };
    let applied = largest_result();
    let address = |number: u128| IpAddr::from(std::net::Ipv6Addr::from(u128::MAX - number));
    let count = DriftCount {
        found: u64::MAX,
        repaired: u64::MAX,
        unrepaired: u64::MAX,
    };
    let listed = texts().collect();
    let messages = [
        session.hello(
            "0.1.0-alpha.1+0123456789abcdef",
            Some(&held),
            &watermark,
            Some(Duration::MAX),
            &vec!["x".repeat(1000); 1000],
        ),
        session.ack(
            u64::MAX,
            PlanHash(u128::MAX),
            &applied,
            &ClosedChecks::default(),
            Some(Instant::now()),
        ),
        session.refuse(u64::MAX, PlanHash(u128::MAX)),
        Session::status(
            &(0..2000).map(address).collect(),
            &DriftKind::ALL.map(|kind| (kind, count)).into(),
            [&listed, &listed],
            PlanHash(u128::MAX),
            (&Troubles::default(), &ClosedChecks::default()),
        ),
    ];
    for message in messages {
        let bytes = message.encoded_len();
        assert!(bytes < MAX_MESSAGE_BYTES, "{bytes} bytes");
    }
}

/// The controller ends the stream of an agent whose message is too large.
#[test]
fn answers_about_services_and_schedulers_are_bounded() {
    let of = |number: u32| {
        let service = ServiceId::new("shop", format!("web-{number}"));
        (service, "ü".repeat(100_000))
    };
    let closed: ClosedChecks = (0..20).map(of).collect();
    let session = Session::new("node-a".into());
    let ack = session.ack(1, PlanHash::default(), &Applied::default(), &closed, None);
    let hello = session.hello(
        "0.1.0",
        None,
        &wire::Watermark::default(),
        None,
        &vec!["x".repeat(1000); 1000],
    );
    for message in [ack, hello] {
        assert!(message.encoded_len() < MAX_MESSAGE_BYTES / 2);
    }
}
