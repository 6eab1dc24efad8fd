//! Tests against a real kernel with IPVS. Results are verified with `ipvsadm`, which shares no code with this crate.
//!
//! Run as root: `cargo test -p ipvs-rs --test kernel`. IPVS requires the capability in the initial user namespace, so
//! root of a user namespace is not enough. Arguments are parts of test names; `--reload-module` adds the test that
//! unloads and loads the module.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test program without the test harness"
)]

mod kernel_errors;
mod kernel_lists;
mod kernel_timeouts;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::{Command, ExitCode};

use ipvs_rs::{
    Destination, Family, Flags, Forwarding, Protocol, Request, Service, ServiceKey, Socket, Tunnel,
};
use kernel_timeouts::timeouts_are_read_and_set;
use netlink_blocking::testing::runner::{Test, output_of, run, say};

/// Makes the program print why it cannot open a socket, for the test of missing privileges.
const OPEN_ONLY: &str = "--open-only";
const RELOAD: &str = "--reload-module";

const TESTS: &[Test] = &[
    ("info_agrees_with_proc", info_agrees_with_proc),
    (
        "services_and_real_servers_appear_in_ipvsadm",
        services_and_real_servers_appear_in_ipvsadm,
    ),
    (
        "what_ipvsadm_writes_is_read_back",
        what_ipvsadm_writes_is_read_back,
    ),
    (
        "settings_are_changed_and_removed",
        settings_are_changed_and_removed,
    ),
    ("timeouts_are_read_and_set", timeouts_are_read_and_set),
    (
        "each_error_belongs_to_its_request",
        kernel_errors::each_error_belongs_to_its_request,
    ),
    (
        "an_unknown_scheduler_is_named",
        kernel_errors::an_unknown_scheduler_is_named,
    ),
    (
        "asking_for_a_scheduler_leaves_nothing",
        kernel_errors::asking_for_a_scheduler_leaves_nothing,
    ),
    (
        "a_full_send_of_failures_is_answered",
        kernel_errors::a_full_send_of_failures_is_answered,
    ),
    (
        "a_thousand_services_with_ten_servers",
        a_thousand_services_with_ten_servers,
    ),
    (
        "lists_are_whole_while_other_namespaces_change",
        kernel_lists::lists_are_whole_while_other_namespaces_change,
    ),
    (
        "foreign_firewall_mark_services_are_listed",
        foreign_firewall_mark_services_are_listed,
    ),
    (
        "without_the_capability_the_error_names_it",
        kernel_errors::without_the_capability_the_error_names_it,
    ),
];

/// In a namespace without a local route, every IPv4 address counts as a broadcast address, and IPVS refuses such real
/// servers. The loopback device adds the first local route.
fn prepare() {
    output_of("ip", &["link", "set", "lo", "up"]);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == OPEN_ONLY) {
        say(&Socket::open().map_or_else(|error| error.to_string(), |_| "opened".to_owned()));
        return ExitCode::SUCCESS;
    }
    let mut tests = TESTS.to_vec();
    if arguments.iter().any(|argument| argument == RELOAD) {
        tests.push((
            "the_socket_survives_a_module_reload",
            the_socket_survives_a_module_reload,
        ));
    }
    let filters: Vec<String> = arguments
        .into_iter()
        .filter(|a| !a.starts_with("--"))
        .collect();
    if run(&tests, prepare, &filters) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn tcp(address: &str, port: u16) -> ServiceKey {
    ServiceKey::address(Protocol::Tcp, address.parse().unwrap(), port)
}

fn server(address: &str, port: u16, weight: u32) -> Destination {
    Destination::masquerade(address.parse().unwrap(), port, weight)
}

fn execute(socket: &mut Socket, requests: &[Request]) {
    for result in socket.execute(requests, 64) {
        result.unwrap();
    }
}

/// The lines of `ipvsadm -Sn`, sorted.
fn witness() -> BTreeSet<String> {
    output_of("ipvsadm", &["-S", "-n"])
        .lines()
        .map(str::to_owned)
        .collect()
}

fn lines(expected: &[&str]) -> BTreeSet<String> {
    expected.iter().map(|line| (*line).to_owned()).collect()
}

fn info_agrees_with_proc() {
    let info = Socket::open().unwrap().info().unwrap();
    let proc = std::fs::read_to_string("/proc/net/ip_vs").unwrap();
    let first = proc
        .lines()
        .next()
        .unwrap()
        .replace("IP Virtual Server version", "IPVS");
    assert_eq!(info.to_string(), first);
}

