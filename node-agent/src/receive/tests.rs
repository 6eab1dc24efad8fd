//! Reconnects, and what of a batch is kept.

use std::path::{Path, PathBuf};

use portolan_plan::{PlanHash, StagedChanges};
use tempfile::TempDir;

use super::*;
use crate::plan_watch::Woken;

/// A receiver with its state in this folder, and the sender of the results of passes.
fn receiver(folder: &Path) -> (Receiver, watch::Sender<Applied>) {
    let (done, applied) = watch::channel(Applied::default());
    let (_drains, draining) = watch::channel(BTreeSet::new());
    let receiver = Receiver {
        node: "node-a".into(),
        version: "test".into(),
        controllers: Access::insecure(Address::Unix(PathBuf::new())).into(),
        dialer: Arc::new(NetworkDialer),
        plans: Arc::default(),
        remembered: Remembered::open(folder, "node-a"),
        applied,
        draining,
        health: Arc::default(),
        schedulers: Vec::new,
        link: LinkSender::default(),
    };
    (receiver, done)
}

/// Commits a batch without changes, which announces this hash.
async fn commit(
    receiver: &mut Receiver,
    expected: PlanHash,
    watermark: wire::Watermark,
) -> wire::AgentMessage {
    let renewals = Renewals::new(None, None);
    let mut reporter = StatusReporter::new(receiver.applied.clone(), &receiver.health, renewals);
    let commit = Commit {
        batch: 1,
        staged: StagedChanges::delta(),
        expected,
        watermark,
        cause: Cause::default(),
    };
    let session = Session::new("node-a".into());
    let answer = receiver.commit(commit, &session, &mut reporter).await;
    answer.unwrap()
}

fn watermark() -> wire::Watermark {
    let kinds = vec![wire::KindWatermark {
        kind: "Service".into(),
        newest: 300,
        sum: 7,
    }];
    wire::Watermark { kinds }
}

/// S-230, I-12: whenever the program is killed, the watermark on disk is not behind the plan.
#[tokio::test]
async fn the_watermark_of_a_batch_is_on_disk_before_its_plan_is_applied() {
    let folder = TempDir::new().unwrap();
    let (mut receiver, done) = receiver(folder.path());
    let (plans, path) = (receiver.plans.clone(), folder.path().to_owned());
    let programmer = tokio::task::spawn_blocking(move || {
        assert_eq!(plans.wait(Duration::from_secs(20)), Woken::Changed);
        let on_disk = Remembered::open(&path, "node-a");
        let generation = plans.take().generation;
        done.send_replace(Applied {
            generation,
            ..Applied::default()
        });
        on_disk
    });
    commit(&mut receiver, PlanHash::default(), watermark()).await;
    assert_eq!(programmer.await.unwrap().watermark(), &watermark());
}

/// Without it, a controller that lags behind could serve the next stream.
#[tokio::test]
async fn the_watermark_of_a_rejected_batch_is_kept() {
    let folder = TempDir::new().unwrap();
    let (mut receiver, _done) = receiver(folder.path());
    let answer = commit(&mut receiver, PlanHash(1), watermark()).await;
    let Some(wire::agent_message::Message::Ack(ack)) = answer.message else {
        panic!("{answer:?}");
    };
    assert!(ack.refused);
    let on_disk = Remembered::open(folder.path(), "node-a");
    assert_eq!(on_disk.watermark(), &watermark());
    assert_eq!(receiver.remembered.watermark(), &watermark());
}

#[test]
fn delays_grow_up_to_a_limit_and_differ_between_nodes() {
    let waits: Vec<_> = (0..12).map(|attempt| backoff("node-a", attempt)).collect();
    for (attempt, wait) in waits.iter().enumerate() {
        let whole = INITIAL_BACKOFF
            .saturating_mul(1 << attempt)
            .min(MAX_BACKOFF);
        assert!(
            *wait >= whole / 2 && *wait <= whole,
            "attempt {attempt}: {wait:?}"
        );
    }
    assert_ne!(backoff("node-a", 9), backoff("node-b", 9));
}

#[test]
fn only_an_agent_whose_stream_was_replaced_waits_long_at_once() {
    let refused = |code| StreamError::Refused(tonic::Status::new(code, "no"));
    assert!(refused(tonic::Code::Aborted).is_replaced());
    assert!(!refused(tonic::Code::Unavailable).is_replaced());
    assert!(!StreamError::Closed.is_replaced());
}
