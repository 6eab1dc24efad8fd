//! A node with pods and a client outside of the cluster, each in a network namespace of its own. The node's is that of
//! the test.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_blocking::testing::runner::output_of;
use nix::sched::{CloneFlags, setns};
use portolan_agent::kernel::linux::{Links, NftTables, TableChanges, machine};
use portolan_agent::tables::{ReconcileOptions, TablesKeeper, TablesOutcome};
use portolan_reconcile::{Facts, HostNetwork};
use serde_json::{Value, json};

use super::plan::facts_on;
use super::traffic;
use crate::{DEVICE, ip};

/// Addresses of the client outside of the cluster.
pub(crate) const CLIENT: [&str; 2] = ["192.168.50.9", "fd00:50::9"];
/// Addresses of the node, for its primary interface and its pods.
pub(crate) const NODE: [&str; 2] = ["192.168.50.1", "fd00:50::1"];
const GATEWAY: [&str; 2] = ["10.244.1.1", "fd00:10:244:1::1"];
/// Addresses of the two ends of each link. Without one, the kernel cannot ask for the neighbour of a packet that it
/// forwards, and generated ones are not usable at once.
const LINK_LOCAL: [&str; 2] = ["fe80::1", "fe80::2"];

/// A network namespace that lives as long as a process in it.
pub(crate) struct Space(Child);

impl Space {
    fn new() -> Self {
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let child = Command::new("unshare")
            .args(["--net", "sleep", "3600"])
            .spawn();
        let space = Self(child.expect("unshare is needed"));
        let begun = Instant::now();
        while std::fs::read_link(space.path())
            .ok()
            .is_none_or(|its| its == own)
        {
            assert!(begun.elapsed() < Duration::from_secs(20), "no namespace");
            std::thread::sleep(Duration::from_millis(5));
        }
        space.ip("link set lo up");
        space
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// Runs something in the namespace, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = self.path();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(&path);
                work()
            });
            thread.join().expect("a panic in another namespace")
        })
    }

    /// Starts a thread in the namespace.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let path = self.path();
        std::thread::spawn(move || {
            enter(&path);
            work()
        })
    }

    fn ip(&self, arguments: &str) {
        self.inside(|| drop(ip(arguments)));
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        drop(self.0.wait());
    }
}

fn enter(path: &str) {
    setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
}

/// A pod with servers that answer with its name.
pub(crate) struct Pod {
    pub(crate) addresses: [IpAddr; 2],
    pub(crate) space: Space,
    stop: Arc<AtomicBool>,
}

