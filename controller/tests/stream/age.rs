//! The age of a controller's objects, as its agents see it (S-231).

use portolan_planner::model::Kind;
use tokio::time::Instant;

use super::*;

/// A controller that last received something from its API server this long ago.
async fn controller(age: Duration) -> (Controller, Arc<Freshness>) {
    let start = Instant::now().checked_sub(age).unwrap();
    let freshness = Arc::new(Freshness::watching([Kind::Node], start));
    let mut controller = Controller::silent_with(freshness.clone()).await;
    controller.publish(NODE, 1);
    (controller, freshness)
}

impl Agent {
    /// The next reported age. Nothing else is received before it.
    async fn age(&mut self) -> Duration {
        match self.any_message().await.unwrap() {
            Message::Freshness(freshness) => Duration::from_millis(freshness.age_milliseconds),
            other => panic!("{other:?} is no age"),
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_agent_learns_the_age_first_and_when_it_becomes_outdated_or_current() {
    let (controller, freshness) = controller(SECOND * 7).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.age().await;
    assert!((SECOND * 7..SECOND * 60).contains(&first), "{first:?}");
    let batch = agent.batch().await;
    agent.ack(batch.number, false).await;
    tokio::time::pause();
    tokio::time::advance(SECOND * 90).await;
    tokio::time::resume();
    let outdated = agent.age().await;
    assert!(outdated >= SECOND * 97, "{outdated:?}");
    freshness.received(Kind::Node);
    let current = agent.age().await;
    assert!(current < SECOND * 60, "{current:?}");
}

/// Its controller has to stay the only one that has its stream: here its end would look like the loss of an agent.
#[tokio::test]
async fn an_agent_that_requires_younger_objects_is_refused_before_it_is_registered() {
    let (controller, freshness) = controller(SECOND * 100).await;
    let hello = wire::Hello {
        node: "node-a".into(),
        wire_version: WIRE_VERSION,
        younger_than_milliseconds: 85_000,
        ..wire::Hello::default()
    };
    let refused = Agent::say(&controller, hello.clone()).await.end().await;
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let message = refused.message();
    assert!(
        message.ends_with("s old, and the agent requires less than 85 s"),
        "{message}"
    );
    assert_eq!(controller.registry.get("node-a"), None);
    freshness.received(Kind::Node);
    let mut served = Agent::say(&controller, hello.clone()).await;
    assert!(served.batch().await.snapshot);
    assert!(controller.registry.get("node-a").is_some());
    // A controller that has just started knows nothing yet, and its age is that of its start.
    let starting = Controller::silent().await;
    let refused = Agent::say(&starting, hello).await.end().await;
    assert_eq!(refused.message(), "this controller has no plans yet");
    assert_eq!(starting.registry.get("node-a"), None);
}
