//! Controller and agents over a real TLS handshake in one process: which certificates and tokens are accepted, the
//! messages on both sides, and that a slow or silent agent does not hold up others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod authority;
mod controller;
mod misbehaving;
mod strangers;

use std::time::{Duration, SystemTime};

use authority::{Authority, days};
use controller::{Agent, Controller, LIMIT, RENEWED, agent};
use portolan_agent::receive::{Access, Address};
use tokio::net::TcpStream;
use tonic::Code;

const NAME: &str = "portolan-controller";

/// I-13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_reads_the_plan_of_its_own_node_and_no_other() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    let access = controller.access(&authority, NAME, Some("node-a"));
    assert!(agent(&access, "node-a").await.unwrap() > 0);
    let status = agent(&access, "node-b").await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let words = "its token is of a pod on node-a, but it asks for node-b";
    assert!(status.message().contains(words), "{status}");
    let none = controller.access(&authority, NAME, None);
    let status = agent(&none, "node-a").await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("--token-file"), "{status}");
    controller.counted("other_node", 1);
    controller.counted("no_token", 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_controller_is_reported_with_what_to_check() {
    let (ours, theirs) = (Authority::new("one"), Authority::new("two"));
    let now = SystemTime::now();
    let cases = [
        (theirs.server(NAME), "not signed by a CA in --controller-ca"),
        (
            ours.server("other"),
            "is for DnsName(\"other\"), not for \"portolan-controller\"",
        ),
        (
            ours.server_of(NAME, now - days(9), now - days(1)),
            "by this node's clock",
        ),
        (
            ours.server_of(NAME, now + days(1), now + days(9)),
            "is not valid before",
        ),
    ];
    for (pair, words) in cases {
        let controller = Controller::start(&pair).await;
        let access = controller.access(&ours, NAME, Some("node-a"));
        let error = access.connect().await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        controller.wait_counted("handshake", 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_on_one_side_only_is_reported_on_both_sides() {
    let authority = Authority::new("one");
    let secure = Controller::start(&authority.server(NAME)).await;
    let plain = Access::insecure(Address::Tcp(secure.address));
    let status = agent(&plain, "node-a").await.unwrap_err();
    assert!(status.message().contains("--controller-ca"), "{status}");
    secure.counted("plain_text", 1);
    let open = Controller::start_insecure().await;
    let access = open.access(&authority, NAME, Some("node-a"));
    let error = access.connect().await.unwrap_err().to_string();
    assert!(error.contains("does not use TLS"), "{error}");
    open.wait_counted("no_tls_here", 1).await;
    let plain = Access::insecure(Address::Tcp(open.address));
    assert!(agent(&plain, "node-a").await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_under_streams_that_go_on() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let controller = Controller::start(&old.server(NAME)).await;
    let access = controller.access(&old, NAME, Some("node-a"));
    let mut stream = Agent::open(&access, "node-a").await.unwrap();
    stream.batch().await.unwrap();
    assert!(controller.presented.replace(new.server(NAME)));
    // An agent that does not trust the new CA fails only at its next connection.
    let error = access.connect().await.unwrap_err().to_string();
    assert!(error.contains("not signed by a CA"), "{error}");
    let both = controller.access_of(&(old.pem() + &new.pem()), NAME, Some("node-b"));
    assert!(agent(&both, "node-b").await.unwrap() > 0);
    controller.publish(2);
    assert!(stream.batch().await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_hold_up_no_other_client() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    let mut silent = Vec::new();
    for _ in 0..150 {
        silent.push(TcpStream::connect(controller.address).await.unwrap());
        // A client that stops in the middle of the TLS handshake.
        let begun = TcpStream::connect(controller.address).await.unwrap();
        begun.writable().await.unwrap();
        begun.try_write(&[0x16, 3, 1]).unwrap();
        silent.push(begun);
    }
    let access = controller.access(&authority, NAME, Some("node-a"));
    let got = tokio::time::timeout(LIMIT, agent(&access, "node-a")).await;
    assert!(got.expect("a plan in time").unwrap() > 0);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_replaces_ca_and_token_is_read_at_the_next_connection() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let controller = Controller::start(&new.server(NAME)).await;
    let access = controller.access(&old, NAME, Some("node-b"));
    assert!(access.connect().await.is_err());
    controller.write_ca(&access, &new.pem());
    let status = agent(&access, "node-a").await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    controller.write_token(&access, "node-a");
    assert!(agent(&access, "node-a").await.unwrap() > 0);
    controller.write_ca(&access, "");
    let error = access.connect().await.unwrap_err().to_string();
    assert!(error.contains("contains no certificate"), "{error}");
    controller.write_token(&access, "");
    let error = access.request(()).unwrap_err().to_string();
    assert!(error.contains("it is empty"), "{error}");
}

/// I-13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_continues_with_the_newer_token_of_its_agent_and_ends_with_that_one() {
    let authority = Authority::new("one");
    let period = Duration::from_secs(1);
    let controller = Controller::start_reviewing(&authority.server(NAME), period).await;
    let nodes = controller.nodes.clone();
    let access = |node| controller.access(&authority, NAME, Some(node));
    let mut renewed = Agent::open(&access("node-a"), "node-a").await.unwrap();
    let mut other = Agent::open(&access("node-b"), "node-b").await.unwrap();
    renewed.batch().await.unwrap();
    other.batch().await.unwrap();
    let newer = format!("node-a{RENEWED}");
    renewed.renew(&newer).await;
    nodes.wait_accepted(&newer, 1).await;
    // As if both tokens had expired.
    nodes.revoke("node-a");
    nodes.revoke("node-b");
    let status = other.batch().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    nodes.wait_accepted(&newer, 3).await;
    controller.publish(2);
    assert!(renewed.batch().await.unwrap() > 0);
    nodes.revoke(&newer);
    let status = renewed.batch().await.unwrap_err();
    let words = "the stream ends, because its token was reviewed again";
    assert!(status.message().contains(words), "{status}");
}
