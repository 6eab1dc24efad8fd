//! What counts as a sign of the API server (S-231).

use std::sync::Arc;
use std::time::Duration;

use portolan_controller::freshness::{Freshness, Stale};
use portolan_controller::watch::{self, Answer, Watches};
use portolan_planner::model::Kind;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep};

use super::server::{Reply, Server, node};
use super::streamed;

const SECOND: Duration = Duration::from_secs(1);

/// Watches of all kinds, and the age of their objects.
struct Fresh {
    freshness: Arc<Freshness>,
    // Both are kept: watches end without them.
    _watches: Watches,
    _answers: Receiver<Answer>,
}

impl Fresh {
    fn of(server: &Server) -> Self {
        let freshness = Arc::new(Freshness::watching(Kind::ALL, Instant::now()));
        let (watches, answers) = watch::start(&server.client(), &freshness);
        Self {
            freshness,
            _watches: watches,
            _answers: answers,
        }
    }

    fn stale_kind(&self) -> Option<Kind> {
        match self.freshness.stale()? {
            Stale::ApiServer { kind, .. } => Some(kind),
            engine @ Stale::Engine { .. } => panic!("{engine}"),
        }
    }

    /// Waits, and fails if plans are outdated at any second of that time.
    async fn stays_current(&self, seconds: u64) {
        for second in 1..=seconds {
            sleep(SECOND).await;
            assert_eq!(self.stale_kind(), None, "after {second} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_about_which_the_server_sends_nothing_is_outdated_until_it_does_again() {
    let list = Reply::Stays(streamed(&[node("a", "3", "z1")], "7"));
    let server = Server::default().answers("nodes", [list, Reply::Nothing, Reply::Nothing]);
    let fresh = Fresh::of(&server);
    fresh.stays_current(89).await;
    sleep(SECOND * 2).await;
    assert_eq!(fresh.stale_kind(), Some(Kind::Node));
    // The two requests without an answer last for 60 s each, from the 75th second on.
    sleep(SECOND * 100).await;
    assert_eq!(fresh.stale_kind(), Some(Kind::Node));
    sleep(SECOND * 20).await;
    assert_eq!(fresh.stale_kind(), None);
}

#[tokio::test(start_paused = true)]
async fn a_healthy_watch_without_any_event_is_never_outdated() {
    let server = Server::default();
    Fresh::of(&server).stays_current(3600).await;
    let asked = server.asked("nodes").len();
    assert!(asked <= 3600 / 75 + 1, "{asked} requests");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_no_sign_of_the_server() {
    let errors = (0..100).map(|_| Reply::Refusal(503, "starting"));
    let server = Server::default().answers("services", errors);
    let fresh = Fresh::of(&server);
    sleep(SECOND * 91).await;
    assert_eq!(fresh.stale_kind(), Some(Kind::Service));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_an_optional_kind_is_there() {
    let unknown = (0..100).map(|_| Reply::Refusal(404, "no such resource"));
    let server = Server::default().answers("servicecidrs", unknown);
    Fresh::of(&server).stays_current(3600).await;
}
