//! Sets, rules, routes and nftables tables on the machine's own kernel, in fresh network namespaces. Virtual servers stay
//! in the model, since this kernel may have no IPVS. The results are checked with `ipset`, `iptables-save`, `nft`,
//! `conntrack` and `ip`, which share no code with the agent.
//!
//! Run with `cargo test -p portolan-agent --test namespaces`: as root, or where user namespaces
//! are allowed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test program without the test harness"
)]

#[path = "namespaces/flows.rs"]
mod flows;
#[path = "namespaces/leftovers.rs"]
mod leftovers;
#[path = "namespaces/network.rs"]
mod network;
#[path = "namespaces/sets.rs"]
mod sets;
#[path = "namespaces/tables/mod.rs"]
mod tables;
mod variants;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;

use netlink_blocking::testing::runner::{Test, become_root, output_of, run};
use portolan_agent::kernel::linux::{IptablesChoice, Links, Rules, Sets, only};
use portolan_agent::kernel::{Kernel, KernelError, SharedModel, SharedTables, StaleFlows};
use portolan_plan::{Family, NodePlan, PlanDocument};
use portolan_reconcile::{Connections, Op, OpKind, Owned, VirtualServerKey, diff};
use portolan_reconcile::{Desired, Flow, HostAddress, HostNetwork, Network, Observed};

const TESTS: &[Test] = &[
    (
        "a_plan_is_programmed_and_a_second_pass_writes_nothing",
        programmed_and_quiet,
    ),
    (
        "rules_of_every_mode_are_recognised_in_both_variants",
        variants::every_mode_is_quiet,
    ),
    (
        "the_variant_in_use_on_the_node_is_found",
        variants::the_one_in_use_is_found,
    ),
    ("rules_move_to_the_configured_variant", variants::rules_move),
    (
        "rules_are_read_again_only_after_a_change",
        variants::unchanged_rules_are_known,
    ),
    (
        "cleanup_removes_rules_from_both_variants",
        variants::cleanup_takes_both,
    ),
    (
        "rules_wait_for_the_iptables_lock",
        variants::the_lock_is_waited_for,
    ),
    (
        "the_release_of_the_iptables_lock_is_seen",
        variants::the_release_of_the_lock_is_seen,
    ),
    (
        "drift_is_repaired_and_nothing_else_is_changed",
        drift_is_repaired,
    ),
    (
        "a_service_range_that_overlaps_the_node_is_left_alone",
        overlap_is_left_alone,
    ),
    (
        "leftovers_of_the_first_version_are_removed",
        leftovers::first_version_goes,
    ),
    (
        "a_nat_jump_is_moved_before_those_of_other_programs",
        nat_comes_first,
    ),
    (
        "interfaces_are_read_correctly",
        network::interfaces_are_seen,
    ),
    (
        "a_long_list_of_reserved_ports_is_read_whole",
        network::long_settings_are_read,
    ),
    (
        "changed_settings_are_noticed",
        network::settings_are_watched,
    ),
    ("every_change_by_others_is_notified", network::events_ring),
    ("a_flood_is_survived", network::flood_is_survived),
    (
        "cleanup_removes_only_the_agents_objects",
        leftovers::cleanup_is_exact,
    ),
    (
        "cleanup_removes_a_spare_set_left_by_a_crash",
        leftovers::spare_set_goes,
    ),
    (
        "connections_held_by_a_killed_agent_are_released_by_the_kernel",
        leftovers::held_is_released,
    ),
    (
        "a_hold_set_without_a_timeout_is_replaced",
        leftovers::old_hold_is_replaced,
    ),
    (
        "sets_of_other_types_are_recreated",
        sets::other_types_are_replaced,
    ),
    (
        "a_used_set_of_another_type_is_reported",
        sets::a_used_set_of_another_type_is_reported,
    ),
    (
        "a_set_grows_beyond_its_initial_size",
        sets::sets_grow_beyond_their_size,
    ),
];

