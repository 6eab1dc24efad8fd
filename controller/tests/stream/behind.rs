//! Agents that hold a newer plan than their new controller has read.

use std::collections::BTreeMap;

use portolan_controller::watch::Mark;
use portolan_planner::model::Kind;
use tokio::time::Instant;

use super::*;

fn read(newest: u64, sum: u64, lists: u64) -> BTreeMap<Kind, Mark> {
    let mark = Mark {
        newest,
        sum,
        lists,
        began: None,
    };
    [(Kind::Service, mark)].into()
}

fn watermark(newest: u64, sum: u64) -> wire::Watermark {
    let kinds = vec![wire::KindWatermark {
        kind: Kind::Service.name().into(),
        newest,
        sum,
    }];
    wire::Watermark { kinds }
}

impl Controller {
    /// The lists requested by streams.
    fn asked(&self) -> mpsc::Receiver<Kind> {
        let (ask, asked) = mpsc::channel(8);
        self.store
            .relist_by(move |kind| ask.try_send(kind).unwrap());
        asked
    }
}

fn hello(watermark: wire::Watermark) -> wire::Hello {
    wire::Hello {
        node: "node-a".into(),
        wire_version: WIRE_VERSION,
        watermark: Some(watermark),
        ..wire::Hello::default()
    }
}

/// I-12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_a_newer_plan_is_sent_nothing_before_a_new_list() {
    let mut controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(5, 1, 1));
    controller.store.note_planned();
    let mut agent = Agent::say(&controller, hello(watermark(9, 2))).await;
    assert_eq!(asked.recv().await, Some(Kind::Service));
    // The objects were read but not planned yet: the plans are still older.
    controller.store.note_marks(&read(9, 2, 2));
    let early = tokio::time::timeout(Duration::from_millis(200), agent.message()).await;
    assert!(early.is_err(), "{early:?}");
    controller.publish(NODE, 2);
    controller.store.note_planned();
    let first = agent.batch().await;
    let services = |batch: &Batch| {
        let heads = batch.upserts.iter();
        heads.filter(|(key, _)| key.starts_with("head/")).count()
    };
    assert_eq!(services(&first), 2, "it does not go back to an older plan");
    let sent_now = first.watermark.unwrap().kinds;
    assert_eq!((sent_now[0].newest, sent_now[0].sum), (9, 2));
}

/// A restored store is older than the agent's watermark, but authoritative.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_list_counts_however_old_it_is() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(900, 1, 1));
    controller.store.note_planned();
    let mut agent = Agent::say(&controller, hello(watermark(1000, 2))).await;
    assert_eq!(asked.recv().await, Some(Kind::Service));
    let mut marks = read(200, 3, 2);
    marks.entry(Kind::Service).or_default().began = Some(Instant::now());
    controller.store.note_marks(&marks);
    controller.store.note_planned();
    assert!(agent.batch().await.snapshot);
}

/// I-12: a list that began before the agent came may be older than its plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_had_begun_before_the_agent_came_does_not_count() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(5, 1, 1));
    controller.store.note_planned();
    let began = Instant::now();
    let mut agent = Agent::say(&controller, hello(watermark(9, 2))).await;
    assert_eq!(asked.recv().await, Some(Kind::Service));
    let mut marks = read(7, 3, 2);
    marks.entry(Kind::Service).or_default().began = Some(began);
    controller.store.note_marks(&marks);
    controller.store.note_planned();
    let early = tokio::time::timeout(Duration::from_millis(200), agent.message()).await;
    assert!(early.is_err(), "{early:?}");
    marks.entry(Kind::Service).or_default().began = Some(Instant::now());
    controller.store.note_marks(&marks);
    controller.store.note_planned();
    assert!(agent.batch().await.snapshot);
}

/// The watch usually delivers what the agent has, within milliseconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_the_watch_catches_up_with_causes_no_list() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(5, 1, 1));
    controller.store.note_planned();
    let mut agent = Agent::say(&controller, hello(watermark(9, 2))).await;
    let early = tokio::time::timeout(Duration::from_millis(200), agent.message()).await;
    assert!(early.is_err(), "{early:?}");
    controller.store.note_marks(&read(9, 2, 1));
    controller.store.note_planned();
    assert!(agent.batch().await.snapshot);
    assert!(asked.try_recv().is_err(), "nothing was listed again");
}

/// An agent that reports more than there can be causes one list a minute, and never gets an older plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_watermark_causes_one_list() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(5, 1, 1));
    controller.store.note_planned();
    let forged = || hello(watermark(u64::MAX, 2));
    let mut agent = Agent::say(&controller, forged()).await;
    assert_eq!(asked.recv().await, Some(Kind::Service));
    let mut next = Agent::say(&controller, forged()).await;
    assert_eq!(agent.end().await.code(), tonic::Code::Aborted);
    // Longer than the wait for the watch.
    let message = tokio::time::timeout(Duration::from_secs(5), next.message());
    assert!(message.await.is_err(), "it got a message");
    assert!(asked.try_recv().is_err(), "it caused another list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_equal_or_older_marks_is_served_at_once() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(9, 2, 1));
    controller.store.note_planned();
    for watermark in [
        watermark(9, 2),
        watermark(5, 1),
        watermark(12, 2),
        wire::Watermark::default(),
    ] {
        let mut agent = Agent::say(&controller, hello(watermark)).await;
        assert!(agent.batch().await.snapshot);
    }
    assert!(asked.try_recv().is_err(), "nothing was listed again");
}

/// Whatever an agent keeps of a batch that it rejected, the whole plan does not depend on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_rejected_batch_the_whole_plan_contains_its_watermarks() {
    let mut controller = Controller::start(1).await;
    controller.store.note_marks(&read(5, 1, 1));
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    agent.ack(first.number, false).await;
    controller.store.note_marks(&read(9, 2, 1));
    controller.publish(NODE, 2);
    let delta = agent.batch().await;
    agent.ack(delta.number, true).await;
    let whole = agent.batch().await;
    assert_eq!(delta.watermark, Some(watermark(9, 2)));
    assert_eq!(whole.watermark, delta.watermark);
}
