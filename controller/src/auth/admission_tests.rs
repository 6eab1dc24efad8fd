//! With a paused clock and a reviewer that counts its calls.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::super::Gate;
use super::super::claims::tests::token;
use super::super::signature::tests::Signer;
use super::super::tokens::tests::{Knowing, SOURCE, claims, of_node, tokens, verified};
use super::*;

async fn admitted(tokens: &Arc<Tokens>, token: &Token) -> Arc<Admission> {
    let mut metadata = tonic::metadata::MetadataMap::new();
    let value = format!("Bearer {}", token.as_str()).parse().unwrap();
    metadata.insert("authorization", value);
    let gate = Gate::Tokens(tokens.clone());
    Arc::new(gate.admit(&metadata, SOURCE).await.unwrap())
}

fn stream(admission: &Arc<Admission>) -> JoinHandle<Refusal> {
    let admission = admission.clone();
    tokio::spawn(async move { admission.revoked().await })
}

fn delete(knowing: &Knowing, node: &str) {
    knowing.deleted.lock().unwrap().push(node.into());
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_covers_its_own_node_and_ends_when_its_pod_is_deleted_but_not_without_an_api_server()
 {
    let (knowing, tokens) = tokens();
    let admission = admitted(&tokens, &of_node("node-a")).await;
    assert_eq!(admission.covers("node-a"), Ok(()));
    let other = admission.covers("node-b").unwrap_err();
    assert_eq!(other.reason, Reason::other_node);
    assert!(other.message.contains("node-a") && other.message.contains("node-b"));
    let start = Instant::now();
    let stream = stream(&admission);
    knowing.unreachable.store(true, Ordering::SeqCst);
    seconds(3600).await;
    // At most every 10 minutes, at least every 15.
    let reviews = knowing.asked() - 1;
    assert!((4..=6).contains(&reviews), "{reviews}");
    knowing.unreachable.store(false, Ordering::SeqCst);
    seconds(3600).await;
    assert!(!stream.is_finished());
    delete(&knowing, "node-a");
    let refusal = stream.await.unwrap();
    assert_eq!(refusal.reason, Reason::not_accepted);
    assert!(
        refusal.message.contains("the stream ends"),
        "{}",
        refusal.message
    );
    assert!(start.elapsed() <= Duration::from_secs(7200 + 901));
}

#[tokio::test(start_paused = true)]
async fn a_newer_token_is_reviewed_at_once_and_the_next_ones_at_most_every_minute() {
    let (knowing, tokens) = tokens();
    *knowing.start.lock().unwrap() = Some(Instant::now());
    let admission = admitted(&tokens, &token(&claims("node-a", "agent", 700))).await;
    let stream = stream(&admission);
    seconds(1).await;
    admission.renew(token(&claims("node-a", "agent", 800)));
    seconds(1).await;
    assert_eq!(knowing.asked(), 2);
    for number in 0..300 {
        admission.renew(token(&claims("node-a", "agent", 10_000 + number)));
        seconds(1).await;
    }
    let reviews = knowing.asked() - 2;
    assert!((4..=6).contains(&reviews), "{reviews} in 300 s");
    // The first two tokens have expired by then.
    seconds(3600).await;
    assert!(!stream.is_finished());
    seconds(3600 * 3).await;
    let refusal = stream.await.unwrap();
    assert!(refusal.message.contains("reviewed again"), "{refusal:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_pod_or_a_rejected_one_changes_nothing() {
    let (knowing, tokens) = tokens();
    let admission = admitted(&tokens, &token(&claims("node-a", "agent", 9000))).await;
    let stream = stream(&admission);
    delete(&knowing, "node-c");
    let others = [
        claims("node-b", "agent", 9000),
        claims("node-a", "other", 9000),
        claims("node-c", "agent", 9000),
    ];
    for other in &others {
        admission.renew(token(other));
        seconds(120).await;
    }
    admission.renew(Token::of_message("no token".into()).unwrap());
    seconds(3600).await;
    assert!(!stream.is_finished());
    delete(&knowing, "node-a");
    stream.await.unwrap();
}

/// Runs a case of a law with a clock that jumps over waits.
fn paused<T>(case: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(case)
}

/// Whether the stream of an agent whose tokens have this lifetime is open after 34,000 s. The agent sends each token
/// when the kubelet has replaced the one before, after four fifths of its lifetime. Outages are a start and a length.
async fn outlives(lifetime: u64, outages: &[(u64, u64)]) -> bool {
    let signer = Signer::new();
    // With signatures and the clock of the API server: then expiry is known here as well.
    let (knowing, tokens) = verified(&signer, SystemTime::UNIX_EPOCH);
    *knowing.start.lock().unwrap() = Some(Instant::now());
    let begin = |number: u64| number * lifetime * 4 / 5;
    let issued =
        |number: u64| signer.token("one", &claims("node-a", "agent", begin(number) + lifetime));
    let admission = admitted(&tokens, &issued(0)).await;
    let stream = stream(&admission);
    let mut next = 1;
    for now in (0..34_000).step_by(10) {
        let away = outages
            .iter()
            .any(|(start, length)| (*start..start + length).contains(&now));
        knowing.unreachable.store(away, Ordering::SeqCst);
        if now >= begin(next) {
            admission.renew(issued(next));
            next += 1;
        }
        seconds(10).await;
    }
    !stream.is_finished()
}

/// The token expires while the API server is away, and the newer one cannot be reviewed.
#[test]
fn a_stream_outlives_an_outage_that_begins_shortly_before_its_token_is_replaced() {
    assert!(paused(outlives(600, &[(400, 2_000)])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// I-13: as long as the kubelet replaces tokens, a stream lasts, however long the API server is away meanwhile.
    #[test]
    fn a_stream_outlives_its_tokens_and_any_outage(
        lifetime in 600..4000_u64,
        outages in vec((20..20_000_u64, 1..12_000_u64), 0..4),
    ) {
        prop_assert!(paused(outlives(lifetime, &outages)));
    }

    /// Whatever an agent sends, its stream ends within 15 minutes after its pod was deleted.
    #[test]
    fn newer_tokens_do_not_postpone_the_end_of_a_stream(
        interval in 1..200_u64,
        nodes in vec(prop_oneof![Just("node-a"), Just("node-b")], 1..5),
    ) {
        let ends = paused(async {
            let (knowing, tokens) = tokens();
            let admission = admitted(&tokens, &of_node("node-a")).await;
            let stream = stream(&admission);
            delete(&knowing, "node-a");
            let start = Instant::now();
            for (number, node) in (0..).zip(nodes.iter().cycle()) {
                if stream.is_finished() || start.elapsed() > Duration::from_secs(905) {
                    break;
                }
                admission.renew(token(&claims(node, "agent", 10_000 + number)));
                seconds(interval).await;
            }
            stream.is_finished()
        });
        prop_assert!(ends);
    }
}