fn services_and_real_servers_appear_in_ipvsadm() {
    let mut socket = Socket::open().unwrap();
    let web = tcp("10.96.0.1", 443);
    let six = tcp("fd00::1", 443);
    let dns = ServiceKey::address(Protocol::Udp, "10.96.0.10".parse().unwrap(), 53);
    let sctp = ServiceKey::address(Protocol::Sctp, "fd00::2".parse().unwrap(), 9999);
    execute(
        &mut socket,
        &[
            Request::NewService(Service::new(web, "rr")),
            Request::NewDestination(web, server("10.0.0.1", 6443, 1)),
            Request::NewDestination(web, server("10.0.0.2", 6443, 0)),
            Request::NewService(Service::new(six, "wrr")),
            Request::NewDestination(six, server("fd00:1::7", 6443, 100)),
            Request::NewService(Service::new(dns, "sh")),
            Request::NewService(Service::new(sctp, "lc")),
        ],
    );
    let expected = lines(&[
        "-A -t 10.96.0.1:443 -s rr",
        "-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1",
        "-a -t 10.96.0.1:443 -r 10.0.0.2:6443 -m -w 0",
        "-A -t [fd00::1]:443 -s wrr",
        "-a -t [fd00::1]:443 -r [fd00:1::7]:6443 -m -w 100",
        "-A -u 10.96.0.10:53 -s sh",
        "-A --sctp-service [fd00::2]:9999 -s lc",
    ]);
    assert_eq!(witness(), expected);

    let shown: BTreeSet<ServiceKey> = socket.services().unwrap().iter().map(|s| s.key).collect();
    assert_eq!(shown, BTreeSet::from([web, six, dns, sctp]));
    assert_eq!(
        socket.destinations(&six).unwrap(),
        [server("fd00:1::7", 6443, 100)]
    );
    assert_eq!(socket.destinations(&dns).unwrap(), []);
    let read = socket.service(&six).unwrap();
    assert!(read.same_settings(&Service::new(six, "wrr")), "{read:?}");
    assert!(read.flags.contains(Flags::HASHED));
}

fn what_ipvsadm_writes_is_read_back() {
    let admin = |arguments: &str| {
        output_of("ipvsadm", &arguments.split(' ').collect::<Vec<_>>());
    };
    admin("-A -t 10.96.0.1:80 -s sh -p 600 -M 255.255.255.0 -b sh-port,sh-fallback");
    admin("-A -t [fd00::1]:80 -s rr -p 30 -M 64");
    admin("-A -u 10.96.0.1:53 -s rr -o");
    admin("-a -t 10.96.0.1:80 -r 10.0.0.1:80 -g -w 7 -x 100 -y 50");
    admin("-a -t 10.96.0.1:80 -r 10.0.0.2:80 -i -w 8");
    admin("-a -t 10.96.0.1:80 -r 10.0.0.3:80 -i -w 9 --tun-type gue --tun-port 6080");

    let mut socket = Socket::open().unwrap();
    let key = tcp("10.96.0.1", 80);
    let mut expected = Service::new(key, "sh").persistent(600);
    expected.netmask = 24;
    expected.flags = expected.flags | Flags::SCHED1 | Flags::SCHED2;
    let read = socket.service(&key).unwrap();
    assert!(read.same_settings(&expected), "{read:?}");

    let six = tcp("fd00::1", 80);
    let mut expected = Service::new(six, "rr").persistent(30);
    expected.netmask = 64;
    let read = socket.service(&six).unwrap();
    assert!(read.same_settings(&expected), "{read:?}");

    let dns = ServiceKey::address(Protocol::Udp, "10.96.0.1".parse().unwrap(), 53);
    assert!(
        socket
            .service(&dns)
            .unwrap()
            .flags
            .contains(Flags::ONE_PACKET)
    );

    let mut servers = socket.destinations(&key).unwrap();
    servers.sort_by_key(Destination::key);
    let [direct, tunnel, gue] = &servers[..] else {
        panic!("three were added: {servers:?}")
    };
    assert_eq!(
        (direct.forwarding, direct.weight),
        (Forwarding::DirectRouting, 7)
    );
    assert_eq!((direct.upper_threshold, direct.lower_threshold), (100, 50));
    assert_eq!((tunnel.forwarding, tunnel.weight), (Forwarding::Tunnel, 8));
    assert_eq!(
        gue.tunnel,
        Tunnel {
            kind: 1,
            port: 6080,
            flags: 0
        }
    );

    write_back(&mut socket);
}

/// Values that were read can be written back: ipvsadm prints the same lines.
fn write_back(socket: &mut Socket) {
    let before = witness();
    let mut writes = Vec::new();
    for service in socket.services().unwrap() {
        let key = service.key;
        writes.push(Request::SetService(service));
        let servers = socket.destinations(&key).unwrap();
        writes.extend(
            servers
                .into_iter()
                .map(|server| Request::SetDestination(key, server)),
        );
    }
    execute(socket, &writes);
    assert_eq!(witness(), before);
}

