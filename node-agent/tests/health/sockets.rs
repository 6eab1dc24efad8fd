//! Opening and closing of listening sockets, and limits on their connections.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use portolan_plan::Family;
use rustix::net::getsockname;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::node::{TestNode, ask, ask_until, loopback};
use super::ports::free_port;

const GET: &str = "GET / HTTP/1.1";

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(loopback(Family::Ipv4), port)
}

/// Copies of this process's own sockets with this address.
fn copies_of_sockets_at(address: SocketAddr) -> Vec<OwnedFd> {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    // A descriptor that was closed meanwhile cannot be copied.
    let copies = numbers.filter_map(|number| {
        let number = number.parse().unwrap();
        pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok()
    });
    let is_there = |copy: &OwnedFd| {
        let at = getsockname(copy).and_then(SocketAddr::try_from);
        at.is_ok_and(|at| at == address)
    };
    copies.filter(is_there).collect()
}

async fn open(port: u16) -> String {
    ask_until(at(port), GET, |answer| answer.is_ok())
        .await
        .unwrap()
}

async fn closed(port: u16) {
    let refused = |answer: &std::io::Result<String>| matches!(answer, Err(error) if error.kind() == ErrorKind::ConnectionRefused);
    drop(ask_until(at(port), GET, refused).await);
}

/// Sends one request on a persistent connection.
async fn ask_again(stream: &mut TcpStream) -> String {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: node\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8(answer[..length].to_vec()).unwrap()
}

#[tokio::test]
async fn ports_follow_the_plan_and_an_untouched_one_keeps_its_connections() {
    let mut node = TestNode::start().await;
    let (web, cart, moved) = (free_port(), free_port(), free_port());
    node.check("web", web, 1, 1);
    node.passes(1, &[]);
    node.open();
    open(web).await;
    let mut kept = TcpStream::connect(at(web)).await.unwrap();
    assert!(ask_again(&mut kept).await.starts_with("HTTP/1.1 200 "));
    node.passes_over("cart", |node| node.check("cart", cart, 1, 0));
    assert!(open(cart).await.starts_with("HTTP/1.1 200 "));
    // The new port never answers with a count of 0, and the old one is closed (S-141).
    node.passes_over("cart", |node| node.check("cart", moved, 7, 0));
    assert!(open(moved).await.contains("\"localEndpoints\":7"));
    closed(cart).await;
    node.passes_over("cart", |node| {
        node.checks.remove(&super::node::service("cart"));
    });
    closed(moved).await;
    assert!(
        ask_again(&mut kept).await.starts_with("HTTP/1.1 200 "),
        "S-141"
    );
    // Connections of a removed port are closed.
    node.passes_over("web", |node| node.checks.clear());
    closed(web).await;
    let mut rest = Vec::new();
    assert!(matches!(kept.read_to_end(&mut rest).await, Ok(0) | Err(_)));
}

#[tokio::test(start_paused = true)]
async fn a_port_in_use_is_reported_once_blocks_no_others_and_opens_when_it_is_free() {
    let mut node = TestNode::start().await;
    let blocker = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let (web, cart) = (blocker.local_addr().unwrap().port(), free_port());
    node.check("web", web, 1, 1);
    node.check("cart", cart, 1, 1);
    node.passes(1, &[]);
    node.open();
    assert!(open(cart).await.starts_with("HTTP/1.1 200 "), "S-143");
    let mut failures = node.health.closed_checks();
    let messages = failures
        .wait_for(|closed| !closed.is_empty())
        .await
        .unwrap()
        .clone();
    let wanted = format!(
        "listen on 0.0.0.0:{web} for health checks of shop/web: Address already in use (os error 98); \
         `ss -ltnp sport = {web}` on the node names the program that has the port"
    );
    assert_eq!(messages, [(super::node::service("web"), wanted)].into());
    assert!(
        node.health.closed().borrow().is_empty(),
        "S-229: a user chooses the port, so it says nothing about the node"
    );
    let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), web);
    drop(ask_until(other, GET, |answer| answer.is_ok()).await);
    // Retries do not change the reported failures.
    tokio::time::sleep(std::time::Duration::from_secs(100)).await;
    assert!(!failures.has_changed().unwrap());
    drop(blocker);
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert!(open(web).await.starts_with("HTTP/1.1 200 "));
    assert!(failures.borrow_and_update().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_ports_of_the_node_follow_the_settings() {
    let mut node = TestNode::start().await;
    node.passes(1, &[]);
    node.open();
    let (first, second) = (node.settings.healthz.port, free_port());
    let ask_healthz = "GET /healthz HTTP/1.1";
    for family in Family::BOTH {
        let address = SocketAddr::new(loopback(family), first);
        let answer = ask_until(address, ask_healthz, |answer| answer.is_ok()).await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 200 "), "S-146");
    }
    node.settings.healthz.port = second;
    node.settings.healthz.bind_address = Ipv6Addr::LOCALHOST.into();
    node.passes(2, &[]);
    closed(first).await;
    let address = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), second);
    drop(ask_until(address, ask_healthz, |answer| answer.is_ok()).await);
    let refused = ask(at(second), ask_healthz).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

/// A rollout would roll back the change if a port were closed even briefly.
#[tokio::test]
async fn the_same_port_of_more_addresses_is_open_at_once() {
    let mut node = TestNode::start().await;
    node.settings.metrics.bind_address = Ipv4Addr::LOCALHOST.into();
    node.passes(1, &[]);
    node.open();
    let address = SocketAddr::new(loopback(Family::Ipv4), node.settings.metrics.port);
    drop(ask_until(address, "GET /metrics HTTP/1.1", |answer| answer.is_ok()).await);
    let mut closed = node.health.closed();
    closed.mark_unchanged();
    // A child process of the agent has such a copy between fork and exec.
    let copies = copies_of_sockets_at(address);
    assert_ne!(copies.len(), 0);
    node.settings.metrics.bind_address = Ipv4Addr::UNSPECIFIED.into();
    node.passes(2, &[]);
    // The health page is moved last, so when it is open all sockets have been tried.
    let moved = free_port();
    node.settings.healthz.port = moved;
    node.passes(3, &[]);
    let address = SocketAddr::new(loopback(Family::Ipv4), moved);
    drop(ask_until(address, "GET /healthz HTTP/1.1", |answer| answer.is_ok()).await);
    let never: BTreeSet<String> = BTreeSet::new();
    assert_eq!(*closed.borrow(), never);
    assert!(!closed.has_changed().unwrap(), "not even briefly");
}

#[tokio::test]
async fn idle_clients_do_not_lock_out_others() {
    let mut node = TestNode::start().await;
    let port = free_port();
    node.check("web", port, 1, 1);
    node.passes(1, &[]);
    node.open();
    open(port).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(at(port)).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        silent.push(stream);
    }
    assert!(open(port).await.starts_with("HTTP/1.1 200 "));
    // The oldest connection was closed.
    let end = silent[0].read(&mut [0; 8]).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_its_request_is_disconnected() {
    let mut node = TestNode::start().await;
    let port = free_port();
    node.check("web", port, 1, 1);
    node.passes(1, &[]);
    node.open();
    open(port).await;
    let mut stream = TcpStream::connect(at(port)).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: no")
        .await
        .unwrap();
    let mut rest = String::new();
    let end = stream.read_to_string(&mut rest).await;
    assert!(
        end.is_err() || rest.is_empty() || rest.starts_with("HTTP/1.1 408"),
        "{rest}"
    );
}
