//! Watches against a server with faults. The clock is paused: pauses and time limits cost nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod gate;
mod server;

use std::collections::VecDeque;
use std::time::Duration;

use portolan_controller::object::Found;
use portolan_controller::watch::{self, Answer, Kind, Mark, Seen, Watches};
use serde_json::{Value, json};
use server::{Reply, Server, end_of_list, event, node};
use tokio::sync::mpsc::Receiver;

/// Longer than any pause or limit of a watch.
const LONG: Duration = Duration::from_secs(600);

/// What watches see, one after the other.
struct Sight {
    answers: Receiver<Answer>,
    seen: VecDeque<Seen>,
}

impl Sight {
    fn of(answers: Receiver<Answer>) -> Self {
        let seen = VecDeque::new();
        Self { answers, seen }
    }

    async fn next(&mut self) -> Option<Seen> {
        while self.seen.is_empty() {
            self.seen.extend(self.answers.recv().await?);
        }
        self.seen.pop_front()
    }
}

/// What the watch of Nodes sees.
struct Nodes {
    watches: Watches,
    seen: Sight,
}

impl Nodes {
    fn of(server: &Server) -> Self {
        let (watches, answers) = watch::start(&server.client());
        let seen = Sight::of(answers);
        Self { watches, seen }
    }

    /// How far Nodes were read.
    async fn mark(&mut self) -> Mark {
        loop {
            let seen = tokio::time::timeout(LONG, self.seen.next()).await;
            if let Some(Seen::Read(Kind::Node, mark)) = seen.expect("nothing came") {
                return mark;
            }
        }
    }

    /// The next thing seen of Nodes, in words.
    async fn next(&mut self) -> String {
        loop {
            let seen = tokio::time::timeout(LONG, self.seen.next()).await;
            let words = match seen.expect("nothing came").expect("the watches ended") {
                Seen::All {
                    kind: Kind::Node,
                    objects,
                    unreadable,
                } => {
                    let names: Vec<_> = objects.iter().map(words).collect();
                    let broken: Vec<_> =
                        unreadable.iter().map(|(id, _)| format!("!{id}")).collect();
                    format!("all: {}", [names, broken].concat().join(" "))
                }
                Seen::Present(found) if matches!(*found, Found::Node(_)) => words(&found),
                Seen::Unreadable(id, problem) if Kind::of(&id) == Kind::Node => {
                    format!("!{id}: {problem}")
                }
                Seen::Gone(id) if Kind::of(&id) == Kind::Node => format!("-{id}"),
                _ => continue,
            };
            return words;
        }
    }
}

/// What is seen next of objects.
async fn objects(seen: &mut Sight) -> Option<Seen> {
    loop {
        match seen.next().await? {
            Seen::Read(..) => {}
            seen => return Some(seen),
        }
    }
}

fn words(found: &Found) -> String {
    match found {
        Found::Node(node) => format!("{}/{}", node.name, node.zone.as_deref().unwrap_or("-")),
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
    // Without a version the answer is a consistent read, not what a cache held once.
    assert!(asked[0].ends_with("&resourceVersion="), "{}", asked[0]);
}

/// With an object that is planned before it is known how far it goes, an agent would have a plan that a controller
/// which lags behind takes back.
#[tokio::test(start_paused = true)]
async fn whatever_is_seen_comes_with_how_far_it_goes() {
    let mut events = streamed(&[node("a", "3", "z1")], "7");
    events.push(event("MODIFIED", &node("a", "8", "z3")));
    events.push(event("DELETED", &node("a", "9", "z2")));
    let server = Server::default().answers("nodes", [Reply::Stays(events)]);
    let (_watches, mut answers) = watch::start(&server.client());
    let mut newest = Vec::new();
    while newest.len() < 3 {
        let answer = tokio::time::timeout(LONG, answers.recv()).await;
        let answer = answer.expect("nothing came").expect("the watches ended");
        let [.., object, Seen::Read(kind, mark)] = &answer[..] else {
            panic!("{answer:?} does not say how far it goes");
        };
        assert!(!matches!(object, Seen::Read(..) | Seen::Came { .. }));
        if *kind == Kind::Node {
            newest.push(mark.newest);
        }
    }
    assert_eq!(newest, [7, 8, 9]);
}

/// A controller that an agent knows more than lists again; who was asked meanwhile goes on from there.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_asked_for_is_read_anew_and_tells_how_far_it_goes() {
    let server = Server::default().answers(
        "nodes",
        [
            Reply::Stays(streamed(&[node("a", "3", "z1")], "7")),
            Reply::Stays(streamed(&[node("a", "12", "z2")], "15")),
        ],
    );
    let mut nodes = Nodes::of(&server);
    assert_eq!(nodes.next().await, "all: a/z1");
    let first = nodes.mark().await;
    nodes.watches.relist().ask(Kind::Node);
    assert_eq!(nodes.next().await, "all: a/z2");
    let second = nodes.mark().await;
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
async fn a_server_that_ignores_the_wish_for_a_stream_is_read_page_by_page() {
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
async fn what_is_listed_anew_replaces_what_was_known() {
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
async fn a_server_that_was_away_is_read_anew() {
    // The store may have been restored to an older state meanwhile, so no version counts.
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
async fn what_is_deleted_while_it_is_listed_is_gone() {
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
async fn an_event_that_cannot_be_read_is_not_asked_for_for_ever() {
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
    let told = nodes.next().await;
    assert!(told.starts_with("!Node bad: spec.podCIDRs: "), "{told}");
    assert_eq!(nodes.next().await, "b/z1");
}

#[tokio::test(start_paused = true)]
async fn headless_services_and_their_slices_are_not_asked_for() {
    let server = Server::default();
    let (_watches, answers) = watch::start(&server.client());
    let mut seen = Sight::of(answers);
    for _ in Kind::ALL {
        assert!(matches!(objects(&mut seen).await, Some(Seen::All { .. })));
    }
    // S-4, S-3: the selectors, as a URL spells them.
    let services = server.asked("services").concat();
    assert!(
        services.contains("fieldSelector=spec.clusterIP%21%3DNone"),
        "{services}"
    );
    let slices = server.asked("endpointslices").concat();
    let headless = "labelSelector=%21service.kubernetes.io%2Fheadless";
    assert!(slices.contains(headless), "{slices}");
}

/// However often it is asked, and at once when somebody wants to know.
#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_does_not_know_is_asked_for_again_and_stays_empty() {
    let unknown = || Reply::Refusal(404, "the server could not find the requested resource");
    let server = Server::default().answers("servicecidrs", [unknown(), unknown(), unknown()]);
    let (watches, answers) = watch::start(&server.client());
    let mut seen = Sight::of(answers);
    let mut lists = Vec::new();
    while lists.len() < 3 {
        let next = tokio::time::timeout(LONG, seen.next()).await;
        if let Some(Seen::Read(Kind::ServiceCidr, mark)) = next.expect("it is asked for again") {
            lists.push(mark.lists);
            watches.relist().ask(Kind::ServiceCidr);
        }
    }
    assert_eq!(lists, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_service_cidrs_has_none() {
    let unknown = Reply::Refusal(404, "the server could not find the requested resource");
    let server = Server::default().answers("servicecidrs", [unknown]);
    let (_watches, answers) = watch::start(&server.client());
    let mut seen = Sight::of(answers);
    let mut kinds = Vec::new();
    for _ in Kind::ALL {
        if let Some(Seen::All { kind, objects, .. }) = objects(&mut seen).await {
            assert!(objects.is_empty());
            kinds.push(kind);
        }
    }
    kinds.sort();
    assert_eq!(kinds, Kind::ALL);
}