impl Pod {
    /// The backends of its servers on a port, in both families.
    pub(crate) fn backends(&self, port: u16) -> [String; 2] {
        self.addresses
            .map(|address| std::net::SocketAddr::new(address, port).to_string())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The node and everything around it.
pub(crate) struct World {
    pub(crate) client: Space,
    pub(crate) pods: Vec<Pod>,
    pub(crate) keeper: TablesKeeper<NftTables>,
    pub(crate) changes: TableChanges,
    pub(crate) host: HostNetwork,
}

fn keeper(changes: &TableChanges) -> TablesKeeper<NftTables> {
    let tables = NftTables::open(changes.clone()).unwrap();
    TablesKeeper::new(tables, Instant::now())
}

impl World {
    /// A world with pods 10.244.1.5, 10.244.1.6, … and their IPv6 addresses.
    pub(crate) fn new(pods: u8) -> Self {
        let client = client();
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            output_of("sysctl", &["-qw", setting]);
        }
        let pods = (0..pods).map(pod).collect();
        let mut host = Links::open().unwrap().observe(DEVICE).unwrap().host;
        // The version of the kernel decides where connections are refused.
        host.machine = machine::read(Path::new("/nonexistent"));
        let changes = TableChanges::default();
        Self {
            client,
            pods,
            keeper: keeper(&changes),
            changes,
            host,
        }
    }

    pub(crate) fn facts(&self, services: &[Value]) -> Facts {
        self.facts_with(services, &json!({}))
    }

    /// The facts of a plan with these Services and settings.
    pub(crate) fn facts_with(&self, services: &[Value], settings: &Value) -> Facts {
        let addresses = self.pods.iter().flat_map(|pod| pod.addresses);
        let of_pod = |address: IpAddr| {
            let ports = [("TCP", traffic::TCP_PORT), ("UDP", traffic::UDP_PORT)];
            ports.map(
                |(protocol, port)| json!({"address": address, "protocol": protocol, "port": port}),
            )
        };
        let local: Vec<_> = addresses.flat_map(of_pod).collect();
        facts_on(services, settings, &local.into(), &self.host)
    }

    /// Reconciles with these Services and expects no failure.
    pub(crate) fn apply(&mut self, services: &[Value]) -> TablesOutcome {
        let facts = self.facts(services);
        let options = ReconcileOptions {
            may_remove: true,
            now: Instant::now(),
        };
        let outcome = self.keeper.reconcile(&facts, options);
        assert_eq!(outcome.failures, []);
        assert_eq!(outcome.refused, [].into());
        outcome
    }

    /// Another agent takes over.
    pub(crate) fn restart(&mut self) {
        self.keeper = keeper(&self.changes);
    }

    /// The backends of all pods on a port.
    pub(crate) fn backends(&self, port: u16) -> Vec<String> {
        self.pods
            .iter()
            .flat_map(|pod| pod.backends(port))
            .collect()
    }
}

fn client() -> Space {
    let client = Space::new();
    ip("link set lo up");
    ip(&format!(
        "link add eth0 type veth peer name eth0 netns {}",
        client.0.id()
    ));
    for (command, [v4, v6]) in [(0, NODE), (1, CLIENT)] {
        for arguments in [
            "link set eth0 addrgenmode none up".to_owned(),
            format!("address add {v4}/24 dev eth0"),
            format!("address add {v6}/64 dev eth0 nodad"),
            format!("address add {}/64 dev eth0 nodad", LINK_LOCAL[command]),
        ] {
            match command {
                0 => drop(ip(&arguments)),
                _ => client.ip(&arguments),
            }
        }
    }
    // The node's own connections to Services need a route; which one does not matter.
    for family in 0..2 {
        let option = ["-4", "-6"][family];
        ip(&format!(
            "{option} route add default via {}",
            CLIENT[family]
        ));
        client.ip(&format!("{option} route add default via {}", NODE[family]));
    }
    client
}

fn pod(number: u8) -> Pod {
    let space = Space::new();
    let last = 5 + number;
    let link = format!("pod{number}");
    let own = [format!("10.244.1.{last}"), format!("fd00:10:244:1::{last}")];
    let id = space.0.id();
    ip(&format!(
        "link add {link} type veth peer name eth0 netns {id}"
    ));
    ip(&format!("link set {link} addrgenmode none up"));
    space.ip("link set eth0 addrgenmode none up");
    let [near, far] = LINK_LOCAL;
    ip(&format!("address add {near}/64 dev {link} nodad"));
    space.ip(&format!("address add {far}/64 dev eth0 nodad"));
    for (family, length) in [(0, 32), (1, 128)] {
        let (own, gateway) = (&own[family], GATEWAY[family]);
        let nodad = if family == 0 { "" } else { " nodad" };
        ip(&format!("address add {gateway}/{length} dev {link}{nodad}"));
        ip(&format!("route add {own}/{length} dev {link}"));
        space.ip(&format!("address add {own}/{length} dev eth0{nodad}"));
        space.ip(&format!("route add {gateway}/{length} dev eth0"));
        let option = ["-4", "-6"][family];
        space.ip(&format!("{option} route add default via {gateway}"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let name = format!("pod{number}");
    let servers = traffic::Servers::open(&space, name, &stop);
    servers.start(&space);
    Pod {
        addresses: own.map(|address| address.parse().unwrap()),
        space,
        stop,
    }
}