fn settings_are_changed_and_removed() {
    let mut socket = Socket::open().unwrap();
    let key = tcp("10.96.0.1", 80);
    let mut limited = server("10.0.0.2", 80, 5);
    limited.upper_threshold = 9;
    execute(
        &mut socket,
        &[
            Request::NewService(Service::new(key, "rr").persistent(60)),
            Request::NewDestination(key, server("10.0.0.1", 80, 1)),
            Request::NewDestination(key, server("10.0.0.2", 80, 1)),
            // A flag that is left out is cleared.
            Request::SetService(Service::new(key, "wlc")),
            Request::SetDestination(key, limited.clone()),
            Request::DelDestination(key, server("10.0.0.1", 80, 1).key()),
        ],
    );
    assert_eq!(
        witness(),
        lines(&[
            "-A -t 10.96.0.1:80 -s wlc",
            "-a -t 10.96.0.1:80 -r 10.0.0.2:80 -m -w 5"
        ])
    );
    // `ipvsadm -S` does not print thresholds.
    let table = output_of("ipvsadm", &["-L", "-n", "--thresholds"]);
    let line = table
        .lines()
        .find(|line| line.contains("10.0.0.2:80"))
        .unwrap();
    assert!(
        line.split_whitespace()
            .collect::<Vec<_>>()
            .ends_with(&["9", "0", "0", "0"]),
        "{line}"
    );
    assert_eq!(socket.destinations(&key).unwrap(), [limited]);
    execute(&mut socket, &[Request::DelService(key)]);
    assert_eq!(witness(), BTreeSet::new());
    assert!(socket.service(&key).unwrap_err().is_not_found());
}

fn a_thousand_services_with_ten_servers() {
    let mut socket = Socket::open().unwrap();
    let mut requests = Vec::new();
    let mut expected = BTreeSet::new();
    for index in 0..1000_u32 {
        let address = IpAddr::from((0x0a60_0000_u32 + index).to_be_bytes());
        let key = ServiceKey::address(Protocol::Tcp, address, 80);
        requests.push(Request::NewService(Service::new(key, "rr")));
        expected.insert(format!("-A -t {address}:80 -s rr"));
        for backend in 0..10_u32 {
            let backend = IpAddr::from((0x0af4_0000_u32 + index * 10 + backend).to_be_bytes());
            let server = Destination::masquerade(backend, 8080, 1);
            requests.push(Request::NewDestination(key, server));
            expected.insert(format!("-a -t {address}:80 -r {backend}:8080 -m -w 1"));
        }
    }
    let before = socket.counters();
    execute(&mut socket, &requests);
    let after = socket.counters();
    assert_eq!(after.messages - before.messages, 11_000);
    assert_eq!(after.sends - before.sends, 11_000_u64.div_ceil(64));
    assert_eq!(witness(), expected);

    let services = socket.services().unwrap();
    assert_eq!(services.len(), 1000);
    let total: usize = services
        .iter()
        .map(|s| socket.destinations(&s.key).unwrap().len())
        .sum();
    assert_eq!(total, 10_000);
    let removals: Vec<Request> = services
        .iter()
        .map(|service| Request::DelService(service.key))
        .collect();
    execute(&mut socket, &removals);
    assert_eq!(witness(), BTreeSet::new());
}

fn foreign_firewall_mark_services_are_listed() {
    output_of("ipvsadm", &["-A", "-f", "7", "-s", "wlc"]);
    output_of("ipvsadm", &["-A", "-f", "8", "-6", "-s", "rr"]);
    let mut socket = Socket::open().unwrap();
    let mut keys: Vec<String> = socket
        .services()
        .unwrap()
        .iter()
        .map(|service| service.key.to_string())
        .collect();
    keys.sort();
    assert_eq!(keys, ["fwmark 7 ipv4", "fwmark 8 ipv6"]);
    let key = ServiceKey::FirewallMark {
        mark: 8,
        family: Family::Ipv6,
    };
    execute(
        &mut socket,
        &[Request::NewDestination(key, server("fd00::9", 80, 1))],
    );
    assert_eq!(
        socket.destinations(&key).unwrap(),
        [server("fd00::9", 80, 1)]
    );
    execute(&mut socket, &[Request::DelService(key)]);
    assert_eq!(witness(), lines(&["-A -f 7 -s wlc"]));
}

fn the_socket_survives_a_module_reload() {
    let mut socket = Socket::open().unwrap();
    let key = tcp("10.96.0.1", 80);
    // Schedulers use the module, and so do namespaces that are still being removed.
    let unload = || {
        let script = "for s in $(lsmod | sed -n 's/^\\(ip_vs_[a-z]*\\) .*/\\1/p'); do rmmod $s; done; rmmod ip_vs";
        Command::new("sh").args(["-c", script]).output().unwrap()
    };
    let output = unload();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output_of("modprobe", &["ip_vs"]);
    execute(&mut socket, &[Request::NewService(Service::new(key, "rr"))]);
    assert_eq!(witness(), lines(&["-A -t 10.96.0.1:80 -s rr"]));

    execute(&mut socket, &[Request::DelService(key)]);
    assert!(unload().status.success());
    output_of("modprobe", &["ip_vs"]);
    assert_eq!(socket.services().unwrap(), []);
}
