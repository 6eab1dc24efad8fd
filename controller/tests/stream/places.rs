//! The limit of connections (`RLIMIT_NOFILE`).

use portolan_controller::telemetry::metrics::{Format, Metrics};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;

/// A client that sends nothing. `None` if the controller closes its connection.
async fn guest(controller: &Controller) -> Option<TcpStream> {
    let address = controller.address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Less than the timeout of the handshake, after which every silent client is refused.
    let closed = timeout(Duration::from_millis(300), stream.read_u8()).await;
    closed.is_err().then_some(stream)
}

fn refused_as_full(controller: &Controller) -> bool {
    let (registry, store) = (controller.registry.clone(), controller.store.clone());
    let page = Metrics::new(&controller.counters, registry, store);
    let page = page.page(Format::Text).unwrap();
    !page.contains("portolan_controller_stream_refusals_total{reason=\"full\"} 0")
}

/// Agents cannot take the files that a controller needs for the API server, and those that are connected go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_of_open_files_are_refused_until_another_one_ends() {
    // A limit of four files allows two connections.
    let places = Places::within(Some(4));
    let mut controller = Controller::start_silent(Arc::default(), places).await;
    controller.publish(NODE, 1);
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    agent.ack(first.number, false).await;
    let second = guest(&controller).await;
    assert!(second.is_some() && !refused_as_full(&controller));
    assert!(guest(&controller).await.is_none());
    assert!(refused_as_full(&controller));
    controller.publish(NODE, 2);
    assert_eq!(agent.batch().await.upserts.len(), 2);
    drop(second);
    let next = async { while guest(&controller).await.is_none() {} };
    assert!(timeout(LIMIT, next).await.is_ok(), "the place is not free");
}
