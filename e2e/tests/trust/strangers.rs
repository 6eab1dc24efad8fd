//! Clients that open too much, send too much, or stay too long.

use std::time::Duration;

use portolan_agent::receive::Access;
use portolan_proto::wire;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::authority::Authority;
use super::controller::{Agent, Controller, LIMIT, hello};
use super::{NAME, agent};

/// Requests a stream on an open connection, and sends nothing on it. The stream lasts as long as the sender.
async fn request(
    channel: &Channel,
    access: &Access,
) -> Result<mpsc::Sender<wire::AgentMessage>, Status> {
    let (sends, outgoing) = mpsc::channel(1);
    let request = access.request(ReceiverStream::new(outgoing)).unwrap();
    let mut client = PlanStreamClient::new(channel.clone());
    client.watch(request).await.map(|_| sends)
}

/// An agent that has received its plan.
async fn opened(access: &Access, node: &str) -> Result<Agent, Status> {
    let mut agent = Agent::open(access, node).await?;
    agent.batch().await?;
    Ok(agent)
}

/// S-232: a node has one stream, the newest one, and may open a limited number. An honest agent notices nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_streams_of_a_node_only_the_newest_lasts() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    let access = |node| controller.access(&authority, NAME, Some(node));
    let mut honest = Agent::open(&access("node-a"), "node-a").await.unwrap();
    assert!(honest.batch().await.unwrap() > 0);
    let greedy = access("node-b");
    let mut streams = Vec::new();
    let refused = loop {
        match opened(&greedy, "node-b").await {
            Ok(stream) => streams.push(stream),
            Err(status) => break status,
        }
        assert!(streams.len() < 100, "any number of streams");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let mut newest = streams.pop().unwrap();
    let replaced = u64::try_from(streams.len()).unwrap();
    for mut older in streams {
        let status = older.batch().await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status}");
    }
    controller.wait_counted("replaced", replaced).await;
    controller.wait_counted("too_many", 1).await;
    controller.publish(2);
    assert!(newest.batch().await.unwrap() > 0);
    assert!(honest.batch().await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_serves_one_stream_and_ends_with_it() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    let access = controller.access(&authority, NAME, Some("node-a"));
    let channel = access.connect().await.unwrap();
    let stream = request(&channel, &access).await.unwrap();
    drop(stream);
    let status = request(&channel, &access).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    // The connection is closed then, and the client does not open another one.
    let closed = async {
        while request(&channel, &access)
            .await
            .is_err_and(|status| status.code() == Code::ResourceExhausted)
        {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LIMIT, closed).await.expect("the end");
    assert!(agent(&access, "node-a").await.unwrap() > 0);
}

/// Each costs a look at its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_few_requests_without_a_stream() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    let access = controller.access(&authority, NAME, Some("no-node"));
    let channel = access.connect().await.unwrap();
    let mut refused = 0;
    while let Err(status) = request(&channel, &access).await
        && status.code() == Code::Unauthenticated
    {
        refused += 1;
        assert!(refused < 100, "any number of requests");
    }
    assert_eq!(refused, 4);
    controller.counted("not_accepted", 4);
}

/// S-232: every part of a Hello is bounded. A name is refused, a version shortened, and a larger message ends the
/// stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_hello_disturbs_no_other_agent() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    let access = |node| controller.access(&authority, NAME, Some(node));
    let mut honest = Agent::open(&access("node-a"), "node-a").await.unwrap();
    assert!(honest.batch().await.unwrap() > 0);
    let loud = access("node-b");
    let long = "x".repeat(60_000);
    let named = hello(&long);
    let mut stream = Agent::say(&loud, named).await.unwrap();
    let status = stream.batch().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().starts_with("hello.node: 60000 bytes"),
        "{status}"
    );
    let versioned = wire::Hello {
        agent_version: long,
        ..hello("node-b")
    };
    let mut stream = Agent::say(&loud, versioned).await.unwrap();
    assert!(stream.batch().await.unwrap() > 0);
    let huge = wire::Hello {
        agent_version: "x".repeat(4 << 20),
        ..hello("node-b")
    };
    let mut stream = Agent::say(&loud, huge).await.unwrap();
    assert!(stream.ends_without_a_plan().await);
    controller.publish(2);
    assert!(honest.batch().await.unwrap() > 0);
}
