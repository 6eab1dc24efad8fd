//! Two controllers, and an agent that moves to the other one when its own is outdated (S-231).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_agent::plan_watch::{PlanWatch, Taken, Woken};
use portolan_agent::programmer::Applied;
use portolan_agent::receive::{
    Address, Addresses, Controllers, Link, NetworkDialer, Receiver, Trust,
};
use portolan_agent::watermark::Remembered;
use portolan_controller::agent_registry::AgentRegistry;
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{Engine, ManifestSource};
use portolan_controller::freshness::Freshness;
use portolan_controller::store::Store;
use portolan_controller::stream::{Listen, serve};
use portolan_plan::PlanHash;
use tokio::sync::watch;

use super::manifests::{NODES, WEB};

/// Timeout of every wait, longer than any step takes.
const LIMIT: Duration = Duration::from_secs(20);
const NODE: &str = "node-a";

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Lets this time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A controller that plans when the test requests it.
struct Replica {
    socket: PathBuf,
    freshness: Arc<Freshness>,
    store: Arc<Store>,
    registry: Arc<AgentRegistry>,
    engine: ManifestSource,
}

impl Replica {
    async fn start(folder: &Path, name: &str) -> Self {
        let socket = folder.join(name);
        let (store, registry): (Arc<Store>, Arc<AgentRegistry>) = Default::default();
        let freshness: Arc<Freshness> = Arc::default();
        let (listener, _) = Listen::Unix(socket.clone()).open_insecure().await.unwrap();
        let listener = listener.with_freshness(freshness.clone());
        let never = std::future::pending();
        tokio::spawn(serve(listener, store.clone(), registry.clone(), never));
        let engine = Engine::new(Shared::default(), store.clone(), None);
        let engine = ManifestSource::new(engine, folder.join("manifests"));
        let mut replica = Self {
            socket,
            freshness,
            store,
            registry,
            engine,
        };
        replica.publish();
        replica
    }

    fn publish(&mut self) {
        let (before, started) = (*self.store.changes().borrow(), Instant::now());
        while *self.store.changes().borrow() == before {
            assert!(started.elapsed() < LIMIT, "nothing was published");
            self.engine.look();
        }
    }

    fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    fn hash(&self) -> Option<PlanHash> {
        Some(self.store.plan(NODE)?.hash())
    }

    fn has_stream(&self) -> bool {
        let delivery = self.registry.get(NODE);
        delivery.is_some_and(|delivery| delivery.connected)
    }
}

/// An agent without a kernel.
struct Agent {
    plans: Arc<PlanWatch>,
    link: watch::Receiver<Link>,
}

impl Agent {
    fn start(controllers: Controllers) -> Self {
        let plans = Arc::new(PlanWatch::default());
        let (done, applied) = watch::channel(Applied::default());
        let (drains, draining) = watch::channel(BTreeSet::new());
        let sender = watch::Sender::<Link>::default();
        let link = sender.subscribe();
        let receiver = Receiver {
            node: NODE.into(),
            version: "test".into(),
            controllers,
            dialer: Arc::new(NetworkDialer),
            plans: plans.clone(),
            remembered: Remembered::default(),
            applied,
            draining,
            health: Arc::default(),
            schedulers: Vec::new,
            link: sender,
        };
        tokio::spawn(receiver.run());
        let taking = plans.clone();
        std::thread::spawn(move || {
            apply_all(&taking, &done);
            // Nothing drains, but the receiver would see a closed channel.
            drop(drains);
        });
        Self { plans, link }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.plans.stop();
    }
}

fn apply_all(plans: &PlanWatch, done: &watch::Sender<Applied>) {
    loop {
        match plans.wait(Duration::from_secs(3600)) {
            Woken::Stopped => return,
            Woken::TimedOut => {}
            Woken::Disturbed => drop(plans.take_disturbance()),
            Woken::Changed => {
                let Taken {
                    generation, hash, ..
                } = plans.take();
                done.send_replace(Applied {
                    generation,
                    hash,
                    ..Applied::default()
                });
            }
        }
    }
}

#[tokio::test]
async fn an_agent_of_an_outdated_controller_moves_and_has_a_stream_at_every_moment() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    std::fs::write(manifests.join("nodes.yaml"), NODES).unwrap();
    let mut own = Replica::start(folder.path(), "one.sock").await;
    let mut other = Replica::start(folder.path(), "two.sock").await;
    let addresses = Addresses::Listed(vec![own.address(), other.address()]);
    let controllers = Controllers::new(addresses, Trust::Insecure);
    if controllers.choose(NODE, 0).unwrap().address != own.address() {
        std::mem::swap(&mut own, &mut other);
    }
    let agent = Agent::start(controllers);
    until("its first plan", || agent.plans.hash() == own.hash()).await;
    assert!(own.has_stream() && !other.has_stream());

    // The planner hangs.
    let turn = own.freshness.turn();
    pass(Duration::from_secs(200)).await;
    let link = || agent.link.borrow().clone();
    until("the report of its age", || link().outdated.is_some()).await;
    // Answers to keepalive pings arrive before further time passes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    pass(Duration::from_secs(20)).await;
    until("a move", || {
        assert!(own.has_stream() || other.has_stream(), "no stream");
        other.has_stream() && !own.has_stream()
    })
    .await;
    until("a current controller", || link().is_current()).await;
    assert_eq!((link().streams, link().trouble), (2, None));
    std::fs::write(manifests.join("web.yaml"), WEB).unwrap();
    other.publish();
    until("a plan of the other controller", || {
        agent.plans.hash() == other.hash() && agent.plans.hash() != own.hash()
    })
    .await;
    drop(turn);
}