fn main() -> ExitCode {
    become_root();
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    if run(
        &[TESTS, flows::TESTS, tables::TESTS].concat(),
        || {},
        &filters,
    ) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const DEVICE: &str = "portolan0";

/// The real kernel, except for virtual servers and settings.
struct Here {
    links: Links,
    sets: Sets,
    rules: Rules,
    rest: SharedModel,
}

impl Here {
    /// A namespace with its devices.
    fn new() -> Self {
        Self::with(IptablesChoice::Auto)
    }

    /// A namespace with its devices, and the rules in this variant.
    fn with(iptables: IptablesChoice) -> Self {
        lay_cables();
        Self::open(iptables)
    }

    fn open(iptables: IptablesChoice) -> Self {
        Self {
            links: Links::open().unwrap(),
            sets: Sets::open().unwrap(),
            rules: Rules::find(iptables).unwrap(),
            rest: SharedModel::default(),
        }
    }

    fn look(&mut self) -> Observed {
        let network = self.network(DEVICE).unwrap();
        self.observe(network, BTreeMap::new(), None).unwrap()
    }

    /// Runs one pass and returns the written operations.
    fn pass(&mut self, plan: &NodePlan) -> Vec<Op> {
        let observed = self.look();
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
    type Tables = SharedTables;

    fn open_tables(&mut self) -> Result<SharedTables, KernelError> {
        self.rest.open_tables()
    }

    fn may_have_tables(&mut self) -> bool {
        self.rest.may_have_tables()
    }

    fn network(&mut self, device: &str) -> Result<Network, KernelError> {
        self.links.observe(device)
    }

    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
        self.rest.sysctls(names)
    }

    fn has_scheduler(&mut self, name: &str) -> bool {
        self.rest.has_scheduler(name)
    }

    fn observe(
        &mut self,
        network: Network,
        _: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError> {
        let reading = self.rules.begin_reading();
        let rules = self.rules.observe(reading);
        // The settings are those written to the model.
        let settings = self.rest.lock().state.sysctls.clone();
        Ok(Observed {
            sets: self.sets.observe()?,
            leftover_sets: self.sets.leftovers()?,
            rules: rules
                .into_iter()
                .map(|(family, found)| Ok((family, found?)))
                .collect::<Result<_, KernelError>>()?,
            ..self.rest.observe(network, settings, wanted)?
        })
    }

    fn prepare(&mut self, ops: &[Op]) {
        self.rules.prepare(&only(ops, Op::rules));
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        ops.chunk_by(|left, right| left.kind() == right.kind())
            .flat_map(|run| match run[0].kind() {
                OpKind::Link => self.links.apply(&only(run, Op::link)),
                OpKind::Set => self.sets.apply(&only(run, Op::set)),
                OpKind::Rules => self.rules.apply(&only(run, Op::rules)),
                OpKind::Ipvs | OpKind::Scheduler | OpKind::Sysctl => self.rest.apply(run),
            })
            .collect()
    }

    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError> {
        self.rest.connections(servers)
    }

    fn stale_flows(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        self.rest.stale_flows(family, is_stale)
    }

    fn forget_flows(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        self.rest.forget_flows(flows)
    }
}

/// The node's addresses, and a veth instead of the dummy device, which this kernel may lack.
fn lay_cables() {
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
}

fn ip(arguments: &str) -> String {
    output_of("ip", &arguments.split(' ').collect::<Vec<_>>())
}

fn plan() -> NodePlan {
    let document: PlanDocument = serde_json::from_str(include_str!("plans/node-a.json")).unwrap();
    document.into_plan().unwrap()
}

fn desired() -> Desired {
    let addresses = ["192.168.50.1/24", "fd00:50::1/64"]
        .map(|address| HostAddress::on("eth0", address.parse().unwrap()));
    let host = HostNetwork {
        addresses: addresses.into(),
        ..HostNetwork::default()
    };
    Desired::new(&plan(), &host).unwrap()
}

/// All sets as `ipset` shows them.
fn witnessed_sets() -> BTreeMap<String, BTreeSet<String>> {
    let mut sets = BTreeMap::<String, BTreeSet<String>>::new();
    for line in output_of("ipset", &["save"]).lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["create", name, ..] => drop(sets.entry(name.into()).or_default()),
            ["add", name, entry, ..] => drop(sets.get_mut(name).unwrap().insert(entry.into())),
            _ => panic!("unexpected output of ipset save: {line:?}"),
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
    for (family, range) in [("-4", "10.96.0.0/12"), ("-6", "fd00:10:96::/112")] {
        let routes = ip(&format!("{family} route show dev portolan0 proto 112"));
        let wanted = match family {
            "-4" => format!("{range} scope link src 192.168.50.1 metric 10270"),
            _ => format!("{range} src fd00:50::1 metric 10270 pref medium"),
        };
        assert_eq!(routes.trim(), wanted);
        let table = ip(&format!("{family} route show table 10270"));
        assert!(
            table.starts_with("local default dev lo proto 112"),
            "{table}"
        );
        assert_eq!(table.lines().count(), 1, "{table}");
        assert_eq!(policy(family), POLICY);
    }
    let saved = output_of("iptables-save", &[]);
    assert_eq!(
        saved
            .lines()
            .filter(|line| line.contains("-j PORTOLAN-"))
            .count(),
        13,
        "{saved}"
    );
    let before = (saved, output_of("ip6tables-save", &[]));
    assert_eq!(
        here.pass(&plan()),
        [],
        "a second pass over the desired state (S-157)"
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
    ip("route del 10.96.0.0/12 dev portolan0");
    ip("-6 rule del pref 91");
    let written: Vec<_> = here.pass(&plan()).iter().map(ToString::to_string).collect();
    assert_eq!(
        written,
        [
            "load IPv4 rules".to_owned(),
            "load IPv6 rules".into(),
            format!("add {frontend} to set PORTOLAN-FRONTEND"),
            "add route 10.96.0.0/12 dev portolan0 proto 112 src 192.168.50.1 metric 10270".into(),
            "add IPv6 policy rule pref 91 fwmark 0x1000/0x1000 lookup 10270 proto 112".into(),
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

/// The agent's policy rules as `ip` shows them.
const POLICY: [&str; 3] = [
    "90: from all fwmark 0x1000/0x5000 iif lo goto 92 proto 112",
    "91: from all fwmark 0x1000/0x1000 lookup 10270 proto 112",
    "92: from all nop proto 112",
];

fn policy(family: &str) -> Vec<String> {
    let all = ip(&format!("{family} rule show"));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = all.lines().map(words);
    lines.filter(|line| line.ends_with("proto 112")).collect()
}

/// S-30: a service range that overlaps the node's network makes nothing unreachable.
fn overlap_is_left_alone() {
    let mut here = Here::new();
    ip("route add 10.100.0.0/16 via 192.168.50.9");
    here.pass(&plan());
    let routes = || ip("-4 route show dev portolan0");
    assert_eq!(routes().trim(), "");
    assert!(witnessed_sets()["PORTOLAN-RANGES"].is_empty());
    assert_eq!(policy("-4"), POLICY, "Services are served regardless");
    ip("route del 10.100.0.0/16");
    here.pass(&plan());
    assert!(routes().starts_with("10.96.0.0/12"), "{}", routes());
    assert_eq!(witnessed_sets()["PORTOLAN-RANGES"].len(), 1);
}

/// S-166: also if the jump existed before those of other programs.
fn nat_comes_first() {
    let mut here = Here::new();
    here.pass(&plan());
    let first = |chain: &str| {
        let all = output_of("iptables", &["-t", "nat", "-S", chain]);
        all.lines().nth(1).unwrap_or_default().to_owned()
    };
    for chain in ["PREROUTING", "OUTPUT"] {
        let host_ports = ["-m", "addrtype", "--dst-type", "LOCAL", "-j", "RETURN"];
        let insert = ["-t", "nat", "-I", chain, "1"];
        output_of("iptables", &[&insert[..], &host_ports].concat());
    }
    let written: Vec<_> = here.pass(&plan()).iter().map(ToString::to_string).collect();
    assert_eq!(written, ["load IPv4 rules"]);
    for chain in ["PREROUTING", "OUTPUT"] {
        assert_eq!(first(chain), format!("-A {chain} -j PORTOLAN-{chain}"));
    }
    assert_eq!(here.pass(&plan()), []);
}
