//! The network of the cluster: a namespace with a bridge, and a port on it for each node.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::namespace::{self, Temporary};
use crate::program::Program;
use crate::stage::Stage;
use crate::waits::sleep_until;

/// The namespace. One cluster at a time: two would not have room on a machine.
pub(super) const NAMESPACE: &str = "portolan-real";
/// The PID file of the process that created it.
const OWNER: &str = "/run/portolan-real.pid";
/// The control plane and names, as nodes reach them.
pub(super) const CONTROL_PLANE: &str = "192.168.50.1";
/// The same as an address.
pub(super) fn control_plane() -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 50, 1)
}

/// The pod network between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pods {
    /// A bridge on each node, and a route to each other node.
    Bridge,
    /// The same bridge, and flannel's VXLAN.
    Flannel,
}

/// How long a cluster may need to end.
const END: Duration = Duration::from_secs(30);

/// It is there; dropping it removes it.
#[derive(Debug)]
pub(super) struct Network {
    _namespace: Temporary,
}

impl Network {
    /// Makes it, and moves this thread into it for good.
    pub(super) fn enter(nodes: u8) -> Result<Self> {
        if let Some(owner) = owner() {
            bail!("a cluster stands already (process {owner}); `cargo lab real down` ends it");
        }
        if is_there() {
            bail!("network namespace {NAMESPACE} was left; `cargo lab real down` removes it");
        }
        let namespace = Temporary::make(NAMESPACE)?;
        fs::write(OWNER, std::process::id().to_string())
            .with_context(|| format!("write {OWNER}"))?;
        namespace.namespace().enter()?;
        let network = Self {
            _namespace: namespace,
        };
        Program::Ip.run_line("link add lab type bridge")?;
        Program::Ip.run_line(&format!("address add {CONTROL_PLANE}/24 dev lab"))?;
        Program::Ip.run_line("address add fd00:50::1/64 dev lab nodad")?;
        Program::Ip.run_line("link set lab up")?;
        for number in 1..=nodes {
            Program::Ip.run_line(&format!("tuntap add {} mode tap", tap(number)))?;
            Program::Ip.run_line(&format!("link set {} master lab up", tap(number)))?;
            let [v4, v6] = addresses(number);
            let [pods_v4, pods_v6] = pods(number);
            Program::Ip.run_line(&format!("route add {pods_v4} via {v4}"))?;
            Program::Ip.run_line(&format!("-6 route add {pods_v6} via {v6}"))?;
        }
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(fs::remove_file(OWNER));
    }
}

/// The name of a node's port.
pub(super) fn tap(number: u8) -> String {
    format!("node{number}")
}

/// A node's addresses.
pub(super) fn addresses(number: u8) -> [String; 2] {
    [
        format!("192.168.50.1{number}"),
        format!("fd00:50::1{number}"),
    ]
}

/// The ranges of a node's pods.
pub(super) fn pods(number: u8) -> [String; 2] {
    [
        format!("10.244.{number}.0/24"),
        format!("fd00:10:244:{number}::/64"),
    ]
}

/// Ends a cluster that stands, and removes what one has left.
pub(super) fn remove(stage: &Stage) -> Result<()> {
    if let Some(owner) = owner() {
        kill(Pid::from_raw(owner), Signal::SIGTERM).context("end the cluster that stands")?;
        let limit = Instant::now() + stage.waits.limit(END);
        while self::owner().is_some() {
            if Instant::now() > limit {
                bail!("process {owner} does not end");
            }
            sleep_until(Instant::now() + Duration::from_millis(200))?;
        }
    }
    if is_there() {
        for line in Program::Ip.run(&["netns", "pids", NAMESPACE])?.lines() {
            // One that has ended meanwhile needs no signal.
            let _sent = kill(Pid::from_raw(line.trim().parse()?), Signal::SIGKILL);
        }
        Program::Ip.run(&["netns", "delete", NAMESPACE])?;
    }
    drop(fs::remove_file(OWNER));
    stage.console.line("no cluster stands");
    Ok(())
}

fn is_there() -> bool {
    namespace::FOLDERS
        .iter()
        .any(|folder| Path::new(folder).join(NAMESPACE).exists())
}

/// The process of a cluster that stands.
fn owner() -> Option<i32> {
    let pid: i32 = fs::read_to_string(OWNER).ok()?.trim().parse().ok()?;
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    command.contains("portolan-scenarios").then_some(pid)
}
