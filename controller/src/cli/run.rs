//! `portolan-controller run`: where engine, store and server meet.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clap::builder::BoolishValueParser;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use tracing_subscriber::EnvFilter;

use super::{INCOMPLETE, OK, UNUSABLE};
use crate::config::Config;
use crate::engine::Engine;
use crate::serve::{Listen, serve};
use crate::store::Store;

/// How long streams may take to end once the program was asked to.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// A folder with YAML or JSON, or a file: Nodes, Services, EndpointSlices, ServiceCIDRs and
    /// the ProxyConfig. It is read again when it changes.
    #[arg(long, value_name = "DIR", env = "PORTOLAN_MANIFESTS")]
    manifests: PathBuf,
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

/// Runs until it is asked to end.
pub(super) fn run(arguments: RunArguments) -> u8 {
    let tell = |code, error: &dyn std::fmt::Display| {
        // With standard error closed there is nobody to tell.
        drop(writeln!(io::stderr().lock(), "error: {error}"));
        code
    };
    let RunArguments {
        manifests,
        listen,
        insecure,
        plans_dir,
        log,
    } = arguments;
    let config = match Config::new(manifests, &listen, insecure, plans_dir) {
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
    let Config {
        manifests,
        listen,
        plans_dir,
    } = config;
    // The handlers stand before anything is there that would have to be cleaned up.
    let mut terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    let (listener, listen) = listen.open_insecure().await?;
    info!(
        %listen,
        manifests = %manifests.display(),
        plans_dir = plans_dir.as_ref().map(|dir| tracing::field::display(dir.display())),
        tls = false,
        version = env!("CARGO_PKG_VERSION"),
        "started"
    );
    let store = Arc::new(Store::default());
    let engine = Engine::new(manifests, plans_dir, store.clone());
    let (stop, stopped) = std::sync::mpsc::sync_channel(1);
    let engine = tokio::task::spawn_blocking(move || engine.follow(&stopped));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let served = serve(listener, store, async { drop(ended.await) });
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
    };
    drop(stop);
    engine.await.context("end the engine")?;
    if let Listen::Unix(path) = listen {
        // The server takes it away itself unless a stream held it up.
        drop(std::fs::remove_file(path));
    }
    result
}
