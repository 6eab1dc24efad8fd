//! Tests with packets: over the loopback interface of a namespace.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use netlink_blocking::testing::runner::output_of;
use nft_rs::{
    Batch, Bytes, Chain, ChainKind, Count, Element, Expression, Family, Field, Hook, Key,
    KeyReader, NatFlags, Register, Rule, Set, Socket,
};

use crate::{frontend, table, with_table};

const R0: Register = Register::R0;
/// An address of the loopback interface, in place of a virtual one.
const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn interface() {
    output_of("ip", &["link", "set", "lo", "up"]);
    output_of("ip", &["address", "add", "192.0.2.1/32", "dev", "lo"]);
}

fn load_frontend() -> Vec<Expression> {
    vec![
        Expression::destination_address(Family::Ipv4, R0),
        Expression::protocol(R0.after(1)),
        Expression::destination_port(R0.after(2)),
    ]
}

/// Endpoints on these ports of this host, in slots.
fn endpoint(slot: u32, port: u16) -> Element {
    let key = frontend(SERVICE, 80).mark(slot);
    Element::with_data(key, Key::new().ipv4(Ipv4Addr::LOCALHOST).port(port))
}

/// A transaction with the map, and a chain that translates to a slot by chance.
fn balancing(modulus: u32) -> Batch {
    let key = [
        Field::Ipv4Address,
        Field::Protocol,
        Field::Port,
        Field::Mark,
    ];
    let map = Set::map("endpoint", key, [Field::Ipv4Address, Field::Port]);
    let mut expressions = load_frontend();
    expressions.extend([
        Expression::random(modulus, R0.after(3)),
        Expression::lookup_map("endpoint", R0, R0),
        Expression::dnat(Family::Ipv4, R0, Some(R0.after(1))),
    ]);
    let mut batch = with_table();
    batch.add_set(&table(), &map);
    batch.add_chain(
        &table(),
        &Chain::base("nat-out", ChainKind::Nat, Hook::Output, -105),
    );
    batch.add_rule(&table(), &Rule::new("nat-out", expressions));
    batch
}

fn connect() -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((SERVICE, 80)), Duration::from_secs(2))
}

pub(super) fn connections_reach_the_endpoint_of_a_map() {
    interface();
    let listeners: Vec<_> = (0..2)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .collect();
    let ports: Vec<u16> = listeners
        .iter()
        .map(|l| l.local_addr().unwrap().port())
        .collect();
    let mut batch = balancing(2);
    let elements = [endpoint(0, ports[0]), endpoint(1, ports[1])];
    batch.add_elements(&table(), "endpoint", elements);
    Socket::open().unwrap().commit(&batch).unwrap();
    for _ in 0..60 {
        connect().unwrap();
    }
    for listener in &listeners {
        listener.set_nonblocking(true).unwrap();
        let reached = listener.incoming().map_while(Result::ok).count();
        // Each has 30 on average. Outside of these limits is one run in a million.
        assert!((10..=50).contains(&reached), "{reached} of 60 connections");
    }
}

