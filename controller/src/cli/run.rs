//! `portolan-controller run`: connects engine, store and server.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::info;

use super::agents::AgentsArguments;
use super::feed::Feed;
use super::following::Following;
use super::open::{Opened, open};
use super::telemetry::{Telemetry, TelemetryArguments};
use super::trust::TrustArguments;
use super::{INCOMPLETE, OK, UNUSABLE};
use crate::admin::{self, Pages, Visitors, Workers};
use crate::agent_registry::AgentRegistry;
use crate::api_server::{ApiServer, ApiServerError};
use crate::cluster_state::Shared;
use crate::config::{Asked, Config, Security, Source};
use crate::engine::Engine;
use crate::open_files::Places;
use crate::operator::lease::{self, LeaseName};
use crate::store::Store;
use crate::stream::{Listen, serve};
use crate::telemetry::metrics::{Counters, Metrics};

/// Time that streams have to end after a signal, before the process ends.
const STREAM_GRACE_PERIOD: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Directory or file with YAML or JSON: Nodes, Services, EndpointSlices, ServiceCIDRs and the ProxyConfig. Read
    /// again when it changes. Default: watch a cluster.
    #[arg(long, value_name = "DIR", env = "PORTOLAN_MANIFESTS", conflicts_with_all = ["kubeconfig", "context", "api_server"])]
    manifests: Option<PathBuf>,
    /// Kubeconfig for the API server. Default: KUBECONFIG, otherwise ~/.kube/config; in a pod with --api-server, the
    /// pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// Address of the API server; overrides the kubeconfig's. Never give the address of a Service: it works only once
    /// agents have their plans.
    #[arg(long, value_name = "URL", env = "PORTOLAN_API_SERVER")]
    api_server: Option<String>,
    /// Listen address for agents: unix:PATH or IP:PORT. Port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", env = "PORTOLAN_LISTEN")]
    listen: String,
    #[command(flatten)]
    trust: TrustArguments,
    /// Listen address of /healthz, /readyz, /metrics and /convergence (for `kubectl proxyplan wait`). It accepts HTTP
    /// and, with the certificate of --listen, HTTPS on the same port. /convergence needs HTTPS or loopback, and a token
    /// that the API server accepts. Port 0 picks a free one.
    #[arg(
        long,
        value_name = "IP:PORT",
        env = "PORTOLAN_ADMIN",
        default_value = "127.0.0.1:10271"
    )]
    admin: SocketAddr,
    /// Directory to which every node's plan is written as NODE.json.
    #[arg(long, value_name = "DIR", env = "PORTOLAN_PLANS_DIR")]
    plans_dir: Option<PathBuf>,
    /// Lease with which several controllers elect a leader. Only the leader writes ProxyPlans, ProxyPlanSlices and
    /// the ProxyConfig; all controllers plan and serve. Without it, this controller considers itself the only one and
    /// always leads.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_LEASE",
        conflicts_with = "manifests"
    )]
    lease: Option<LeaseName>,
    /// Unique name of this controller in the Lease. Default: the host name and a number.
    #[arg(long, value_name = "NAME", env = "PORTOLAN_NAME", requires = "lease")]
    name: Option<String>,
    #[command(flatten)]
    agents: AgentsArguments,
    #[command(flatten)]
    telemetry: TelemetryArguments,
}

impl RunArguments {
    fn source(&self) -> Source {
        match &self.manifests {
            Some(path) => Source::Manifests(path.clone()),
            None => Source::Cluster(ApiServer {
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
                address: self.api_server.clone(),
            }),
        }
    }
}

