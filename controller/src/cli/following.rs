//! The parts of a running controller besides its server: the engine, its source, and the tasks that write objects.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{join_all, select_all};
use kube::Client;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tracing::warn;

use super::feed::Feed;
use crate::agent_registry::AgentRegistry;
use crate::auth::Named;
use crate::engine::{ClusterSource, Engine, ManifestSource, Notification};
use crate::events::Events;
use crate::leading::Leading;
use crate::operator::agents::{Agents, Operator, Watched};
use crate::operator::guard::Guard;
use crate::operator::lease::{Elector, LeaseName};
use crate::operator::rollout::Rollout;
use crate::publish::Publisher;
use crate::store::Store;
use crate::watch::{self, Watches};

/// Time that writers have to end before the lease is released.
const WRITERS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// The engine on its thread, and its source.
pub(super) struct Following {
    engine: JoinHandle<()>,
    /// Dropping either ends the engine.
    watches: Option<Watches>,
    stop: SyncSender<()>,
    writers: Writers,
    election: Option<Election>,
}

/// Tasks that write objects, each with its name for errors. Empty without a cluster. Each has a thread of its own: they
/// count the whole cluster, and wait for the engine while it plans, which must not delay streams, probes and the lease.
#[derive(Default)]
struct Writers {
    tasks: Vec<(&'static str, JoinHandle<()>)>,
    /// Dropping it ends the tasks.
    stop: tokio::sync::watch::Sender<()>,
}

impl Writers {
    fn start(&mut self, does: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let (runtime, mut stopped) = (Handle::current(), self.stop.subscribe());
        let task = async move {
            tokio::select! {
                () = task => {}
                _ = stopped.changed() => {}
            }
        };
        // Connections that it opens are served by the workers.
        let thread = spawn_blocking(move || runtime.block_on(task));
        self.tasks.push((does, thread));
    }

    /// Waits until a task ends unexpectedly and returns its name.
    async fn ended(&mut self) -> &'static str {
        if self.tasks.is_empty() {
            return std::future::pending().await;
        }
        let (_, index, _) = select_all(self.tasks.iter_mut().map(|(_, task)| task)).await;
        self.tasks.remove(index).0
    }

    /// Ends all tasks. Returns false if one of them does not end in time.
    async fn end(self) -> bool {
        let Self { tasks, stop } = self;
        drop(stop);
        let all = join_all(tasks.into_iter().map(|(_, task)| task));
        timeout(WRITERS_END_TIMEOUT, all).await.is_ok()
    }
}

impl Following {
    pub(super) fn start(
        feed: Feed,
        engine: Engine,
        lease: Option<(LeaseName, String)>,
        agents: Option<(Agents, u16)>,
        store: &Arc<Store>,
        registry: &Arc<AgentRegistry>,
        own: &str,
    ) -> Self {
        match feed {
            Feed::Manifests(path) => {
                let (stop, stopped) = std::sync::mpsc::sync_channel(1);
                let source = ManifestSource::new(engine, path);
                Self {
                    engine: spawn_blocking(move || source.follow(&stopped)),
                    watches: None,
                    stop,
                    writers: Writers::default(),
                    election: None,
                }
            }
            Feed::Cluster(client) => {
                let (watches, seen) = watch::start(&client, &engine.freshness());
                let relist = watches.relist();
                store.relist_by(move |kind| relist.ask(kind));
                let owner = agents.as_ref().map(|(agents, _)| agents.template.clone());
                let (election, leading) = elect(&client, lease, owner);
                let (events, writer) = Events::new(client.clone(), own);
                // Ends when the last `Events` is dropped.
                drop(tokio::spawn(writer.run()));
                let cluster = Cluster {
                    client,
                    leading,
                    events,
                };
                let (writers, engine) = cluster.write(engine, agents, registry);
                let source = ClusterSource::new(engine, seen);
                Self {
                    engine: spawn_blocking(move || source.follow()),
                    watches: Some(watches),
                    // Unused: dropping the watches ends the engine.
                    stop: std::sync::mpsc::sync_channel(1).0,
                    writers,
                    election,
                }
            }
        }
    }

