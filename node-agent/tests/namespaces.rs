//! Sets, rules and routes on the machine's own kernel, in fresh network namespaces; virtual
//! servers stay in the model, since this kernel may have no IPVS. Witnesses are `ipset`,
//! `iptables-save` and `ip`, which share no code with us.
//!
//! Run with `cargo test -p portolan-agent --test namespaces`: as root, or where user namespaces
//! are allowed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test program without the test harness"
)]

#[path = "../ipset-rs/tests/kernel_runner/mod.rs"]
mod kernel_runner;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_agent::kernel::linux::{Links, Rules, Sets};
use portolan_agent::kernel::{Kernel, KernelError, SharedModel};
use portolan_plan::{Family, NodePlan, PlanDocument};
use portolan_reconcile::{Desired, HostNetwork, Observed, Op, OpKind, Owned, cleanup, diff};

use kernel_runner::{Test, become_root, output_of, run};

const TESTS: &[Test] = &[
    (
        "a_plan_is_programmed_and_a_second_pass_writes_nothing",
        programmed_and_quiet,
    ),
    (
        "rules_of_every_way_to_tell_pods_are_recognised",
        every_detection_is_quiet,
    ),
    (
        "what_somebody_else_changed_is_put_right_and_nothing_else",
        drift_is_repaired,
    ),
    (
        "a_vanished_source_address_is_taken_off_the_route",
        source_follows_the_node,
    ),
    (
        "a_range_that_overlaps_a_route_is_routed_by_single_addresses",
        overlap_falls_back,
    ),
    ("cleanup_removes_ours_and_leaves_others", cleanup_is_exact),
];

fn main() -> ExitCode {
    become_root();
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    if run(TESTS, &filters) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const DEVICE: &str = "portolan0";

/// The real kernel but for virtual servers and settings.
struct Here {
    links: Links,
    sets: Sets,
    rules: Rules,
    rest: SharedModel,
}

impl Here {
    /// A namespace with a node's address, and a veth in the place of the dummy device that this
    /// kernel may lack.
    fn new() -> Self {
        for arguments in [
            "link set lo up",
            "link add eth0 type veth peer name wire",
            "link set wire up",
            "link set eth0 up",
            "address add 192.168.50.1/24 dev eth0",
            "address add fd00:50::1/64 dev eth0 nodad",
            "link add portolan0 type veth peer name stub",
            "link set stub up",
        ] {
            ip(arguments);
        }
        Self {
            links: Links::open().unwrap(),
            sets: Sets::open().unwrap(),
            rules: Rules::find().unwrap(),
            rest: SharedModel::default(),
        }
    }

    /// One pass: what was written.
    fn pass(&mut self, plan: &NodePlan) -> Vec<Op> {
        let observed = self.observe(DEVICE, &BTreeSet::new()).unwrap();
        let desired = Desired::new(plan, &observed.host).unwrap();
        let mut written = Vec::new();
        for (phase, ops) in diff(&observed, &desired, &Owned::default()) {
            for (op, result) in ops.iter().zip(self.apply(&ops)) {
                result.unwrap_or_else(|error| panic!("{phase:?}: {error}"));
                written.push(op.clone());
            }
        }
        written
    }
}

impl Kernel for Here {
    fn observe(
        &mut self,
        device: &str,
        sysctls: &BTreeSet<Arc<str>>,
    ) -> Result<Observed, KernelError> {
        let found = self.links.observe(device)?;
        let rules = |family| Ok((family, self.rules.observe(family)?));
        Ok(Observed {
            device_up: found.device_up,
            routes: found.routes,
            host: found.host,
            sets: self.sets.observe()?,
            rules: Family::BOTH
                .into_iter()
                .map(rules)
                .collect::<Result<_, KernelError>>()?,
            ..self.rest.observe(device, sysctls)?
        })
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        ops.chunk_by(|left, right| left.kind() == right.kind())
            .flat_map(|run| match run[0].kind() {
                OpKind::Link => run
                    .iter()
                    .map(|op| self.links.apply(op))
                    .collect::<Vec<_>>(),
                OpKind::Set => self.sets.apply(run),
                OpKind::Rules => run.iter().map(|op| self.rules.apply(op)).collect(),
                OpKind::Ipvs | OpKind::Sysctl => self.rest.apply(run),
            })
            .collect()
    }
}

fn ip(arguments: &str) -> String {
    output_of("ip", &arguments.split(' ').collect::<Vec<_>>())
}

fn plan() -> NodePlan {
    let document: PlanDocument = serde_json::from_str(include_str!("plans/node-a.json")).unwrap();
    document.into_plan().unwrap()
}

fn desired() -> Desired {
    let addresses = ["192.168.50.1", "fd00:50::1"].map(|address| portolan_reconcile::HostAddress {
        address: address.parse().unwrap(),
        peer: None,
    });
    let host = HostNetwork {
        addresses: addresses.into(),
        ..HostNetwork::default()
    };
    Desired::new(&plan(), &host).unwrap()
}

/// Every set of ours as `ipset` shows it.
fn witnessed_sets() -> BTreeMap<String, BTreeSet<String>> {
    let mut sets = BTreeMap::<String, BTreeSet<String>>::new();
    for line in output_of("ipset", &["save"]).lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["create", name, ..] => drop(sets.entry(name.into()).or_default()),
            ["add", name, entry, ..] => drop(sets.get_mut(name).unwrap().insert(entry.into())),
            _ => panic!("ipset save said {line:?}"),
        }
    }
    sets
}

