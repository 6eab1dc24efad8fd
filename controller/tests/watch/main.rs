//! Watches with a faulty server. The clock is paused, so pauses and timeouts cost nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod fresh;
mod gate;
mod relist;
mod server;

use std::sync::Arc;
use std::time::Duration;

use portolan_controller::watch::{self, Answer, Mark, ObjectUpdate, Watches};
use portolan_planner::model::{Kind, Object};
use serde_json::{Value, json};
use server::{Reply, Server, end_of_list, event, node};
use tokio::sync::mpsc::Receiver;

/// Longer than any pause or timeout of a watch.
const LONG: Duration = Duration::from_secs(600);

/// The next event of any watch; `None` after their end.
async fn next(answers: &mut Receiver<Answer>) -> Option<Answer> {
    let answer = tokio::time::timeout(LONG, answers.recv()).await;
    answer.expect("no answer in ten minutes")
}

/// The next update of any kind; `None` after the end of the watches.
async fn next_update(answers: &mut Receiver<Answer>) -> Option<(Kind, ObjectUpdate)> {
    loop {
        let answer = next(answers).await?;
        if let Some(update) = answer.update {
            return Some((answer.kind, update));
        }
    }
}

/// The events of the watch of Nodes.
struct Nodes {
    watches: Watches,
    answers: Receiver<Answer>,
    /// The watermark of Nodes.
    mark: Mark,
}

impl Nodes {
    fn of(server: &Server) -> Self {
        let (watches, answers) = watch::start(&server.client(), &Arc::default());
        Self {
            watches,
            answers,
            mark: Mark::default(),
        }
    }

    /// The next event about Nodes.
    async fn answer(&mut self) -> Answer {
        loop {
            let answer = next(&mut self.answers).await.expect("the watches ended");
            if answer.kind == Kind::Node {
                self.mark = answer.mark;
                return answer;
            }
        }
    }

    /// The next update of Nodes, as text.
    async fn next(&mut self) -> String {
        loop {
            return match self.answer().await.update {
                None => continue,
                Some(ObjectUpdate::All {
                    objects,
                    unreadable,
                }) => {
                    let names: Vec<_> = objects.iter().map(words).collect();
                    let broken: Vec<_> =
                        unreadable.iter().map(|(id, _)| format!("!{id}")).collect();
                    format!("all: {}", [names, broken].concat().join(" "))
                }
                Some(ObjectUpdate::Present(object)) => words(&object),
                Some(ObjectUpdate::Unreadable(id, problem)) => format!("!{id}: {problem}"),
                Some(ObjectUpdate::Deleted(id)) => format!("-{id}"),
            };
        }
    }
}

fn words(object: &Object) -> String {
    match object {
        Object::Node(node) => format!("{}/{}", node.name, node.zone.as_deref().unwrap_or("-")),
        other => other.id().to_string(),
    }
}

fn page(items: &[Value], version: &str, next: &str) -> Reply {
    Reply::Page(json!({
        "kind": "NodeList", "apiVersion": "v1", "items": items,
        "metadata": {"resourceVersion": version, "continue": next},
    }))
}

