//! The node's own network: reading it, and events of its changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use portolan_agent::kernel::Kernel as _;
use portolan_agent::kernel::linux::{
    Events, IptablesChoice, LinuxKernel, SettingsWatch, read_sysctl, restore_sysctl,
};
use portolan_reconcile::{HostAddress, InterfaceKind, Op, RESERVED_PORTS, SysctlOp, sysctls};

use super::{DEVICE, Here, ip, plan};

/// Timeout for a notification.
const LIMIT: Duration = Duration::from_secs(10);
/// Time without notifications after which a change has no further effects; much longer than the debouncing.
const SETTLED: Duration = Duration::from_secs(1);

pub(crate) fn interfaces_are_seen() {
    let mut here = Here::new();
    ip("link add cni0 type bridge");
    ip("address add 10.244.1.1/24 dev cni0");
    let host = here.look().host;
    let kind = |name: &str| {
        let mut all = host.interfaces.iter();
        let found = all.find(|interface| &*interface.name == name);
        found.map(|found| found.kind)
    };
    assert_eq!(kind("lo"), Some(InterfaceKind::Other));
    assert_eq!(kind("eth0"), Some(InterfaceKind::Veth));
    assert_eq!(kind("cni0"), Some(InterfaceKind::Bridge));
    assert_eq!(kind(DEVICE), None, "the agent's device is not the host's");
    for (interface, address) in [("eth0", "192.168.50.1/24"), ("cni0", "10.244.1.1/24")] {
        let wanted = HostAddress::on(interface, address.parse().unwrap());
        assert!(host.addresses.contains(&wanted), "{:?}", host.addresses);
    }
    let names = sysctls(plan().node().unwrap(), &host, &BTreeSet::new());
    let wanted = "net.bridge.bridge-nf-call-iptables";
    assert!(names.contains_key(wanted), "{wanted}: {names:?}");
    assert_eq!(here.look().host, host, "two reads agree");
}

/// S-242: the kernel answers only the first read of such a list.
pub(crate) fn long_settings_are_read() {
    let _here = Here::new();
    let ports: Vec<String> = (0..3_000).map(|n| (20_001 + 2 * n).to_string()).collect();
    let wanted = ports.join(",");
    restore_sysctl(RESERVED_PORTS, &wanted).unwrap();
    let found = read_sysctl(&RESERVED_PORTS.into());
    assert_eq!(found.map(|(_, value)| value.to_string()), Some(wanted));
}

/// The kernel sends no event for a change of a setting.
pub(crate) fn settings_are_watched() {
    let _here = Here::new();
    let state = tempfile::tempdir().unwrap();
    let mut kernel = LinuxKernel::open(IptablesChoice::Auto, state.path()).unwrap();
    let name: Arc<str> = "net.ipv4.ip_forward".into();
    restore_sysctl(&name, "0").unwrap();
    let (ring, bell) = sync_channel(1);
    let ring = move || ring.try_send(()).unwrap_or_default();
    let watch = SettingsWatch::start(kernel.known_settings(), ring).unwrap();
    kernel.sysctls(&[name.clone()].into());
    kernel.sysctls(&["net.ipv4.ip_default_ttl".into()].into());
    let op = SysctlOp {
        name: name.clone(),
        value: "1".into(),
    };
    kernel.apply(&[Op::Sysctl(op)]).remove(0).unwrap();
    let nothing = bell.recv_timeout(3 * SETTLED);
    assert!(nothing.is_err(), "the agent's own change");
    restore_sysctl(&name, "0").unwrap();
    assert_eq!(bell.recv_timeout(LIMIT), Ok(()), "a change by others");
    assert!(bell.recv_timeout(3 * SETTLED).is_err(), "once");
    drop(watch);
    assert!(bell.recv().is_err(), "the thread has ended");
}