fn wanted_sets() -> BTreeMap<String, BTreeSet<String>> {
    let entries = |set: &portolan_reconcile::DesiredSet| {
        set.entries
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
    };
    desired()
        .sets
        .iter()
        .map(|(id, set)| (id.to_string(), entries(set)))
        .collect()
}

fn programmed_and_quiet() {
    let mut here = Here::new();
    let written = here.pass(&plan());
    assert!(written.len() > 20, "{} operations", written.len());
    assert_eq!(witnessed_sets(), wanted_sets());
    assert_eq!(
        ip("-4 route show table local dev portolan0 proto static").trim(),
        "local 10.96.0.0/12 scope host src 192.168.50.1"
    );
    let six = ip("-6 route show table local dev portolan0 proto static");
    assert!(
        six.starts_with("local fd00:10:96::/112 src fd00:50::1"),
        "{six}"
    );
    let saved = output_of("iptables-save", &[]);
    assert_eq!(
        saved
            .lines()
            .filter(|line| line.contains("-j PORTOLAN-"))
            .count(),
        8,
        "{saved}"
    );
    let before = (saved, output_of("ip6tables-save", &[]));
    assert_eq!(
        here.pass(&plan()),
        [],
        "a second pass over the right state (S-157)"
    );
    let strip = |text: String| -> Vec<String> {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let after = (
        output_of("iptables-save", &[]),
        output_of("ip6tables-save", &[]),
    );
    assert_eq!(
        (strip(before.0), strip(before.1)),
        (strip(after.0), strip(after.1))
    );
}

fn every_detection_is_quiet() {
    use portolan_plan::LocalDetection;
    let modes = [
        LocalDetection::ClusterCidr {
            cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        },
        LocalDetection::BridgeInterface {
            bridge: "cni0".into(),
        },
        LocalDetection::InterfaceNamePrefix {
            prefix: "fourteen-bytes".into(),
        },
    ];
    let mut here = Here::new();
    for mode in modes {
        let mut document: PlanDocument =
            serde_json::from_str(include_str!("plans/node-a.json")).unwrap();
        document.settings.local_detection = mode.clone();
        let plan = document.into_plan().unwrap();
        assert_ne!(here.pass(&plan), [], "{mode:?}");
        assert_eq!(here.pass(&plan), [], "{mode:?}");
    }
}

fn drift_is_repaired() {
    let mut here = Here::new();
    here.pass(&plan());
    let frontend = wanted_sets()["PORTOLAN-FRONTEND"].first().unwrap().clone();
    output_of("ipset", &["del", "PORTOLAN-FRONTEND", &frontend]);
    output_of("ipset", &["add", "PORTOLAN-PODS", "10.99.0.0/16"]);
    output_of("iptables", &["-D", "INPUT", "-j", "PORTOLAN-INPUT"]);
    output_of(
        "iptables",
        &["-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"],
    );
    output_of("ip6tables", &["-t", "nat", "-F", "PORTOLAN-POSTROUTING"]);
    ip("route del local 10.96.0.0/12 dev portolan0 table local");
    let written: Vec<_> = here.pass(&plan()).iter().map(ToString::to_string).collect();
    assert_eq!(
        written,
        [
            "load IPv4 rules".to_owned(),
            "load IPv6 rules".into(),
            format!("add {frontend} to set PORTOLAN-FRONTEND"),
            "add route local 10.96.0.0/12 dev portolan0 table local src 192.168.50.1".into(),
            "delete 10.99.0.0/16 from set PORTOLAN-PODS".into(),
        ]
    );
    assert_eq!(here.pass(&plan()), []);
    let saved = output_of("iptables-save", &["-t", "filter"]);
    assert!(
        saved.contains("-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"),
        "S-168: {saved}"
    );
}

fn source_follows_the_node() {
    let mut here = Here::new();
    here.pass(&plan());
    ip("address del 192.168.50.1/24 dev eth0");
    here.pass(&plan());
    let route = ip("-4 route show table local dev portolan0 proto static");
    assert_eq!(route.trim(), "local 10.96.0.0/12 scope host");
    ip("address add 192.168.50.1/24 dev eth0");
    here.pass(&plan());
    let route = ip("-4 route show table local dev portolan0 proto static");
    assert_eq!(
        route.trim(),
        "local 10.96.0.0/12 scope host src 192.168.50.1"
    );
}

fn overlap_falls_back() {
    let mut here = Here::new();
    ip("route add 10.100.0.0/16 via 192.168.50.9");
    here.pass(&plan());
    let routes = ip("-4 route show table local dev portolan0 proto static");
    assert!(!routes.contains("10.96.0.0/12"), "{routes}");
    let single: Vec<_> = routes
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(str::to_owned)
        .collect();
    let vips: BTreeSet<String> = witnessed_sets()["PORTOLAN-VIPNET"].clone();
    assert_eq!(single.into_iter().collect::<BTreeSet<_>>(), vips);
    assert!(
        vips.iter().all(|vip| vip.parse::<IpNet>().is_err()),
        "{vips:?}"
    );
    ip("route del 10.100.0.0/16");
    here.pass(&plan());
    let routes = ip("-4 route show table local dev portolan0 proto static");
    assert_eq!(routes.lines().count(), 1, "{routes}");
    assert!(routes.contains("10.96.0.0/12"), "{routes}");
}

fn cleanup_is_exact() {
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
        let observed = here.observe(DEVICE, &BTreeSet::new()).unwrap();
        for ops in cleanup(&observed, &Owned::default(), DEVICE) {
            for result in here.apply(&ops) {
                result.unwrap_or_else(|error| panic!("attempt {attempt}: {error}"));
            }
        }
        assert_eq!(state(), before, "S-196, S-197, S-198, attempt {attempt}");
    }
}

/// What witnesses show of sets, rules and local routes, without what counts packets or time. The
/// device of ours is gone after a cleanup, and was not up before; links do not count here.
fn state() -> Vec<String> {
    let texts = [
        output_of("ipset", &["save"]),
        output_of("iptables-save", &[]),
        output_of("ip6tables-save", &[]),
        ip("route show table local proto static"),
        ip("route show table local proto boot"),
    ];
    let tables_only = |line: &&str| !line.starts_with('#') && !line.starts_with("COMMIT");
    let shown = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
    let mut lines: Vec<_> = texts
        .iter()
        .flat_map(|t| t.lines())
        .filter(tables_only)
        .map(shown)
        .collect();
    // Built-in chains and tables appear once somebody used them, and stay.
    lines.retain(|line| !line.starts_with('*') && !line.contains(" ACCEPT"));
    lines
}
