//! What becomes of the first packets of connections while the tables are changed. A commit can be between two hooks of a
//! packet, and the kernel deletes tables bit by bit. So the tables are changed many times under a flood of packets.
//! Rules of the test count what becomes of them, and mark packets for IPVS, as those of iptables do on a node with it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_blocking::testing::runner::output_of;
use portolan_agent::tables::ReconcileOptions;
use serde_json::json;

use super::services::{CLUSTER_IP, LOAD_BALANCER, dns};
use super::world::World;

const PORT: u16 = 53;
const CHANGES: usize = 20;
/// Time between changes.
const PAUSE: Duration = Duration::from_millis(25);

/// A node changes to IPVS and back. Each packet goes to one of the dataplanes: it is translated, or it keeps its mark.
pub(crate) fn handed_over() {
    let mut world = World::new(2);
    let services = [dns(&world)];
    let marks = world.facts(&services).settings().ipvs_marks();
    let flood = Flood::start(&world, CLUSTER_IP, marks, true);
    for _ in 0..CHANGES {
        world.apply(&services);
        std::thread::sleep(PAUSE);
        loop {
            let step = world.keeper.hand_over(marks, &|_| false);
            assert_eq!(step.errors, []);
            if !step.unfinished {
                break;
            }
        }
        std::thread::sleep(PAUSE);
    }
    let counts = flood.end();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    assert!(counts.tables > 1000 && counts.ipvs > 1000, "{counts:?}");
}

/// Rules are replaced, for other settings. Each packet of a client in a source range is translated: no packet finds the
/// ranges empty, as it could while a table is built again.
pub(crate) fn other_rules() {
    let mut world = World::new(2);
    let mut service = dns(&world);
    service["ports"][0]["sourceRanges"] = json!(["192.168.50.0/24", "fd00:50::/64"]);
    let services = [service];
    world.apply(&services);
    let marks = world.facts(&services).settings().ipvs_marks();
    let flood = Flood::start(&world, LOAD_BALANCER, marks, false);
    for change in 0..CHANGES {
        // This replaces the rules that look for the source.
        let detection = match change % 2 {
            0 => json!({"mode": "BridgeInterface", "bridge": "cni0"}),
            _ => json!({"mode": "NodeCIDR"}),
        };
        let settings = json!({"localDetection": detection});
        let facts = world.facts_with(&services, &settings);
        let options = ReconcileOptions {
            may_remove: true,
            now: Instant::now(),
        };
        let outcome = world.keeper.reconcile(&facts, options);
        assert_eq!(outcome.failures, []);
        assert_eq!(outcome.built, [].into());
        for chains in outcome.rules_replaced.values() {
            assert!(chains.contains("drops-pre"), "{chains:?}");
        }
        std::thread::sleep(PAUSE);
    }
    let counts = flood.end();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    assert!(counts.tables > 1000 && counts.ipvs == 0, "{counts:?}");
}

/// The numbers of packets.
#[derive(Debug)]
struct Counts {
    arrived: u64,
    /// Translated.
    tables: u64,
    /// Marked for IPVS.
    ipvs: u64,
    /// Neither translated nor marked.
    #[expect(dead_code, reason = "printed when packets are lost")]
    neither: u64,
    /// Both translated and marked.
    #[expect(dead_code, reason = "printed when packets are lost")]
    both: u64,
}

impl Counts {
    /// The packets that are not with exactly one dataplane.
    fn lost(&self) -> u64 {
        self.arrived - self.tables - self.ipvs
    }
}

/// Packets to a Service, from a new port each, in both families. Each is dropped once it is counted, so that all are first
/// packets.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Flood {
    fn start(world: &World, to: [&str; 2], marks: u32, marked: bool) -> Self {
        count_packets(to, marks, marked);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let targets = to.map(|address| SocketAddr::new(address.parse().unwrap(), PORT));
        let thread = world.client.start(move || {
            while !stopped.load(Ordering::Relaxed) {
                targets.iter().for_each(send);
            }
        });
        Self { stop, thread }
    }

    fn end(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        // Packets that wait for a processor.
        std::thread::sleep(Duration::from_millis(200));
        Counts {
            arrived: counted("arrived"),
            tables: counted("tables"),
            ipvs: counted("ipvs"),
            neither: counted("neither"),
            both: counted("both"),
        }
    }
}

fn send(to: &SocketAddr) {
    let any: IpAddr = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).unwrap();
    // While the queue of the device is full, packets are not sent.
    socket.send_to(b"first", to).unwrap_or_default();
}

fn count_packets(to: [&str; 2], marks: u32, marked: bool) {
    let mut script = String::from(
        "table inet observer {
        counter arrived {}\n counter tables {}\n counter ipvs {}\n counter neither {}\n counter both {}
        chain marks { type filter hook prerouting priority raw; }
        chain counts { type filter hook prerouting priority -80; }
        }\n",
    );
    for (family, address) in ["ip", "ip6"].into_iter().zip(to) {
        let mark = match marked {
            true => format!("meta mark set {marks}"),
            false => String::new(),
        };
        script += &format!(
            "add rule inet observer marks {family} daddr {address} udp dport {PORT} counter name arrived {mark}\n"
        );
        let first = format!(
            "meta l4proto udp ct original {family} daddr {address} ct original proto-dst {PORT}"
        );
        for (is_marked, is_here, counter) in [
            ("==", "!=", "tables"),
            ("!=", "==", "ipvs"),
            ("==", "==", "neither"),
            ("!=", "!=", "both"),
        ] {
            script += &format!(
                "add rule inet observer counts {first} meta mark and {marks} {is_marked} 0 \
                 {family} daddr {is_here} {address} counter name {counter} drop\n"
            );
        }
    }
    output_of("sh", &["-c", &format!("nft -f - <<'END'\n{script}END\n")]);
}

fn counted(counter: &str) -> u64 {
    let listed = output_of("nft", &["list", "counter", "inet", "observer", counter]);
    let mut words = listed.split_whitespace();
    words.find(|word| *word == "packets").unwrap();
    words.next().unwrap().parse().unwrap()
}