/// S-37: each kind of change, both families, from the kernel itself.
pub(crate) fn events_ring() {
    let mut here = Here::new();
    // Otherwise devices get an automatic address some seconds after they are set up.
    for device in [DEVICE, "stub", "eth0", "wire"] {
        ip(&format!("link set {device} addrgenmode none"));
    }
    let (ring, bell) = sync_channel(1);
    // A pending notification covers later ones.
    let ring = move || ring.try_send(()).unwrap_or_default();
    let events = Events::of_network(here.links.port(), ring).unwrap();
    let quiet = |bell: &Receiver<()>| while bell.recv_timeout(SETTLED).is_ok() {};
    ip("link add dummy7 type veth peer name stub7");
    assert_eq!(bell.recv_timeout(LIMIT), Ok(()), "link add dummy7");
    // The kernel sends no event for this while the device is down.
    ip("link set dummy7 addrgenmode none");
    quiet(&bell);
    for change in [
        "link set dummy7 up",
        "address add 192.168.77.1/24 dev eth0",
        "address del 192.168.77.1/24 dev eth0",
        "address add fd00:77::1/64 dev eth0 nodad",
        "address del fd00:77::1/64 dev eth0",
        "route add 10.99.0.0/16 via 192.168.50.9",
        "route del 10.99.0.0/16",
        "route add fd00:99::/64 via fd00:50::9",
        "route del fd00:99::/64",
        "rule add pref 77 lookup main",
        "rule del pref 77",
        "-6 rule add pref 77 lookup main",
        "-6 rule del pref 77",
        "link del dummy7",
    ] {
        ip(change);
        assert_eq!(bell.recv_timeout(LIMIT), Ok(()), "{change}");
        quiet(&bell);
    }
    here.pass(&plan());
    // Setting the device up causes events.
    quiet(&bell);
    ip("route del 10.96.0.0/12 dev portolan0");
    assert_eq!(
        bell.recv_timeout(LIMIT),
        Ok(()),
        "a deleted route of the agent"
    );
    let written = here.pass(&plan());
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(
        bell.recv_timeout(SETTLED).is_err(),
        "the agent's own changes cause no notification"
    );
    drop(events);
    assert!(bell.recv().is_err(), "the listener has ended");
}

/// More events than the socket buffer holds: lost events cause a notification, and later ones are received.
pub(crate) fn flood_is_survived() {
    let here = Here::new();
    // Rendezvous channel: the listener does not read events until the test takes the notification.
    let (ring, bell) = sync_channel(0);
    let (ringing, rings) = sync_channel(1);
    let ring = move || {
        ringing.try_send(()).unwrap_or_default();
        ring.send(()).unwrap_or_default();
    };
    let events = Events::of_network(here.links.port(), ring).unwrap();
    ip("address add 192.168.77.1/24 dev eth0");
    let folder = tempfile::tempdir().unwrap();
    let batch = folder.path().join("batch");
    let routes = |word: &str| -> String {
        let line = |n: u32| format!("route {word} 10.{}.{}.0/24 dev eth0\n", n / 250, n % 250);
        (0..5_000).map(line).collect()
    };
    assert_eq!(rings.recv_timeout(LIMIT), Ok(()), "the listener is stuck");
    std::fs::write(&batch, routes("add") + &routes("del")).unwrap();
    ip(&format!("-batch {}", batch.display()));
    assert!(lost_events() > 0);
    assert_eq!(
        bell.recv_timeout(LIMIT),
        Ok(()),
        "the notification before the flood"
    );
    assert_eq!(bell.recv_timeout(LIMIT), Ok(()), "the flood");
    while bell.recv_timeout(SETTLED).is_ok() {}
    ip("address del 192.168.77.1/24 dev eth0");
    assert_eq!(bell.recv_timeout(LIMIT), Ok(()), "a change after it");
    drop(bell);
    drop(events);
}

/// The number of events that netlink sockets in this namespace have lost.
fn lost_events() -> u64 {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let drops = |line: &str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        assert_eq!(columns.len(), 10, "{line}");
        columns[8].parse::<u64>().unwrap()
    };
    sockets.lines().skip(1).map(drops).sum()
}
