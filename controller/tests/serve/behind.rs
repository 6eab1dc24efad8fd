//! Agents that hold more than the controller they come to has read.

use std::collections::BTreeMap;

use portolan_controller::watch::{Kind, Mark};

use super::*;

fn read(newest: u64, sum: u64, lists: u64) -> BTreeMap<Kind, Mark> {
    let mark = Mark { newest, sum, lists };
    [(Kind::Service, mark)].into()
}

fn told(newest: u64, sum: u64) -> wire::Watermark {
    let kinds = vec![wire::KindWatermark {
        kind: Kind::Service.name().into(),
        newest,
        sum,
    }];
    wire::Watermark { kinds }
}

impl Controller {
    /// What streams ask to be listed.
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
async fn an_agent_that_knows_more_is_sent_nothing_before_all_was_listed_anew() {
    let mut controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(5, 1, 1));
    controller.store.note_planned();
    let mut agent = Agent::say(&controller, hello(told(9, 2))).await;
    assert_eq!(asked.recv().await, Some(Kind::Service));
    // What was read is not planned yet: the plans are still the older ones.
    controller.store.note_marks(&read(9, 2, 2));
    let early = tokio::time::timeout(Duration::from_millis(200), agent.messages.message()).await;
    assert!(early.is_err(), "{early:?}");
    controller.publish(NODE, 2);
    controller.store.note_planned();
    let first = agent.batch().await;
    let services = |batch: &Batch| {
        let heads = batch.upserts.iter();
        heads.filter(|(key, _)| key.starts_with("head/")).count()
    };
    assert_eq!(
        services(&first),
        2,
        "the plan that it had is not gone back behind"
    );
    let told_now = first.watermark.unwrap().kinds;
    assert_eq!((told_now[0].newest, told_now[0].sum), (9, 2));
}

/// A store that was restored is older than what the agent was told, and still the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_read_anew_counts_however_old_it_is() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(900, 1, 1));
    controller.store.note_planned();
    let mut agent = Agent::say(&controller, hello(told(1000, 2))).await;
    assert_eq!(asked.recv().await, Some(Kind::Service));
    controller.store.note_marks(&read(200, 3, 2));
    controller.store.note_planned();
    assert!(agent.batch().await.snapshot);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_knows_as_much_or_less_is_served_at_once() {
    let controller = Controller::start(1).await;
    let mut asked = controller.asked();
    controller.store.note_marks(&read(9, 2, 1));
    controller.store.note_planned();
    for watermark in [
        told(9, 2),
        told(5, 1),
        told(12, 2),
        wire::Watermark::default(),
    ] {
        let mut agent = Agent::say(&controller, hello(watermark)).await;
        assert!(agent.batch().await.snapshot);
    }
    assert!(asked.try_recv().is_err(), "nothing was listed again");
}

/// With a batch that it refuses, an agent forgets how far its plan was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_refused_batch_the_whole_plan_says_again_how_far_it_was_read() {
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
    assert_eq!(delta.watermark, Some(told(9, 2)));
    assert_eq!(whole.watermark, delta.watermark);
}
