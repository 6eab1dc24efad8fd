//! `portolan-controller run`: where engine, store and server meet.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clap::builder::BoolishValueParser;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::info;
use tracing_subscriber::EnvFilter;

use super::{INCOMPLETE, OK, UNUSABLE};
use crate::api_server::ApiServer;
use crate::board::Board;
use crate::config::{Config, Source};
use crate::engine::{ClusterSource, Engine, ManifestSource, News};
use crate::known::Shared;
use crate::publish::Publisher;
use crate::serve::{Listen, serve};
use crate::store::Store;
use crate::watch::{self, Watches};

/// How long streams may take to end once the program was asked to.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// A folder with YAML or JSON, or a file: Nodes, Services, EndpointSlices, ServiceCIDRs and
    /// the ProxyConfig. It is read again when it changes. Without it a cluster is watched.
    #[arg(long, value_name = "DIR", env = "PORTOLAN_MANIFESTS", conflicts_with_all = ["kubeconfig", "context", "api_server"])]
    manifests: Option<PathBuf>,
    /// How the API server is reached. Default: KUBECONFIG, ~/.kube/config, or the service account
    /// of the pod together with --api-server.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// The API server's address, in place of the one found. Never give the address of a Service:
    /// those work only once agents have their plans.
    #[arg(long, value_name = "URL", env = "PORTOLAN_API_SERVER")]
    api_server: Option<String>,
    /// Where agents connect: unix:PATH or IP:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "PORTOLAN_LISTEN")]
    listen: String,
    /// Serve without TLS, on loopback or a Unix socket only.
    #[arg(long, env = "PORTOLAN_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,
    /// Write every node's plan into this folder, as NODE.json.
    #[arg(long, value_name = "DIR", env = "PORTOLAN_PLANS_DIR")]
    plans_dir: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, or a filter like portolan_controller=debug.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "PORTOLAN_LOG"
    )]
    log: String,
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

/// Runs until it is asked to end.
pub(super) fn run(arguments: RunArguments) -> u8 {
    let tell = |code, error: &dyn std::fmt::Display| {
        // With standard error closed there is nobody to tell.
        drop(writeln!(io::stderr().lock(), "error: {error}"));
        code
    };
    let source = arguments.source();
    let RunArguments {
        listen,
        insecure,
        plans_dir,
        log,
        ..
    } = arguments;
    let config = match Config::new(source, &listen, insecure, plans_dir) {
        Ok(config) => config,
        Err(error) => return tell(UNUSABLE, &error),
    };
    let filter = match EnvFilter::try_new(&log) {
        Ok(filter) => filter,
        Err(error) => return tell(UNUSABLE, &format!("--log {log:?}: {error}")),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let ended = runtime
        .context("start the runtime")
        .and_then(|rt| rt.block_on(follow(config)));
    match ended {
        Ok(()) => OK,
        Err(error) => tell(INCOMPLETE, &format!("{error:#}")),
    }
}

async fn follow(config: Config) -> anyhow::Result<()> {
    // The handlers stand before anything is there that would have to be cleaned up.
    let mut terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    let source = config.source.to_string();
    let feed = match config.source {
        Source::Manifests(path) => Feed::Manifests(path),
        Source::Cluster(server) => Feed::Cluster(server.client().await?),
    };
    let (listener, listen) = config.listen.open_insecure().await?;
    info!(
        %listen,
        source,
        plans_dir = config.plans_dir.as_ref().map(|dir| tracing::field::display(dir.display())),
        tls = false,
        version = env!("CARGO_PKG_VERSION"),
        "started"
    );
    let store = Arc::new(Store::default());
    let board = Arc::new(Board::default());
    let mut following = Following::start(feed, config.plans_dir, &store, &board);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let served = serve(listener, store, board, async { drop(ended.await) });
    let signalled = async {
        let signal = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!(signal, "ending; nodes keep what they have");
        drop(end);
        tokio::time::sleep(GRACE).await;
    };
    let result = tokio::select! {
        result = served => result.context("serve plans"),
        // Streams of agents never end by themselves; they connect again elsewhere.
        () = signalled => Ok(()),
        // Stale plans that look fresh are worse than none: whoever runs this starts it again.
        broken = following.broken() => Err(broken),
    };
    following.end().await?;
    if let Listen::Unix(path) = listen {
        // The server takes it away itself unless a stream held it up.
        drop(std::fs::remove_file(path));
    }
    result
}

/// Where objects come from, open.
enum Feed {
    Manifests(PathBuf),
    Cluster(Client),
}

/// The engine on its thread, and what feeds it.
struct Following {
    engine: JoinHandle<()>,
    /// Dropping either ends the engine.
    watches: Option<Watches>,
    stop: SyncSender<()>,
    /// Writes objects; without a cluster there is nobody to write to.
    publisher: Option<JoinHandle<()>>,
}

impl Following {
    fn start(
        feed: Feed,
        plans_dir: Option<PathBuf>,
        store: &Arc<Store>,
        board: &Arc<Board>,
    ) -> Self {
        let known = Shared::default();
        let engine = Engine::new(known.clone(), store.clone(), plans_dir);
        let (stop, stopped) = std::sync::mpsc::sync_channel(1);
        match feed {
            Feed::Manifests(path) => {
                let source = ManifestSource::new(engine, path);
                Self {
                    engine: spawn_blocking(move || source.follow(&stopped)),
                    watches: None,
                    stop,
                    publisher: None,
                }
            }
            Feed::Cluster(client) => {
                let (watches, seen) = watch::start(&client);
                let (publisher, notes) = Publisher::new(client, known, board.clone());
                let engine = engine.telling(Box::new(move |news| match news {
                    News::Planned(update) => notes.changed(update),
                    News::Readable(id) => notes.read_again(id),
                }));
                let source = ClusterSource::new(engine, seen);
                Self {
                    engine: spawn_blocking(move || source.follow()),
                    watches: Some(watches),
                    stop,
                    publisher: Some(tokio::spawn(publisher.run(std::future::pending()))),
                }
            }
        }
    }

    /// Waits until a part has ended by itself, which is a defect.
    async fn broken(&mut self) -> anyhow::Error {
        let publisher = async {
            match &mut self.publisher {
                Some(publisher) => drop(publisher.await),
                None => std::future::pending().await,
            }
        };
        let watches = async {
            match &mut self.watches {
                Some(watches) => watches.ended().await,
                None => std::future::pending().await,
            }
        };
        let part = tokio::select! {
            _ = &mut self.engine => "planning",
            () = publisher => "publishing",
            () = watches => "watching",
        };
        anyhow::anyhow!("{part} has ended by itself; the lines above say why, please report them")
    }

    async fn end(self) -> anyhow::Result<()> {
        let Self {
            engine,
            watches,
            stop,
            publisher,
        } = self;
        if let Some(publisher) = publisher {
            publisher.abort();
        }
        drop((watches, stop));
        if engine.is_finished() {
            return Ok(());
        }
        engine.await.context("end the engine")
    }
}
