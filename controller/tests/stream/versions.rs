//! Agents of other releases, and agents that reconnect to another controller.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_agent_gets_the_newest_known_version() {
    let controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION + 1).await;
    assert!(matches!(agent.message().await.unwrap(), Message::Batch(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_changes_controllers_is_sent_the_difference() {
    let before = Controller::start(100).await;
    let mut agent = Agent::connect(&before, "node-a", WIRE_VERSION).await;
    let held = agent.batch().await;
    let entry = |(key, bytes): &(String, Vec<u8>)| {
        let key = EntryKey::from_peer(key);
        let hash = EntryHash::of(&key, bytes);
        (key, hash)
    };
    let mut buckets = portolan_plan::BucketHashes::default();
    for (key, hash) in held.upserts.iter().map(entry) {
        buckets.add(key.bucket(), hash);
    }
    let hello = wire::Hello {
        node: "node-a".into(),
        wire_version: WIRE_VERSION,
        plan_hash: held.hash.to_bytes().into(),
        bucket_hashes: buckets.to_bytes(),
        ..wire::Hello::default()
    };
    let same = Agent::say(&before, hello.clone()).await.batch().await;
    assert!(
        !same.snapshot && same.upserts.is_empty(),
        "the agent is up to date"
    );
    let after = Controller::start(101).await;
    let batch = Agent::say(&after, hello.clone()).await.batch().await;
    assert!(!batch.snapshot && !batch.buckets.is_empty());
    assert!(batch.upserts.len() < 10, "{} entries", batch.upserts.len());
    let damaged = wire::Hello {
        bucket_hashes: vec![0; 17],
        ..hello
    };
    let status = Agent::say(&after, damaged).await.end().await;
    assert_eq!(
        status.message(),
        "hello.bucket_hashes: 17 bytes are not 256 hashes"
    );
}
