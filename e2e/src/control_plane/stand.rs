//! `portolan-scenarios control-plane`: a control plane for a person or another program to use.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, value_parser};

use super::kubelet::Kubelet;
use super::{ControlPlane, FROM_A_GUEST, Options, PORT_ATTEMPTS, Part, Reach, Store};
use crate::jaeger::{Jaeger, Ports};
use crate::stage::Stage;
use crate::stop;

/// Pods that a node has room for.
const POD_ROOM: u32 = 250;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Number of nodes, on which pods run as soon as they are created; at most 250.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u8).range(..=250))]
    nodes: u8,
    /// Uses etcd 3.4, which Debian 12 has: lists are not streamed.
    #[arg(long)]
    old_etcd: bool,
    /// Runs these of Kubernetes' controllers, with commas between, instead of the usual ones.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// Also creates a user of this name, with the RBAC permissions of that name; may be repeated.
    #[arg(long = "user", value_name = "NAME")]
    users: Vec<String>,
    /// Starts Jaeger beside it, which takes traces and shows them.
    #[arg(long)]
    traces: bool,
    /// Does not end when standard input does, only by a signal.
    #[arg(long)]
    ignore_stdin: bool,
}

/// Starts the control plane, prints how to reach it, and runs until standard input ends or a signal
/// arrives.
///
/// # Errors
/// When a program is missing, does not serve in time, or ends.
pub fn run(stage: &Stage, arguments: &Arguments) -> Result<bool> {
    let mut options = Options::default();
    if arguments.old_etcd {
        options.store = Store::Debian34;
    }
    if !arguments.controllers.is_empty() {
        options.controllers.clone_from(&arguments.controllers);
    }
    let plane = ControlPlane::start(stage.waits, options)?;
    let kubeconfig = plane.kubeconfig(Reach::Here);
    let _kubelet = Kubelet::start_with_nodes(&kubeconfig, arguments.nodes, POD_ROOM)?;
    // After the control plane, so that it ends before its log's folder goes.
    let started = arguments.traces.then(|| start_jaeger(stage, &plane));
    let jaeger = started.transpose()?;
    announce(stage, &plane, &arguments.users, jaeger.as_ref())?;
    let closed = if arguments.ignore_stdin {
        Arc::default()
    } else {
        when_stdin_ends()?
    };
    while !stop::asked() && !closed.load(Ordering::Relaxed) {
        plane.check_running()?;
        jaeger.as_ref().map_or(Ok(()), Jaeger::check_running)?;
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(true)
}

/// Starts it on free ports, and on others if one was taken before it could listen.
fn start_jaeger(stage: &Stage, plane: &ControlPlane) -> Result<Jaeger> {
    let log = plane.folder().join("jaeger.log");
    let start = || {
        let [otlp, query] = plane.free_ports()?;
        Jaeger::start(stage.waits, Ports { otlp, query }, &log)
    };
    for _ in 1..PORT_ATTEMPTS {
        let started = start();
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if started.is_ok() || !said.contains("address already in use") {
            return started;
        }
    }
    start()
}

/// Lines that a shell can take as they are.
fn announce(
    stage: &Stage,
    plane: &ControlPlane,
    users: &[String],
    jaeger: Option<&Jaeger>,
) -> Result<()> {
    let (here, guest) = (
        plane.kubeconfig(Reach::Here),
        plane.kubeconfig(Reach::Guest),
    );
    let console = stage.console;
    console.line(&format!("export KUBECONFIG={}", here.display()));
    console.line(&format!("# From an emulated guest: {}", guest.display()));
    for user in users {
        let here = plane.user(user, None, Reach::Here)?;
        let guest = plane.user(user, None, Reach::Guest)?;
        console.line(&format!("# As {user}: {}", here.display()));
        console.line(&format!(
            "# As {user} from an emulated guest: {}",
            guest.display()
        ));
    }
    if let Some(Ports { otlp, query }) = jaeger.map(Jaeger::ports) {
        for (where_from, host) in [("", "127.0.0.1"), (" from an emulated guest", FROM_A_GUEST)] {
            console.line(&format!("# Traces{where_from} go to: http://{host}:{otlp}"));
            console.line(&format!("# Jaeger{where_from}: http://{host}:{query}"));
        }
    }
    for part in Part::ALL {
        console.line(&format!(
            "# {}: {}",
            part.name(),
            plane.log_path(part).display()
        ));
    }
    if let Ok(kubectl) = part_program() {
        console.line(&format!("# kubectl of the same version: {kubectl}"));
    }
    console.line("# Ctrl-C ends it and removes its folder.");
    Ok(())
}

fn part_program() -> Result<String> {
    Ok(crate::program::Program::Kubectl
        .path()?
        .display()
        .to_string())
}

fn when_stdin_ends() -> Result<Arc<AtomicBool>> {
    let closed = Arc::new(AtomicBool::new(false));
    let ours = Arc::clone(&closed);
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            let mut buffer = [0; 1024];
            // An input that cannot be read has ended too.
            while std::io::stdin()
                .read(&mut buffer)
                .is_ok_and(|count| count > 0)
            {}
            ours.store(true, Ordering::Relaxed);
        })?;
    Ok(closed)
}
