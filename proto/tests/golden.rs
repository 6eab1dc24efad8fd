//! The bytes of whole messages, as all releases of controller and agents read them. A change here is a change of the
//! wire: new fields get new numbers, and existing numbers never change their meaning.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::sync::Arc;

use portolan_plan::{Backend, BackendList, Entry, EntryHash, EntryKey};
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{encode_entry, item, wire};
use prost::Message as _;

fn list(last: u8) -> Arc<BackendList> {
    let backend = |number: u8| Backend {
        address: [10, 244, 1, number].into(),
        port: 8080,
        weight: 1,
    };
    Arc::new((1..=last).map(backend).collect())
}

fn key() -> EntryKey {
    "list/shop/cart/http/IPv4/cluster".parse().unwrap()
}

fn hash(byte: u8) -> Vec<u8> {
    vec![byte; 16]
}

fn watermark() -> wire::Watermark {
    wire::Watermark {
        kinds: vec![wire::KindWatermark {
            kind: "Service".into(),
            newest: 300,
            sum: 7,
        }],
    }
}

/// The Hello of an agent whose controller is outdated.
fn searching() -> wire::Hello {
    wire::Hello {
        node: "node-a".into(),
        younger_than_milliseconds: 15_000,
        ..wire::Hello::default()
    }
}

fn troubles() -> wire::Troubles {
    wire::Troubles {
        shown: vec![wire::ServiceTrouble {
            service: "shop/cart".into(),
            reason: "SchedulerMissing".into(),
            message: "no lblc".into(),
            in_force: true,
        }],
        failing: vec![1, 0xff00_0000_0000_0002],
        failing_services: 70,
    }
}

fn renewal() -> wire::Renewal {
    wire::Renewal {
        token: "abc.def.ghi".into(),
    }
}

fn answers() -> Vec<(&'static str, Answer)> {
    let hello = wire::Hello {
        node: "node-a".into(),
        wire_version: 1,
        agent_version: "0.1.0".into(),
        plan_hash: hash(0xa1),
        bucket_hashes: Vec::new(),
        watermark: Some(watermark()),
        younger_than_milliseconds: 0,
        schedulers: Vec::new(),
    };
    let ack = wire::Ack {
        batch: 3,
        received_hash: hash(0xa1),
        applied_hash: hash(0xa2),
        apply_microseconds: 1500,
        operations: 12,
        failures: vec!["no memory".into()],
        failed_operations: 1,
        refused: false,
        undecodable: vec!["head/shop/cart".into()],
        timing: None,
        troubles: None,
    };
    let timed = wire::Ack {
        batch: 3,
        timing: Some(wire::Timing {
            waited_microseconds: 20,
            total_microseconds: 1600,
            steps: vec![wire::Step {
                name: "servers".into(),
                after_microseconds: 300,
                microseconds: 900,
                operations: 12,
                failed: 1,
            }],
        }),
        ..wire::Ack::default()
    };
    let status = wire::Status {
        draining: vec![vec![10, 244, 1, 5]],
        drift: vec![wire::Drift {
            kind: "route".into(),
            found: 3,
            repaired: 2,
            unrepaired: 1,
        }],
        closed_ports: vec!["30080".into()],
        unwritten_settings: vec!["set a to 1: read-only".into()],
        applied_hash: hash(0xa2),
        troubles: None,
    };
    vec![
        ("hello", Answer::Hello(hello)),
        ("ack", Answer::Ack(ack)),
        ("status", Answer::Status(status)),
        ("timed ack", Answer::Ack(timed)),
        ("renewal", Answer::Renewal(renewal())),
        ("searching hello", Answer::Hello(searching())),
    ]
}

/// Answers about Services and their schedulers.
fn answers_about_services() -> Vec<(&'static str, Answer)> {
    let scheduling = wire::Hello {
        schedulers: vec!["rr".into(), "mh".into()],
        ..wire::Hello::default()
    };
    let troubled = wire::Ack {
        batch: 3,
        troubles: Some(troubles()),
        ..wire::Ack::default()
    };
    let reporting = wire::Status {
        troubles: Some(troubles()),
        ..wire::Status::default()
    };
    vec![
        ("hello with schedulers", Answer::Hello(scheduling)),
        ("ack with troubles", Answer::Ack(troubled)),
        ("status with troubles", Answer::Status(reporting)),
    ]
}

fn messages() -> Vec<(&'static str, Message)> {
    let (from, to) = (list(2), list(3));
    let entry = |list: &Arc<BackendList>| encode_entry(&Entry::List(list.clone()));
    let base = EntryHash::of(&key(), &entry(&from));
    let items = wire::Items {
        items: vec![
            item::upsert(&key(), entry(&from)),
            item::remove(&key()),
            item::patch(&key(), base, &from, &to),
        ],
    };
    let begin = wire::Begin {
        batch: 3,
        snapshot: true,
        buckets: vec![1, 255],
        watermark: Some(watermark()),
        trace: Vec::new(),
        triggered_microseconds: Vec::new(),
    };
    let traced = wire::Begin {
        batch: 4,
        trace: [hash(0xb1), vec![0xb2; 8]].concat(),
        triggered_microseconds: vec![1_700_000_000_000_000],
        ..wire::Begin::default()
    };
    let commit = wire::Commit {
        batch: 3,
        plan_hash: hash(0xa1),
    };
    let gone = wire::Gone {
        addresses: vec![vec![10, 244, 1, 5]],
    };
    let batch = wire::Batch {
        begin: Some(begin.clone()),
        items: Some(items.clone()),
        commit: Some(commit.clone()),
    };
    let freshness = wire::Freshness {
        age_milliseconds: 97_000,
    };
    vec![
        ("begin", Message::Begin(begin)),
        ("items", Message::Items(items)),
        ("commit", Message::Commit(commit)),
        ("gone", Message::Gone(gone)),
        ("batch", Message::Batch(batch)),
        ("traced begin", Message::Begin(traced)),
        ("freshness", Message::Freshness(freshness)),
    ]
}

/// Sixteen bytes in a line.
fn shown(text: &mut String, name: &str, bytes: &[u8]) {
    writeln!(text, "{name}: {} bytes", bytes.len()).unwrap();
    for line in bytes.chunks(16) {
        let line: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "  {}", line.join(" ")).unwrap();
    }
}

#[test]
fn messages_have_the_bytes_that_they_always_had() {
    let mut text = String::new();
    for (name, answer) in answers().into_iter().chain(answers_about_services()) {
        let message = wire::AgentMessage {
            message: Some(answer),
        };
        let bytes = message.encode_to_vec();
        assert_eq!(wire::AgentMessage::decode(&*bytes).unwrap(), message);
        shown(&mut text, name, &bytes);
    }
    for (name, message) in messages() {
        let message = wire::PlanMessage {
            message: Some(message),
        };
        let bytes = message.encode_to_vec();
        assert_eq!(wire::PlanMessage::decode(&*bytes).unwrap(), message);
        shown(&mut text, name, &bytes);
    }
    insta::assert_snapshot!(text);
}
