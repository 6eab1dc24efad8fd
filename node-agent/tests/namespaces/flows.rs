//! Connection tracking of the real kernel: reading flows, and exact deletions. Rules replace IPVS, and the results
//! are checked with `conntrack`.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use portolan_agent::kernel::linux::Conntrack;
use portolan_plan::{Family, Protocol};
use portolan_reconcile::Flow;

use super::ip;
use netlink_blocking::testing::runner::{Test, output_of};

pub(crate) const TESTS: &[Test] = &[
    ("udp_flows_are_read_correctly", flows_are_read),
    ("deleting_a_flow_deletes_no_other", deletions_are_exact),
    (
        "flows_in_other_zones_are_distinguished",
        zones_are_distinguished,
    ),
    (
        "many_flows_are_deleted_in_rounds",
        many_are_deleted_in_rounds,
    ),
    (
        "connections_of_other_protocols_are_read_and_deleted_exactly",
        other_protocols,
    ),
];

/// Packets to these are translated to the backend of their family, port 5353.
const FRONTENDS: [&str; 2] = ["10.96.0.10:53", "[fd00:10:96::a]:53"];
const BACKENDS: [&str; 2] = ["10.244.1.7:5353", "[fd00:10:244:1::7]:5353"];
/// Packets to these are not translated.
const OTHERS: [&str; 2] = ["10.96.0.11:53", "[fd00:10:96::b]:53"];

/// A namespace that tracks connections and sends everything to itself.
fn lay() {
    for arguments in [
        "link set lo up",
        "address add 10.244.1.7/32 dev lo",
        "address add fd00:10:244:1::7/128 dev lo nodad",
        "route add local 10.96.0.0/12 dev lo",
        "route add local fd00:10:96::/112 dev lo",
    ] {
        ip(arguments);
    }
    for (program, at) in [("iptables", 0), ("ip6tables", 1)] {
        let address: SocketAddr = FRONTENDS[at].parse().unwrap();
        let address = address.ip().to_string();
        let rule = ["-t", "nat", "-A", "OUTPUT", "-p", "udp", "-d", &address];
        let target = ["-j", "DNAT", "--to-destination", BACKENDS[at]];
        output_of(program, &[&rule[..], &target].concat());
    }
}

/// Sends one datagram from a port of the backend's address. There is no reply.
fn send(from: u16, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let own = BACKENDS[usize::from(to.is_ipv6())];
    let own: SocketAddr = own.parse().unwrap();
    let socket = UdpSocket::bind((own.ip(), from)).unwrap();
    socket.send_to(b"?", to).unwrap();
}