/// Runs until a signal ends the program.
pub(super) fn run(arguments: RunArguments) -> u8 {
    let fail = |code, error: &dyn std::fmt::Display| {
        // Ignored: standard error may be closed.
        drop(writeln!(io::stderr().lock(), "error: {error}"));
        code
    };
    let source = arguments.source();
    let asked = Asked {
        source,
        listen: arguments.listen,
        insecure: arguments.trust.insecure,
        certificate: arguments.trust.certificate(),
        tokens: arguments.trust.tokens(),
        plans_dir: arguments.plans_dir,
        admin: arguments.admin,
        agents: arguments.agents.agents(),
    };
    let lease = arguments.lease;
    let name = arguments.name;
    let lease = lease.map(|lease| (lease, name.unwrap_or_else(lease::own_name)));
    let config = match Config::new(asked) {
        Ok(config) => config,
        Err(error) => return fail(UNUSABLE, &error),
    };
    let telemetry = match arguments.telemetry.start() {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(UNUSABLE, &error),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let ended = runtime
        .context("start the runtime")
        .and_then(|rt| rt.block_on(follow(config, lease, telemetry)));
    match ended {
        Ok(()) => OK,
        Err(error) => fail(INCOMPLETE, &format!("{error:#}")),
    }
}

async fn follow(
    config: Config,
    lease: Option<(LeaseName, String)>,
    telemetry: Telemetry,
) -> anyhow::Result<()> {
    // Install the handlers before anything exists that would need cleanup.
    let terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
    let interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    let source = config.source.to_string();
    let feed = match config.source {
        Source::Manifests(path) => Feed::Manifests(path),
        Source::Cluster(server) => Feed::Cluster(server.client().await.map_err(no_server)?),
    };
    let (client, reviewer) = (feed.client(), feed.reviewer());
    let counters: Arc<Counters> = Arc::default();
    let tls = config.security != Security::Insecure;
    let opened = open(config.listen, config.security, client, &counters).await?;
    let Opened {
        listener,
        listen,
        keeping,
        pages: tls_of_pages,
    } = opened;
    log_start(&listen, &source, config.plans_dir.as_deref(), tls);
    let places = Places::of_this_process();
    let store = Arc::new(Store::default());
    let registry = Arc::new(AgentRegistry::default());
    let agents = config.agents.zip(port(&listen));
    let own = own_name(lease.as_ref());
    let changes = telemetry.changes.clone();
    let freshness = Arc::new(feed.freshness());
    let engine = Engine::new(Shared::default(), store.clone(), config.plans_dir)
        .with_changes(changes.clone())
        .with_freshness(freshness.clone());
    let metrics = observe(telemetry, &counters, &store, &registry, (&engine, &own));
    let mut following = Following::start(feed, engine, lease, agents, &store, &registry, &own);
    let pages = Pages {
        metrics,
        store: store.clone(),
        freshness: freshness.clone(),
        registry: registry.clone(),
        started: SystemTime::now(),
        visitors: Visitors::new(reviewer),
        workers: Workers::default(),
        tls: tls_of_pages,
    };
    let pages = admin::serve(config.admin, Arc::new(pages), counters);
    let (end, ended) = oneshot::channel::<()>();
    let ended = async { drop(ended.await) };
    let listener = listener.with_changes(changes).with_freshness(freshness);
    let served = serve(listener.with_places(places), store, registry, ended);
    let result = tokio::select! {
        result = served => result.context("serve plans"),
        // Agent streams do not end on their own, so the server is not awaited; agents reconnect to another
        // controller.
        () = signalled(terminate, interrupt, end) => Ok(()),
        // Stale plans that look fresh are worse than none, so exit; the supervisor restarts the controller.
        broken = following.broken() => Err(broken),
        // Neither ends on its own.
        () = pages => Ok(()),
        () = keeping => Ok(()),
    };
    following.end().await?;
    if let Listen::Unix(path) = listen {
        // The server removes it on its own unless a stream delayed it.
        drop(std::fs::remove_file(path));
    }
    result
}

fn log_start(listen: &Listen, source: &str, plans_dir: Option<&Path>, tls: bool) {
    info!(
        %listen,
        source,
        plans_dir = plans_dir.map(|dir| tracing::field::display(dir.display())),
        tls,
        version = env!("CARGO_PKG_VERSION"),
        "started"
    );
}

/// Only this command works without an API server.
fn no_server(error: ApiServerError) -> anyhow::Error {
    match error {
        ApiServerError::Nowhere(_) => {
            anyhow::anyhow!("{error}, or --manifests DIR to work without a cluster")
        }
        other => other.into(),
    }
}

fn own_name(lease: Option<&(LeaseName, String)>) -> String {
    lease.map_or_else(lease::own_name, |(_, name)| name.clone())
}

/// Starts following changes and collects all metrics.
fn observe(
    telemetry: Telemetry,
    counters: &Counters,
    store: &Arc<Store>,
    registry: &Arc<AgentRegistry>,
    (engine, own): (&Engine, &str),
) -> Metrics {
    let mut metrics = Metrics::new(counters, registry.clone(), store.clone());
    metrics.add_endpoints(engine.known());
    metrics.add_freshness(engine.freshness());
    metrics.add(&telemetry.figures);
    telemetry.follow(registry.clone(), store.clone(), own);
    metrics
}

/// Waits for a signal, then gives streams time to end.
async fn signalled(mut terminate: Signal, mut interrupt: Signal, end: oneshot::Sender<()>) {
    let signal = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    info!(signal, "ending; nodes keep their last plans");
    drop(end);
    tokio::time::sleep(STREAM_GRACE_PERIOD).await;
}

/// The port for agents, if it is TCP; the listener has replaced port 0 by a real one.
fn port(listen: &Listen) -> Option<u16> {
    match listen {
        Listen::Tcp(address) => Some(address.port()),
        Listen::Unix(_) => None,
    }
}
