//! For arbitrary messages of agents, the controller does not panic, ends invalid streams with a reason, and serves
//! the other agents as before.

use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use portolan_proto::{WIRE_VERSION, wire};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::{Agent, Controller, LIMIT, two_nodes};

/// Number of streams; `PORTOLAN_FUZZ_CASES` overrides it.
fn cases() -> Option<usize> {
    let named = std::env::var("PORTOLAN_FUZZ_CASES").ok();
    named.and_then(|cases| cases.parse().ok())
}

/// Number of concurrent streams, as from many nodes.
const AT_ONCE: usize = 64;

fn hash() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => vec(any::<u8>(), 16), 1 => vec(any::<u8>(), 0..20), 1 => Just(Vec::new())]
}

fn watermark() -> impl Strategy<Value = wire::Watermark> {
    let kind = ("(Node|Service|Pod|)", any::<u64>(), any::<u64>());
    // An agent that is ahead waits for a list, which manifests do not provide.
    let kind = kind.prop_map(|(kind, newest, sum)| wire::KindWatermark { kind, newest, sum });
    vec(kind, 0..3).prop_map(|kinds| wire::Watermark { kinds })
}

fn hello() -> impl Strategy<Value = wire::Hello> {
    let node = prop_oneof![3 => Just("node-a".to_owned()), 1 => "[a-c]{0,2}"];
    let version = prop_oneof![6 => 1..=WIRE_VERSION, 1 => any::<u32>()];
    let buckets = prop_oneof![4 => Just(Vec::new()), 1 => vec(any::<u8>(), 256 * 16), 1 => vec(any::<u8>(), 0..40)];
    let age = prop_oneof![3 => Just(0), 1 => 1..20_u64, 1 => any::<u64>()];
    let schedulers = vec("[a-z]{0,20}", 0..4);
    let rest = (
        hash(),
        buckets,
        prop::option::of(watermark()),
        age,
        schedulers,
    );
    (node, version, rest).prop_map(
        |(node, wire_version, (plan_hash, bucket_hashes, watermark, age, schedulers))| {
            wire::Hello {
                node,
                wire_version,
                agent_version: "fuzz".into(),
                plan_hash,
                bucket_hashes,
                watermark,
                younger_than_milliseconds: age,
                schedulers,
            }
        },
    )
}

fn troubles() -> impl Strategy<Value = wire::Troubles> {
    let trouble = ("[a-z/]{0,8}", "\\PC{0,12}", any::<bool>());
    let trouble = trouble.prop_map(|(service, text, in_force)| wire::ServiceTrouble {
        service,
        reason: text.clone(),
        message: text,
        in_force,
    });
    let failing = prop_oneof![40 => vec(any::<u64>(), 0..4), 1 => vec(any::<u64>(), 1000..1100)];
    (vec(trouble, 0..12), failing, any::<u32>()).prop_map(|(shown, failing, failing_services)| {
        wire::Troubles {
            shown,
            failing,
            failing_services,
        }
    })
}