/// Sends until `conntrack` lists the flow, so that a flow that is missing afterwards is one that was not read. On a
/// busy machine a flow was missing once, and it was unknown whether it was not tracked or not read.
fn send_until_tracked(from: u16, to: &str) {
    let at: SocketAddr = to.parse().unwrap();
    let own: SocketAddr = BACKENDS[usize::from(at.is_ipv6())].parse().unwrap();
    let line = format!("src={} sport={from} dport={}", own.ip(), at.port());
    for _ in 0..50 {
        send(from, to);
        if tracked("udp").iter().any(|flow| flow.contains(&line)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{line}: {:?}", tracked("udp"));
}

/// All flows of a protocol as `conntrack` lists them.
fn tracked(protocol: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for family in ["ipv4", "ipv6"] {
        let text = output_of("conntrack", &["-L", "-f", family, "-p", protocol]);
        let shown = |line: &str| {
            let words = line.split_whitespace();
            let words = words.filter(|word| word.contains("src=") || word.contains("port="));
            words.collect::<Vec<_>>().join(" ")
        };
        lines.extend(text.lines().map(shown));
    }
    lines
}

fn read(conntrack: &mut Conntrack, family: Family) -> Vec<Flow> {
    let found = conntrack.stale(family, &|_| true).unwrap();
    assert!(!found.more && !found.interrupted);
    assert_eq!(usize::try_from(found.seen), Ok(found.stale.len()));
    found.stale
}

/// Source port, destination and reply source.
fn summary(flows: &[Flow]) -> BTreeSet<(u16, String, String)> {
    let summary = |flow: &Flow| {
        let (to, from) = (flow.destination.to_string(), flow.reply_source.to_string());
        (flow.source.port(), to, from)
    };
    flows.iter().map(summary).collect()
}

/// S-123, S-124, S-126, S-130.
fn flows_are_read() {
    lay();
    let mut conntrack = Conntrack::open().unwrap();
    for (at, family) in Family::BOTH.into_iter().enumerate() {
        send_until_tracked(40_000, FRONTENDS[at]);
        send_until_tracked(40_001, OTHERS[at]);
        let wanted = [
            (40_000, FRONTENDS[at].to_owned(), BACKENDS[at].to_owned()),
            (40_001, OTHERS[at].to_owned(), OTHERS[at].to_owned()),
        ];
        let flows = read(&mut conntrack, family);
        assert_eq!(summary(&flows), BTreeSet::from(wanted));
        assert!(flows.iter().all(|flow| flow.id.is_some() && flow.zone == 0));
    }
}

/// S-130: a deletion deletes exactly one flow, even if another one differs only in its id.
fn deletions_are_exact() {
    lay();
    let mut conntrack = Conntrack::open().unwrap();
    let open = std::net::TcpListener::bind("10.244.1.7:8080").unwrap();
    let _connected = std::net::TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let tcp = tracked("tcp");
    assert_eq!(tcp.len(), 1, "{tcp:?}");
    for (at, family) in Family::BOTH.into_iter().enumerate() {
        for client in [40_000, 40_001] {
            send(client, FRONTENDS[at]);
            send(client, OTHERS[at]);
        }
        let before = tracked("udp");
        let flows = read(&mut conntrack, family);
        assert_eq!(flows.len(), 4);
        let of_frontend = |flow: &&Flow| flow.destination == FRONTENDS[at].parse().unwrap();
        let old = *flows.iter().find(of_frontend).unwrap();
        assert_eq!(conntrack.forget(&[old]), [Ok(())]);
        let gone: Vec<_> = before.difference(&tracked("udp")).cloned().collect();
        let named = format!("sport={} dport=53", old.source.port());
        assert!(gone.len() == 1 && gone[0].contains(&named), "{gone:?}");
        assert_eq!(conntrack.forget(&[old]), [Ok(())], "already deleted");
        // The client sends again, so the kernel has a flow with the same addresses and ports. Its id differs,
        // unless it has the same place in the kernel's memory.
        send(old.source.port(), FRONTENDS[at]);
        assert_eq!(tracked("udp"), before);
        let again = read(&mut conntrack, family);
        assert_eq!(summary(&again), summary(&flows));
        let new = *again
            .iter()
            .find(|flow| flow.source == old.source && of_frontend(flow))
            .unwrap();
        let other = Flow {
            id: new.id.map(|id| id ^ 1),
            ..new
        };
        assert_eq!(conntrack.forget(&[other]), [Ok(())], "no flow has this id");
        assert_eq!(tracked("udp"), before);
    }
    assert_eq!(tracked("tcp"), tcp, "S-123");
}

/// Zones of other programs: a flow in a zone is deleted there, and one with the same addresses outside of it stays.
fn zones_are_distinguished() {
    lay();
    let in_zone = ["-j", "CT", "--zone", "7"];
    let one_way = ["-j", "CT", "--zone-orig", "9"];
    for (client, target) in [("40001", in_zone), ("40002", one_way)] {
        let rule = ["-t", "raw", "-A", "OUTPUT", "-p", "udp", "--sport", client];
        output_of("iptables", &[&rule[..], &target].concat());
    }
    let mut conntrack = Conntrack::open().unwrap();
    let zones = |flows: &[Flow]| -> BTreeSet<_> {
        flows
            .iter()
            .map(|flow| (flow.source.port(), flow.zone))
            .collect()
    };
    for client in [40_000, 40_001, 40_002] {
        send(client, OTHERS[0]);
    }
    let flows = read(&mut conntrack, Family::Ipv4);
    assert_eq!(
        zones(&flows),
        [(40_000, 0), (40_001, 7), (40_002, 9)].into()
    );
    let in_zones: Vec<_> = flows.into_iter().filter(|flow| flow.zone != 0).collect();
    assert_eq!(conntrack.forget(&in_zones), [Ok(()), Ok(())]);
    assert_eq!(
        zones(&read(&mut conntrack, Family::Ipv4)),
        [(40_000, 0)].into()
    );
}

/// More stale flows than fit in memory: the rounds end, and all of them are deleted.
fn many_are_deleted_in_rounds() {
    lay();
    let mut conntrack = Conntrack::open().unwrap().at_most(300);
    let clients = 20_000..21_000;
    for client in clients.clone() {
        send(client, FRONTENDS[0]);
    }
    send(40_000, OTHERS[0]);
    let is_stale = |flow: &Flow| flow.destination == FRONTENDS[0].parse().unwrap();
    let mut deleted = 0;
    for round in 1.. {
        assert!(round <= 4, "{deleted} are deleted");
        let found = conntrack.stale(Family::Ipv4, &is_stale).unwrap();
        assert_eq!(
            found.more,
            found.stale.len() == 300 && round < 4,
            "round {round}"
        );
        assert!(conntrack.forget(&found.stale).iter().all(Result::is_ok));
        deleted += found.stale.len();
        if !found.more {
            break;
        }
    }
    assert_eq!(deleted, clients.len());
    let left = read(&mut conntrack, Family::Ipv4);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].source.port(), 40_000);
}

