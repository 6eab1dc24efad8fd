//! Lists that agents request.

use super::*;

/// A server that lists an object, and lists it again each time with another version.
fn server(lists: u32) -> Server {
    let list = |number: u32| {
        let version = (10 * number).to_string();
        Reply::Stays(streamed(&[node("a", &version, "z1")], &version))
    };
    Server::default().answers("nodes", (1..=lists).map(list))
}

/// Law `follow`: however many lists are requested, one is made, after a while, and it begins after the last request.
#[tokio::test(start_paused = true)]
async fn many_requests_make_few_lists() {
    let server = server(10);
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    let mut last = tokio::time::Instant::now();
    for _ in 0..1000 {
        last = tokio::time::Instant::now();
        nodes.watches.relist().ask(Kind::Node);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lists = server.asked("nodes").len() - 1;
    assert!((1..=2).contains(&lists), "{lists} lists in 10 s");
    // The last request is not lost.
    while nodes.mark.began.is_none_or(|began| began < last) {
        assert_eq!(nodes.next().await, "all: a/z1");
    }
    assert!(server.asked("nodes").len() <= 4);
}

/// A requested list waits inside of the watch.
#[tokio::test(start_paused = true)]
async fn events_are_delivered_while_a_requested_list_waits() {
    let mut first = streamed(&[node("a", "3", "z1")], "7");
    first.push(event("MODIFIED", &node("a", "8", "z2")));
    let again = streamed(&[node("a", "8", "z2")], "9");
    let server = Server::default().answers("nodes", [Reply::Stays(first), Reply::Stays(again)]);
    let mut nodes = Nodes::of(&server);
    let start = tokio::time::Instant::now();
    // The list that has begun by then does not count.
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes.watches.relist().ask(Kind::Node);
    assert_eq!(nodes.next().await, "all: a/z1");
    assert_eq!(nodes.next().await, "a/z2");
    assert!(start.elapsed() < Duration::from_secs(1), "the event waited");
    assert_eq!(nodes.next().await, "all: a/z2");
    assert!(start.elapsed() >= Duration::from_secs(5), "a list at once");
}