fn streamed(items: &[Value], version: &str) -> Vec<String> {
    let items = items.iter().map(|item| event("ADDED", item));
    items.chain([end_of_list(version)]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_goes_on_with_the_changes() {
    let mut events = streamed(&[node("a", "3", "z1"), node("b", "4", "z2")], "7");
    events.push(event("MODIFIED", &node("a", "8", "z3")));
    events.push(event("DELETED", &node("b", "9", "z2")));
    let server = Server::default().answers("nodes", [Reply::Stays(events)]);
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1 b/z2");
    assert_eq!(nodes.next().await, "a/z3");
    assert_eq!(nodes.next().await, "-Node b");
    let asked = server.asked("nodes");
    assert_eq!(asked.len(), 1, "{asked:?}");
    // A list without a resourceVersion is a consistent read, not a cached one.
    assert!(asked[0].ends_with("&resourceVersion="), "{}", asked[0]);
}

/// If an object were planned before its watermark is known, an agent could get a plan that a lagging controller would
/// later revert.
#[tokio::test(start_paused = true)]
async fn every_update_has_the_watermark_of_its_kind() {
    let mut events = streamed(&[node("a", "3", "z1")], "7");
    events.push(event("MODIFIED", &node("a", "8", "z3")));
    events.push(event("DELETED", &node("a", "9", "z2")));
    let server = Server::default().answers("nodes", [Reply::Stays(events)]);
    let mut nodes = Nodes::of(&server);
    let mut newest = Vec::new();
    for _ in 0..3 {
        let update = nodes.next().await;
        newest.push((update, nodes.mark.newest));
    }
    let expected = [("all: a/z1", 7), ("a/z3", 8), ("-Node a", 9)];
    assert_eq!(
        newest,
        expected.map(|(update, mark)| (update.to_owned(), mark))
    );
}

/// If an agent has a newer plan, the controller lists the kind again; the watch then continues from the new
/// list.
#[tokio::test(start_paused = true)]
async fn a_requested_list_is_read_again_and_reports_its_watermark() {
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Stays(streamed(&[node("a", "3", "z1")], "7")),
            Reply::Stays(streamed(&[node("a", "12", "z2")], "15")),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    let first = nodes.mark;
    // The list that has begun by then does not count.
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes.watches.relist().ask(Kind::Node);
    assert_eq!(nodes.next().await, "all: a/z2");
    let second = nodes.mark;
    assert_eq!((first.newest, first.lists), (7, 1));
    assert_eq!((second.newest, second.lists), (15, 2));
    assert_ne!(first.sum, second.sum);
    let asked = server.asked("nodes");
    assert!(
        asked[1].ends_with("&resourceVersion="),
        "a consistent read: {}",
        asked[1]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streamed_lists_is_read_page_by_page() {
    let not_allowed =
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    let too_old = "the required storage feature RequestWatchProgress is disabled";
    for (code, refusal) in [(422, not_allowed), (500, too_old)] {
        let server = Server::default().answers(
            "nodes",
            [
                Reply::Refusal(code, refusal),
                page(&[node("a", "3", "z1")], "7", "more"),
                page(&[node("b", "4", "z2")], "7", ""),
                Reply::Stays(vec![event("ADDED", &node("c", "8", "z1"))]),
            ],
        );
        let mut nodes = Nodes::of(&server);
        assert_eq!(nodes.next().await, "all: a/z1 b/z2");
        assert_eq!(nodes.next().await, "c/z1");
        let asked = server.asked("nodes");
        assert!(asked[2].contains("continue=more"), "{asked:?}");
        assert!(asked[3].contains("resourceVersion=7"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_request_for_a_stream_is_read_page_by_page() {
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Stays(vec![event("ADDED", &node("a", "3", "z1"))]),
            page(&[node("a", "3", "z1")], "7", ""),
        ],
    );
    assert_eq!(Nodes::of(&server).next().await, "all: a/z1");
}

#[tokio::test(start_paused = true)]
async fn a_new_list_replaces_the_known_objects() {
    let status = json!({
        "kind": "Status", "code": 410, "message": "too old resource version", "reason": "Expired",
    });
    let gone = event("ERROR", &status);
    let mut first = streamed(&[node("a", "3", "z1")], "7");
    first.push(gone);
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Stays(first),
            Reply::Stays(streamed(&[node("b", "20", "z1")], "21")),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    assert_eq!(nodes.next().await, "all: b/z1");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let mut first = streamed(&[node("a", "3", "z1")], "7");
    first.push(event("MODIFIED", &node("a", "9", "z2")));
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Ends(first),
            Reply::Stays(vec![event("ADDED", &node("b", "11", "z1"))]),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    assert_eq!(nodes.next().await, "a/z2");
    assert_eq!(nodes.next().await, "b/z1");
    assert!(server.asked("nodes")[1].contains("resourceVersion=9"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_where_it_was() {
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Stays(streamed(&[node("a", "3", "z1")], "7")),
            Reply::Stays(vec![event("DELETED", &node("a", "8", "z1"))]),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    assert_eq!(nodes.next().await, "-Node a");
    assert!(server.asked("nodes")[1].contains("resourceVersion=7"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_is_listed_again() {
    // The store may have been restored to an older state meanwhile, so no resourceVersion is reused.
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Broken,
            Reply::Refusal(503, "starting"),
            Reply::Nothing,
            Reply::Ends(streamed(&[node("a", "300", "z1")], "700")),
            Reply::Broken,
            Reply::Stays(streamed(&[node("b", "3", "z1")], "7")),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    assert_eq!(nodes.next().await, "all: b/z1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_within_the_stream_is_read_page_by_page() {
    let status = json!({"kind": "Status", "code": 500, "message": "too old a store"});
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Ends(vec![event("ERROR", &status)]),
            page(&[node("a", "3", "z1")], "7", ""),
        ],
    );
    assert_eq!(Nodes::of(&server).next().await, "all: a/z1");
    let asked = server.asked("nodes");
    assert!(asked[1].contains("limit="), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_during_a_list_is_gone() {
    let events = vec![
        event("ADDED", &node("a", "3", "z1")),
        event("ADDED", &node("b", "4", "z1")),
        event("DELETED", &node("a", "5", "z1")),
        end_of_list("7"),
    ];
    let server = Server::default().answers("nodes", [Reply::Stays(events)]);
    assert_eq!(Nodes::of(&server).next().await, "all: b/z1");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_event_is_not_requested_forever() {
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Ends(streamed(&[node("a", "3", "z1")], "7")),
            Reply::Stays(vec!["{ this is no event".into()]),
            Reply::Stays(streamed(&[node("b", "9", "z1")], "9")),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    assert_eq!(nodes.next().await, "all: b/z1");
}

#[tokio::test(start_paused = true)]
async fn half_a_list_is_no_list() {
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Ends(vec![event("ADDED", &node("a", "3", "z1"))]),
            page(&[node("a", "3", "z1"), node("b", "4", "z1")], "7", ""),
        ],
    );
    assert_eq!(Nodes::of(&server).next().await, "all: a/z1 b/z1");
}

#[tokio::test(start_paused = true)]
async fn a_broken_object_is_named_and_stops_nothing() {
    let mut broken = node("bad", "5", "z1");
    broken["spec"] = json!({"podCIDRs": "all of them"});
    let mut events = streamed(&[node("a", "3", "z1"), broken.clone()], "7");
    broken["metadata"]["resourceVersion"] = "8".into();
    events.push(event("MODIFIED", &broken));
    events.push(event("ADDED", &json!({"metadata": {}})));
    events.push(event("ADDED", &node("b", "9", "z1")));
    let server = Server::default().answers("nodes", [Reply::Stays(events)]);
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1 !Node bad");
    let reported = nodes.next().await;
    assert!(
        reported.starts_with("!Node bad: spec.podCIDRs: "),
        "{reported}"
    );
    assert_eq!(nodes.next().await, "b/z1");
}

#[tokio::test(start_paused = true)]
async fn headless_services_and_their_slices_are_not_asked_for() {
    let server = Server::default();
    let (_watches, mut answers) = watch::start(&server.client(), &Arc::default());
    for _ in Kind::ALL {
        let update = next_update(&mut answers).await;
        assert!(
            matches!(update, Some((_, ObjectUpdate::All { .. }))),
            "{update:?}"
        );
    }
    // S-4, S-3: the selectors, URL-encoded.
    let services = server.asked("services").concat();
    assert!(
        services.contains("fieldSelector=spec.clusterIP%21%3DNone"),
        "{services}"
    );
    let slices = server.asked("endpointslices").concat();
    let headless = "labelSelector=%21service.kubernetes.io%2Fheadless";
    assert!(slices.contains(headless), "{slices}");
}

/// For any number of requests; the wait is shorter if one is requested.
#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_does_not_know_is_asked_for_again_and_stays_empty() {
    let unknown = || Reply::Refusal(404, "the server could not find the requested resource");
    let server = Server::default().answers("servicecidrs", [unknown(), unknown(), unknown()]);
    let (watches, mut answers) = watch::start(&server.client(), &Arc::default());
    let mut lists = Vec::new();
    while lists.len() < 3 {
        let answer = next(&mut answers).await.expect("the watches ended");
        if answer.kind == Kind::ServiceCidr {
            lists.push(answer.mark.lists);
            watches.relist().ask(Kind::ServiceCidr);
        }
    }
    assert_eq!(lists, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_service_cidrs_has_none() {
    let unknown = Reply::Refusal(404, "the server could not find the requested resource");
    let server = Server::default().answers("servicecidrs", [unknown]);
    let (_watches, mut answers) = watch::start(&server.client(), &Arc::default());
    let mut kinds = Vec::new();
    for _ in Kind::ALL {
        if let Some((kind, ObjectUpdate::All { objects, .. })) = next_update(&mut answers).await {
            assert!(objects.is_empty());
            kinds.push(kind);
        }
    }
    kinds.sort();
    assert_eq!(kinds, Kind::ALL);
}