/// The nftables dataplane ends TCP connections after their drain deadline: only those that are named, and no UDP flow
/// with the same addresses and ports.
fn other_protocols() {
    lay();
    let mut conntrack = Conntrack::open().unwrap();
    let tcp = Protocol::Tcp;
    for (at, family) in Family::BOTH.into_iter().enumerate() {
        let own: SocketAddr = BACKENDS[at].parse().unwrap();
        let open = std::net::TcpListener::bind((own.ip(), 53)).unwrap();
        let to = open.local_addr().unwrap();
        let streams = [(); 2].map(|()| std::net::TcpStream::connect(to).unwrap());
        let ports = streams
            .each_ref()
            .map(|stream| stream.local_addr().unwrap());
        send_until_tracked(ports[0].port(), &to.to_string());
        let read = |conntrack: &mut Conntrack, protocol| {
            let found = conntrack.stale_of(protocol, family, &|_| true).unwrap();
            assert!(!found.more && !found.interrupted);
            found.stale
        };
        let before = (tracked("tcp"), tracked("udp"));
        let flows = read(&mut conntrack, tcp);
        let sources: BTreeSet<_> = flows.iter().map(|flow| flow.source).collect();
        assert_eq!(sources, ports.into());
        let is_first = |flow: &&Flow| flow.source == ports[0];
        let first = *flows.iter().find(is_first).unwrap();
        assert_eq!(first.destination, to);
        assert_eq!(conntrack.forget_of(Protocol::Sctp, &[first]), [Ok(())]);
        assert_eq!(
            (tracked("tcp"), tracked("udp")),
            before,
            "no such association"
        );
        assert_eq!(conntrack.forget_of(tcp, &[first]), [Ok(())]);
        let left = read(&mut conntrack, tcp);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].source, ports[1]);
        assert_eq!(tracked("udp"), before.1);
        assert_eq!(conntrack.forget_of(tcp, &left), [Ok(())]);
    }
}
