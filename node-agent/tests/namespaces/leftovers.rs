//! Objects that remain after an agent was killed or removed: some expire in the kernel, a cleanup removes the rest.

use std::time::{Duration, Instant};

use portolan_agent::kernel::Kernel as _;
use portolan_plan::Family;
use portolan_reconcile::{Op, Owned, SPARE_SET, SetEntry, SetId, SetOp, SetRole, cleanup};

use super::{DEVICE, Here, ip, plan};
use netlink_blocking::testing::runner::output_of;

/// Timeout for the expiry of an entry, which takes 5 s.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn cleanup_is_exact() {
    let mut here = Here::new();
    output_of("ipset", &["create", "MINE", "hash:ip"]);
    output_of("iptables", &["-N", "MINE"]);
    output_of("iptables", &["-A", "MINE", "-j", "RETURN"]);
    output_of("iptables", &["-A", "INPUT", "-j", "MINE"]);
    ip("route add local 198.51.100.0/24 dev eth0 table local");
    let before = state();
    here.pass(&plan());
    assert_ne!(state(), before);
    for attempt in 1..=2 {
        clean(&mut here);
        assert_eq!(state(), before, "S-196, S-197, S-198, attempt {attempt}");
    }
}

/// Sets, rules and local routes as shown by other tools, without counters and times. Links are not included,
/// because the device is gone after a cleanup but existed before.
fn state() -> Vec<String> {
    let texts = [
        output_of("ipset", &["save"]),
        output_of("iptables-save", &[]),
        output_of("ip6tables-save", &[]),
        ip("route show table local proto static"),
        ip("route show table local proto boot"),
        ip("route show table all proto 112"),
        ip("-6 route show table all proto 112"),
        ip("rule show"),
        ip("-6 rule show"),
    ];
    let tables_only = |line: &&str| !line.starts_with('#') && !line.starts_with("COMMIT");
    let shown = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
    let mut lines: Vec<_> = texts
        .iter()
        .flat_map(|t| t.lines())
        .filter(tables_only)
        .map(shown)
        .collect();
    // Built-in chains and tables are created at first use, and stay.
    lines.retain(|line| !line.starts_with('*') && !line.contains(" ACCEPT"));
    lines
}

fn clean(here: &mut Here) {
    let observed = here.look();
    for ops in cleanup(&observed, &Owned::default(), DEVICE) {
        for result in here.apply(&ops) {
            result.unwrap();
        }
    }
}

/// S-198: also if the rules and other sets are already gone.
pub(crate) fn spare_set_goes() {
    let mut here = Here::new();
    let before = state();
    for programmed in [true, false] {
        if programmed {
            here.pass(&plan());
        }
        output_of("ipset", &["create", SPARE_SET, "hash:ip,port"]);
        output_of("ipset", &["add", SPARE_SET, "10.96.0.1,tcp:443"]);
        clean(&mut here);
        assert_eq!(state(), before, "after a pass: {programmed}");
    }
}

/// Local routes over the agent's device, and a set with a name that is no longer used.
pub(crate) fn first_version_goes() {
    let mut here = Here::new();
    ip("link set portolan0 up");
    ip("route add local 10.96.0.0/12 dev portolan0 table local proto static");
    ip("route add local 203.0.113.7 dev portolan0 table local proto static");
    output_of("ipset", &["create", "PORTOLAN-VIPNET", "hash:net"]);
    output_of("iptables", &["-N", "PORTOLAN-INPUT"]);
    let vipnet = ["-m", "set", "--match-set", "PORTOLAN-VIPNET", "dst"];
    let refuses = ["-A", "PORTOLAN-INPUT", "-j", "DROP"];
    output_of("iptables", &[&refuses[..], &vipnet].concat());
    here.pass(&plan());
    let local = ip("route show table local dev portolan0 proto static");
    assert_eq!(local.trim(), "");
    let sets = output_of("ipset", &["list", "-n"]);
    assert!(!sets.contains("VIPNET"), "{sets}");
    assert_eq!(here.pass(&plan()), []);
}

fn hold() -> SetId {
    SetId {
        role: SetRole::Hold,
        family: Family::Ipv4,
    }
}

fn saved_hold() -> String {
    output_of("ipset", &["save", "PORTOLAN-HOLD"])
}

/// I-8: the agent that should release the connections is gone.
pub(crate) fn held_is_released() {
    let mut here = Here::new();
    here.pass(&plan());
    let quiet = saved_hold();
    assert!(quiet.contains(" timeout 5"), "{quiet}");
    let entry = SetEntry::AddressPort {
        address: [10, 96, 0, 1].into(),
        protocol: portolan_plan::Protocol::Tcp,
        port: 443,
    };
    let set = hold();
    for result in here.apply(&[Op::Set(SetOp::AddEntry { set, entry })]) {
        result.unwrap();
    }
    assert!(here.look().sets[&set].entries.contains(&entry));
    let begin = Instant::now();
    while saved_hold().contains("10.96.0.1,tcp:443") {
        assert!(begin.elapsed() < LIMIT, "{}", saved_hold());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(saved_hold(), quiet);
    assert_eq!(here.pass(&plan()), []);
    // A late release finds no entry, which is not a failure.
    for result in here.apply(&[Op::Set(SetOp::DeleteEntry { set, entry })]) {
        result.unwrap();
    }
}

/// I-8: a hold set of an older agent has no timeout and is in use by the rules.
pub(crate) fn old_hold_is_replaced() {
    let mut here = Here::new();
    here.pass(&plan());
    output_of("ipset", &["create", "old", "hash:ip,port"]);
    output_of("ipset", &["add", "old", "10.96.0.1,tcp:443"]);
    output_of("ipset", &["swap", "old", "PORTOLAN-HOLD"]);
    output_of("ipset", &["destroy", "old"]);
    let written: Vec<_> = here.pass(&plan()).iter().map(ToString::to_string).collect();
    let replaced = "replace set PORTOLAN-HOLD with one for 65536 entries, filled with 0";
    assert_eq!(written, [replaced]);
    let saved = saved_hold();
    assert!(
        saved.contains(" timeout 5") && !saved.contains("add"),
        "{saved}"
    );
    assert_eq!(here.pass(&plan()), []);
}