    /// Waits until a part ends unexpectedly, which is a defect.
    pub(super) async fn broken(&mut self) -> anyhow::Error {
        let watches = async {
            match &mut self.watches {
                Some(watches) => watches.ended().await,
                None => std::future::pending().await,
            }
        };
        let part = tokio::select! {
            _ = &mut self.engine => "planning",
            writer = self.writers.ended() => writer,
            () = watches => "watching",
        };
        anyhow::anyhow!(
            "{part} stopped unexpectedly; the log lines above give the cause, please report them"
        )
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        let Self {
            engine,
            watches,
            stop,
            writers,
            election,
        } = self;
        let ended = writers.end().await;
        match election {
            Some((election, end)) if ended => {
                drop(end);
                election.await.context("end the election")?;
            }
            Some((election, _)) => {
                warn!(
                    "a task that writes objects does not end: not releasing the Lease, so another controller leads \
                     when it expires; please report this"
                );
                election.abort();
            }
            None => {}
        }
        drop((watches, stop));
        if engine.is_finished() {
            return Ok(());
        }
        engine.await.context("end the engine")
    }
}

/// The task that takes part in the election. When the sender is dropped, it releases the lease and ends.
type Election = (JoinHandle<()>, oneshot::Sender<()>);

/// Takes part in an election if there is a lease.
fn elect(
    client: &Client,
    lease: Option<(LeaseName, String)>,
    owner: Option<Named>,
) -> (Option<Election>, Leading) {
    let Some((lease, name)) = lease else {
        return (None, Leading::alone());
    };
    let (end, ended) = oneshot::channel::<()>();
    let (elector, leading) = Elector::new(client.clone(), lease, owner, name);
    let election = elector.run(async { drop(ended.await) });
    (Some((tokio::spawn(election), end)), leading)
}

/// The cluster to which objects are written.
struct Cluster {
    client: Client,
    leading: Leading,
    events: Events,
}

impl Cluster {
    /// Starts all tasks that write objects. The engine notifies the publisher of each planned update.
    fn write(
        self,
        engine: Engine,
        agents: Option<(Agents, u16)>,
        registry: &Arc<AgentRegistry>,
    ) -> (Writers, Engine) {
        let Self {
            client,
            leading,
            events,
        } = self;
        let known = engine.known();
        let mut writers = Writers::default();
        let kept = agents.as_ref().map(|(agents, _)| agents.clone());
        let watched = Arc::new(Watched::new(client.clone(), kept));
        let watching = (watched.clone(), leading.clone());
        writers.start("watching objects of the leader", async move {
            let (watched, leading) = watching;
            Box::pin(watched.run(leading)).await;
        });
        let rollout = Rollout::new(
            client.clone(),
            known.clone(),
            watched.clone(),
            agents.as_ref().map(|(agents, _)| agents),
            events.clone(),
        );
        writers.start("rolling out", rollout.run(leading.clone()));
        let guard = Guard::new(
            client.clone(),
            known.clone(),
            watched.clone(),
            events.clone(),
        );
        writers.start("guarding endpoints", guard.run(leading.clone()));
        let (publisher, updates) = Publisher::new(client.clone(), known.clone(), registry.clone());
        let publisher = publisher.with_events(events.clone());
        let publisher = publisher.while_leading(leading.clone());
        writers.start("publishing", publisher.run(std::future::pending()));
        if let Some((agents, port)) = agents {
            let operator = Operator::new(client, agents, port, known, watched, events);
            writers.start("managing agents", operator.run(leading));
        }
        let engine = engine.with_listener(Box::new(move |notification| match notification {
            Notification::Planned(update) => updates.changed(update),
            Notification::Readable(id) => updates.read_again(id),
        }));
        (writers, engine)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    /// There is one worker here, which a writer that computes or waits for a lock must not use.
    #[tokio::test]
    async fn a_writer_delays_no_worker_and_has_ended_before_the_lease_is_released() {
        let mut writers = Writers::default();
        let (end, ended) = sync_channel::<()>(0);
        let (report, reported) = oneshot::channel();
        let (lives, mut life) = oneshot::channel::<()>();
        writers.start("computing", async move {
            let _lives = lives;
            report
                .send(ended.recv_timeout(Duration::from_secs(5)))
                .unwrap();
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        drop(end);
        let waited = reported.await.unwrap();
        assert_eq!(waited, Err(RecvTimeoutError::Disconnected));
        assert_eq!(life.try_recv(), Err(TryRecvError::Empty));
        assert!(writers.end().await);
        assert_eq!(life.try_recv(), Err(TryRecvError::Closed));
    }
}