pub(super) fn connections_to_a_missing_endpoint_are_refused_by_a_reset() {
    interface();
    let _listener = TcpListener::bind((SERVICE, 80)).unwrap();
    let mut batch = with_table();
    batch.add_set(
        &table(),
        &Set::new("refuse", [Field::Ipv4Address, Field::Protocol, Field::Port]),
    );
    batch.add_chain(
        &table(),
        &Chain::base("in", ChainKind::Filter, Hook::Input, -10),
    );
    let mut expressions = load_frontend();
    expressions.extend([
        Expression::lookup("refuse", R0),
        Expression::protocol(R0),
        Expression::equal(R0, [6]),
        Expression::reject_tcp(),
    ]);
    batch.add_rule(&table(), &Rule::new("in", expressions));
    let mut socket = Socket::open().unwrap();
    socket.commit(&batch).unwrap();
    connect().expect("the set is empty");
    let mut batch = Batch::new();
    batch.add_elements(&table(), "refuse", [Element::new(frontend(SERVICE, 80))]);
    socket.commit(&batch).unwrap();
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// A rule that learns the clients of a service for a second.
fn learning() -> Socket {
    let set = Set::map(
        "affinity",
        [
            Field::Ipv4Address,
            Field::Protocol,
            Field::Port,
            Field::Ipv4Address,
        ],
        [Field::Ipv4Address, Field::Port],
    );
    let mut expressions = load_frontend();
    expressions.extend([
        Expression::source_address(Family::Ipv4, R0.after(3)),
        Expression::destination_address(Family::Ipv4, R0.after(4)),
        Expression::destination_port(R0.after(5)),
        Expression::update_map("affinity", R0, R0.after(4), Duration::from_secs(1)),
    ]);
    let mut batch = with_table();
    batch.add_set(&table(), &set.dynamic(100));
    batch.add_chain(
        &table(),
        &Chain::base("out", ChainKind::Filter, Hook::Output, -95),
    );
    batch.add_rule(&table(), &Rule::new("out", expressions));
    let mut socket = Socket::open().unwrap();
    socket.commit(&batch).unwrap();
    socket
}

pub(super) fn a_rule_learns_elements_with_a_timeout() {
    interface();
    let mut socket = learning();
    // Without it, an ICMP error would be learned, too.
    let _server = UdpSocket::bind((SERVICE, 53)).unwrap();
    let client = UdpSocket::bind((SERVICE, 0)).unwrap();
    client.send_to(b"hello", (SERVICE, 53)).unwrap();
    let elements = socket.elements(&table(), "affinity").unwrap().unwrap();
    assert_eq!(elements.len(), 1);
    assert_eq!(elements[0].timeout, Some(Duration::from_secs(1)));
    let mut key = KeyReader::new(&elements[0].key);
    assert_eq!(
        (key.ipv4(), key.protocol(), key.port(), key.ipv4()),
        (Some(SERVICE), Some(17), Some(53), Some(SERVICE))
    );
    let mut data = KeyReader::new(elements[0].data.as_ref().unwrap());
    assert_eq!((data.ipv4(), data.port()), (Some(SERVICE), Some(53)));
    std::thread::sleep(Duration::from_millis(1_300));
    assert_eq!(
        socket.elements(&table(), "affinity").unwrap(),
        Some(Vec::new())
    );
    // Elements of rules are deleted and added like others.
    client.send_to(b"hello", (SERVICE, 53)).unwrap();
    let mut batch = Batch::new();
    batch.delete_elements(
        &table(),
        "affinity",
        [Element::new(elements[0].key.clone())],
    );
    socket.commit(&batch).unwrap();
    let again = elements[0].clone();
    let mut batch = Batch::new();
    batch.add_elements(&table(), "affinity", [again]);
    socket.commit(&batch).unwrap();
    assert_eq!(
        socket
            .elements(&table(), "affinity")
            .unwrap()
            .unwrap()
            .len(),
        1
    );
}

pub(super) fn a_rule_counts_packets_in_elements() {
    interface();
    let frontend = [Field::Ipv4Address, Field::Protocol, Field::Port];
    let set = Set::new("counted", frontend).dynamic(100);
    let mut expressions = load_frontend();
    expressions.push(Expression::count_in("counted", R0, Duration::from_secs(60)));
    let mut batch = with_table();
    batch.add_set(&table(), &set);
    batch.add_chain(
        &table(),
        &Chain::base("out", ChainKind::Filter, Hook::Output, -95),
    );
    let rule = Rule::new("out", expressions);
    batch.add_rule(&table(), &rule);
    let mut socket = Socket::open().unwrap();
    socket.commit(&batch).unwrap();
    let listed = socket.rules(&table()).unwrap();
    assert_eq!(listed[0].expressions, rule.expressions);
    let servers = [53, 54].map(|port| UdpSocket::bind((SERVICE, port)).unwrap());
    let client = UdpSocket::bind((SERVICE, 0)).unwrap();
    for to in [53, 54, 53, 53] {
        client.send_to(b"hello", (SERVICE, to)).unwrap();
    }
    drop(servers);
    let mut elements = socket.elements(&table(), "counted").unwrap().unwrap();
    elements.sort_by(|left, right| left.key.cmp(&right.key));
    let counts: Vec<_> = elements.iter().map(Element::count).collect();
    // Headers of IP and UDP are 28 bytes.
    let count = |packets| {
        let bytes = packets * 33;
        Some(Count { packets, bytes })
    };
    assert_eq!(counts, [count(3), count(1)]);
    assert_eq!(Element::new(Key::new().port(53)).count(), None);
}

pub(super) fn masquerading_takes_a_port_from_the_range() {
    interface();
    let mut batch = with_table();
    batch.add_chain(
        &table(),
        &Chain::base("post", ChainKind::Nat, Hook::Postrouting, 95),
    );
    let expressions = [
        Expression::protocol(R0),
        Expression::equal(R0, [17]),
        Expression::immediate(R0, Bytes::port(40_000)),
        Expression::immediate(R0.after(1), Bytes::port(40_003)),
        Expression::masquerade_to_ports(NatFlags::FULLY_RANDOM, R0, R0.after(1)),
    ];
    batch.add_rule(&table(), &Rule::new("post", expressions));
    Socket::open().unwrap().commit(&batch).unwrap();
    let server = UdpSocket::bind((SERVICE, 53)).unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    for _ in 0..3 {
        let client = UdpSocket::bind((SERVICE, 0)).unwrap();
        assert!(!(40_000..=40_003).contains(&client.local_addr().unwrap().port()));
        client.send_to(b"hello", (SERVICE, 53)).unwrap();
        let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
        assert!((40_000..=40_003).contains(&from.port()), "{from}");
    }
}