/// Durations that no agent measures.
fn timing(many: u64) -> wire::Timing {
    let step = wire::Step {
        name: "diff".into(),
        after_microseconds: many,
        microseconds: u64::MAX - many,
        operations: many,
        failed: many,
    };
    wire::Timing {
        waited_microseconds: many,
        total_microseconds: many / 2,
        steps: vec![step; 3],
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let words = || vec("\\PC{0,12}", 0..12);
    let ack = (
        0..3_u64,
        hash(),
        hash(),
        any::<u64>(),
        words(),
        any::<bool>(),
        words(),
        prop::option::of(troubles()),
    );
    let ack = ack.prop_map(
        |(batch, received, applied, many, failures, refused, undecodable, troubles)| {
            Answer::Ack(wire::Ack {
                batch,
                received_hash: received,
                applied_hash: applied,
                apply_microseconds: many,
                operations: many,
                failures,
                failed_operations: many,
                refused,
                undecodable,
                timing: Some(timing(many)),
                troubles,
            })
        },
    );
    let drift = (words(), any::<u64>()).prop_map(|(kinds, many)| {
        let drift = kinds.into_iter().map(|kind| wire::Drift {
            kind,
            found: many,
            repaired: many,
            unrepaired: many,
        });
        drift.collect::<Vec<_>>()
    });
    let status = (
        vec(vec(any::<u8>(), 0..18), 0..4),
        drift,
        words(),
        words(),
        hash(),
        prop::option::of(troubles()),
    );
    let status = status.prop_map(
        |(draining, drift, closed_ports, unwritten_settings, applied_hash, troubles)| {
            Answer::Status(wire::Status {
                draining,
                drift,
                closed_ports,
                unwritten_settings,
                applied_hash,
                troubles,
            })
        },
    );
    let renewal = "\\PC{0,12}".prop_map(|token| Answer::Renewal(wire::Renewal { token }));
    prop_oneof![5 => ack, 3 => status, 1 => renewal, 1 => hello().prop_map(Answer::Hello)]
}

fn stream() -> impl Strategy<Value = Vec<wire::AgentMessage>> {
    let first = prop_oneof![9 => hello().prop_map(Answer::Hello), 1 => answer()];
    let first = prop::option::weighted(0.98, first);
    let rest = vec(prop::option::weighted(0.98, answer()), 0..5);
    (first, rest).prop_map(|(first, rest)| {
        let all = std::iter::once(first).chain(rest);
        all.map(|message| wire::AgentMessage { message }).collect()
    })
}

/// Sends all messages, and reads until the controller ends the stream or has sent half a dozen messages.
async fn talk(mut client: PlanStreamClient<Channel>, messages: Vec<wire::AgentMessage>) {
    let (says, outgoing) = mpsc::channel(messages.len());
    for message in messages {
        says.try_send(message).unwrap();
    }
    // The stream stays open as long as this sender exists.
    let Ok(answer) = client.watch(ReceiverStream::new(outgoing)).await else {
        return;
    };
    let mut answers = answer.into_inner();
    for _ in 0..6 {
        // A stream without pending messages is silent.
        let next = tokio::time::timeout(std::time::Duration::from_millis(20), answers.message());
        match next.await {
            Ok(Ok(Some(_))) => {}
            Ok(Err(status)) => {
                assert!(!status.message().is_empty(), "{status:?}");
                return;
            }
            Ok(Ok(None)) | Err(_) => return,
        }
    }
}

/// I-3, over whole streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_agent_can_make_a_controller_panic_or_disturb_others() {
    let mut controller = Controller::start(3).await;
    let endpoint = Endpoint::from_shared(controller.address.clone()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    controller.publish(&two_nodes(), 3);
    let mut witness = Agent::connect(&controller, "node-b", WIRE_VERSION).await;
    let first = witness.batch().await;
    witness.ack(first.number, false).await;

    // The same seed in every run, unless another number of cases is requested.
    let mut runner = match cases() {
        None => TestRunner::deterministic(),
        Some(_) => TestRunner::default(),
    };
    let streams = stream();
    let clients = channel.clone();
    let talks = (0..cases().unwrap_or(20_000)).map(move |_| {
        let messages = streams.new_tree(&mut runner).unwrap().current();
        let client = PlanStreamClient::new(clients.clone());
        async move { tokio::spawn(talk(client, messages)).await }
    });
    let mut talks = futures::StreamExt::buffer_unordered(futures::stream::iter(talks), AT_ONCE);
    while let Some(talked) = talks.next().await {
        talked.unwrap();
    }

    let left = async {
        // Dropped streams end when their connection notices.
        while controller.registry.connected_agents() > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    drop(talks);
    drop(channel);
    tokio::time::timeout(LIMIT, left)
        .await
        .expect("all streams end");
    // Earlier agents are still served, and new ones too.
    controller.publish(&two_nodes(), 2);
    let second = witness.batch().await;
    assert!(!second.snapshot && second.hash != first.hash, "{second:?}");
    let mut next = Agent::connect(&controller, "node-b", WIRE_VERSION).await;
    assert_eq!(next.batch().await.hash, second.hash);
}
