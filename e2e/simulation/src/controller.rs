//! One run of a controller: its watches, engine, stream service and election.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_controller::agent_registry::AgentRegistry;
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{ClusterSource, Engine};
use portolan_controller::freshness::Freshness;
use portolan_controller::leading::Leading;
use portolan_controller::operator::lease::{Elector, LeaseName};
use portolan_controller::store::Store;
use portolan_controller::stream::in_process;
use portolan_controller::watch::{Answer, Watches};
use portolan_plan::PlanHash;
use portolan_planner::model::Kind;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::api::ApiServer;
use crate::network::PlanService;
use crate::objects::{NODES, node};
use crate::requests;
use crate::witness::Witness;

/// Maximum number of answers that are planned together, as in the engine.
const MAX_BATCH_ANSWERS: usize = 4096;

/// A running controller. Dropping it is a crash.
#[derive(Debug)]
pub(crate) struct Controller {
    store: Arc<Store>,
    registry: Arc<AgentRegistry>,
    leading: Leading,
    ending: watch::Sender<bool>,
    /// Dropping it releases the Lease.
    election_end: Option<oneshot::Sender<()>>,
    tasks: [AbortHandle; 3],
    _watches: Watches,
}

impl Controller {
    /// Starts the controller of a slot. `run` is different for each start. Planning takes `pause`.
    pub(crate) fn start(
        api: &Arc<ApiServer>,
        witness: &Witness,
        (slot, run): (usize, u64),
        pause: Duration,
    ) -> (Self, PlanService) {
        let client = requests::client(api, slot, run);
        let store = Arc::new(Store::default());
        let freshness = Arc::new(Freshness::watching(Kind::ALL, tokio::time::Instant::now()));
        let (watches, answers) = portolan_controller::watch::start(&client, &freshness);
        let relist = watches.relist();
        store.relist_by(move |kind| relist.ask(kind));
        let engine = Engine::new(Shared::default(), store.clone(), None);
        let engine = engine.with_freshness(freshness.clone());
        // Its own receiver is for its thread; here a task has the answers.
        let source = ClusterSource::new(engine, mpsc::channel(1).1);
        let planning = Planning {
            source,
            store: store.clone(),
            witness: witness.clone(),
            run,
            pause,
            version: 0,
        };
        let engine = tokio::spawn(planning.follow(answers)).abort_handle();
        let lease = LeaseName {
            namespace: "portolan".into(),
            name: "portolan".into(),
        };
        let (elector, leading) =
            Elector::new(client, lease, None, format!("controller-{slot}-{run}"));
        let (election_end, ended) = oneshot::channel::<()>();
        let election = tokio::spawn(elector.run(async { drop(ended.await) })).abort_handle();
        let (ending, ends) = watch::channel(false);
        let registry: Arc<AgentRegistry> = Arc::default();
        let (new_ages, ages) = watch::channel(());
        let aging = freshness.clone();
        let aging = tokio::spawn(async move { aging.follow(&new_ages).await });
        let served = in_process(store.clone(), registry.clone(), (freshness, ages), ends);
        let service = PlanService::new(served);
        let controller = Self {
            store,
            registry,
            leading,
            ending,
            election_end: Some(election_end),
            tasks: [engine, election, aging.abort_handle()],
            _watches: watches,
        };
        (controller, service)
    }

    /// Begins to end, as on SIGTERM: streams end, and the Lease is released.
    pub(crate) fn begin_to_end(&mut self) {
        self.ending.send_replace(true);
        self.election_end = None;
    }

    /// Whether it leads.
    pub(crate) fn leads(&self) -> bool {
        self.leading.now()
    }

    /// Whether the agent of a node has a stream to it.
    pub(crate) fn serves(&self, of: usize) -> bool {
        let delivery = self.registry.get(&node(of));
        delivery.is_some_and(|delivery| delivery.connected)
    }

    /// The hash of its plan of a node.
    pub(crate) fn hash(&self, of: usize) -> Option<PlanHash> {
        hash(&self.store, of)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The hash of a store's plan of a node.
pub(crate) fn hash(store: &Store, of: usize) -> Option<PlanHash> {
    store.plan(&node(of)).map(|plan| plan.hash())
}

/// The engine, as a task instead of a thread.
struct Planning {
    source: ClusterSource,
    store: Arc<Store>,
    witness: Witness,
    run: u64,
    pause: Duration,
    /// The last published version.
    version: u64,
}

impl Planning {
    async fn follow(mut self, mut answers: mpsc::Receiver<Answer>) {
        while let Some(first) = answers.recv().await {
            sleep(self.pause).await;
            let mut batch = vec![first];
            while batch.len() < MAX_BATCH_ANSWERS
                && let Ok(next) = answers.try_recv()
            {
                batch.push(next);
            }
            self.source.take_in(batch, Instant::now());
            self.report();
        }
    }

    fn report(&mut self) {
        let version = *self.store.changes().borrow();
        if version == self.version {
            return;
        }
        let first = (self.version == 0).then_some(self.run);
        self.version = version;
        let plans = (0..NODES).filter_map(|of| Some((of, hash(&self.store, of)?)));
        self.witness.published(plans, first);
    }
}
