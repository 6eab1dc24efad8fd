//! A controller's publisher, an API server, and changes around them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_controller::agent_registry::{Acked, AgentRegistry, StreamId};
use portolan_controller::cluster_state::Shared;
use portolan_controller::leading::Leading;
use portolan_controller::publish::{Publisher, UpdateSender};
use portolan_plan::PlanHash;
use portolan_planner::model::ObjectId;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{take_in, take_out};
use crate::server::Server;

/// Wall-clock time, `seconds` after the start.
pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

thread_local! {
    /// Wall-clock time of the start; each test has its own thread.
    static BEGINNING: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The current wall-clock time, which follows the paused clock.
pub(crate) fn wall() -> SystemTime {
    let now = Instant::now();
    let beginning = BEGINNING.get().unwrap_or(now);
    BEGINNING.set(Some(beginning));
    at(0) + (now - beginning)
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) shared: Shared,
    pub(crate) registry: Arc<AgentRegistry>,
    pub(crate) notes: UpdateSender,
    task: JoinHandle<()>,
}

impl World {
    /// A publisher of an empty cluster, without updates.
    pub(crate) fn new() -> Self {
        Self::with(Server::new(), Shared::default())
    }

    /// A publisher of an empty cluster that takes part in an election.
    pub(crate) fn candidate() -> (Self, watch::Sender<Option<Instant>>) {
        let (election, until) = watch::channel(None);
        let leading = Leading::elected(until);
        let world = Self::leading(Server::new(), Shared::default(), leading);
        (world, election)
    }

    /// Another controller of the same cluster, which never leads.
    pub(crate) fn follower(&self) -> Self {
        let (_, until) = watch::channel(None);
        let (server, shared) = (self.server.clone(), self.shared.clone());
        let world = Self::leading(server, shared, Leading::elected(until));
        world.notes.changed(&portolan_planner::Update::default());
        world
    }

    fn with(server: Server, shared: Shared) -> Self {
        Self::leading(server, shared, Leading::alone())
    }

    fn leading(server: Server, shared: Shared, leading: Leading) -> Self {
        wall();
        let registry = Arc::new(AgentRegistry::default());
        let (publisher, notes) =
            Publisher::with_clock(server.client(), shared.clone(), registry.clone(), wall);
        let publisher = publisher.while_leading(leading);
        let task = tokio::spawn(publisher.run(std::future::pending()));
        Self {
            server,
            shared,
            registry,
            notes,
            task,
        }
    }

    /// A publisher that has written all objects of a cluster once.
    pub(crate) async fn of(yaml: &str) -> Self {
        let world = Self::new();
        world.change(yaml);
        world.pass(20).await;
        world
    }

    /// Creates or changes objects.
    pub(crate) fn change(&self, yaml: &str) {
        let update = take_in(&self.shared, yaml);
        self.notes.changed(&update);
    }

    /// Removes objects.
    pub(crate) fn remove(&self, ids: impl IntoIterator<Item = ObjectId>) {
        let update = take_out(&self.shared, ids);
        self.notes.changed(&update);
    }

    /// Restarts the program with the same cluster.
    pub(crate) async fn restart(self) -> Self {
        self.task.abort();
        drop(self.task.await);
        let known = std::mem::take(&mut *self.shared.write());
        let shared = Shared::default();
        *shared.write() = known;
        let world = Self::with(self.server, shared);
        let known = world.shared.read();
        let update = portolan_planner::Update {
            services: known
                .planner
                .services()
                .iter()
                .map(|(id, planned)| (id.clone(), Some(planned.clone())))
                .collect(),
            nodes: known
                .planner
                .nodes()
                .iter()
                .map(|(name, node)| (name.clone(), Some(node.clone())))
                .collect(),
            ..portolan_planner::Update::default()
        };
        drop(known);
        world.notes.changed(&update);
        world
    }

    /// Advances the clock and runs everything that becomes due.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert!(!self.task.is_finished(), "the publisher ended");
    }

    /// The agent of a node connects and has received its plan.
    pub(crate) fn agent(&self, node: &str) -> StreamId {
        let now = wall();
        let stream = self.registry.connected(node, "0.1.0", None, now);
        self.registry.acked(node, applied(), now);
        stream.id
    }

    /// A stored plan.
    pub(crate) fn plan(&self, node: &str) -> Value {
        self.server.get("proxyplans", node).unwrap()
    }

    /// Conditions of a stored plan, as `Applied=True`.
    pub(crate) fn conditions(&self, node: &str) -> Vec<String> {
        let plan = self.plan(node);
        let conditions = plan["status"]["conditions"].as_array();
        let conditions = conditions.into_iter().flatten();
        let text = conditions.map(|c| {
            let word = |field: &str| c[field].as_str().unwrap().to_owned();
            format!("{}={}", word("type"), word("status"))
        });
        text.collect()
    }
}

/// An answer of an agent that has received its plan.
pub(crate) fn applied() -> Acked {
    Acked {
        applied: Some(PlanHash(1)),
        received: PlanHash(1),
        lag: Duration::from_millis(3),
        ..Acked::default()
    }
}
