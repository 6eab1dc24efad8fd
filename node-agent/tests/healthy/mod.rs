//! The facts of a healthy node: the result of a programmer in a model kernel, and files as kernels format them.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_agent::doctor::Facts;
use portolan_agent::doctor::facts::{
    Disk, Module, NetworkManagers, RUN_ESTIMATION, Sets, Tracked, reverse_path,
};
use portolan_agent::kernel::SharedModel;
use portolan_agent::kernel::linux::{Dump, MODULES, Tables, Variant};
use portolan_agent::saved::Origin;
use portolan_plan::{Dataplane, Family, NodePlan};
use portolan_reconcile::rules::{CHAIN_PREFIX, Rules};
use portolan_reconcile::{
    HostAddress, HostInterface, HostRoute, InterfaceKind, Machine, Observed, Ports, SetId,
};
use tempfile::TempDir;

use crate::running::{Running, document};

/// The current time in the tests.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_240)
}

/// The kubelet's rules on a node that never had a kube-proxy.
pub(crate) const KUBELET: &str = "\
*mangle
:PREROUTING ACCEPT [0:0]
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet \
connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -j MARK --set-xmark 0x2000/0x2000
COMMIT
";

pub(crate) fn healthy() -> Facts {
    let (observed, plan) = programmed();
    let mut facts = Facts {
        now: now(),
        node: Some("node-a".into()),
        privileged: Ok(true),
        state: ("/var/lib/portolan".into(), Ok(Some(disk()))),
        plan: Ok(Some((plan, origin()))),
        record: Ok(Some(observed.virtual_servers.keys().copied().collect())),
        modules: modules(),
        sets: Ok(Sets {
            names: SetId::all().map(|id| id.to_string()).collect(),
            own: observed.sets.clone(),
        }),
        own_tables: Err("nf_tables is not loaded".into()),
        network: Ok(observed.network()),
        servers: Ok(observed.virtual_servers),
        device: "portolan0".into(),
        sysctls: [].into(),
        tables: Err(String::new()),
        nft_tables: Ok("table ip filter\ntable ip nat\ntable ip6 filter\n".into()),
        nft_rules: Ok(String::new()),
        network_managers: NetworkManagers {
            networkd: Some(
                "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n".into(),
            ),
            network_manager: None,
        },
        tracked: Ok(Tracked {
            count: 20_000,
            most: 262_144,
        }),
        connection_table_bits: Ok(18),
        controller: Some(("10.0.0.7:10270".into(), Ok(()))),
    };
    facts.tables = Ok(tables(&facts));
    facts.sysctls = facts.wanted_sysctls();
    facts.sysctls.insert(reverse_path("all"), "1".into());
    facts.sysctls.insert(reverse_path("eth0"), "1".into());
    facts.sysctls.insert(RUN_ESTIMATION.into(), "1".into());
    facts
}

/// The kernel state after an agent has run, on a node with one network, and the plan.
/// A healthy node whose plan asks for nftables.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn with_nftables() -> Facts {
    let mut document = document();
    document.settings.dataplane = Dataplane::Nftables;
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document.clone());
    let own = running.stop().tables().lock().observed.clone();
    let mut facts = healthy();
    facts.plan = Ok(Some((document.into_plan().unwrap(), origin())));
    facts.record = Ok(Some([].into()));
    facts.servers = Err("IPVS is not loaded".into());
    facts.sets = Err("address sets (ip_set) are not loaded".into());
    facts.own_tables = Ok(own);
    facts
}

fn programmed() -> (Observed, NodePlan) {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    let kernel = running.stop();
    let mut observed = kernel.lock().state.clone();
    let host = &mut observed.host;
    host.machine = Machine {
        processors: 8,
        kernel: (6, 1),
        limits_conntrack: true,
        ipv6_off: None,
        local_ports: Ports::parse_pair("32768 60999"),
        reserved_by_others: Ports::default(),
    };
    host.interfaces = vec![
        interface("eth0", InterfaceKind::Other),
        interface("veth1", InterfaceKind::Veth),
    ];
    let routes = ["0.0.0.0/0", "192.168.50.0/24", "10.244.2.0/24"];
    host.routes = routes
        .map(|destination| HostRoute {
            destination: destination.parse().unwrap(),
            gateway: Some("192.168.50.254".parse().unwrap()),
        })
        .into();
    (observed, document().into_plan().unwrap())
}

pub(crate) fn interface(name: &str, kind: InterfaceKind) -> HostInterface {
    HostInterface {
        name: name.into(),
        kind,
    }
}

pub(crate) fn address(interface: &str, text: &str) -> HostAddress {
    HostAddress::on(interface, text.parse().unwrap())
}

pub(crate) fn origin() -> Origin {
    Origin {
        node: "node-a".into(),
        boot: String::new(),
        written: now() - Duration::from_secs(86_400),
        confirmed: now() - Duration::from_secs(240),
    }
}

fn disk() -> Disk {
    Disk {
        writable: true,
        size: 40_000_000_000,
        free: 12_000_000_000,
    }
}

fn modules() -> std::collections::BTreeMap<String, Module> {
    let schedulers = ["ip_vs_rr", "ip_vs_mh"].map(|name| (name.to_owned(), Module::Loadable));
    let all = MODULES.map(|name| (name.to_owned(), Module::There));
    all.into_iter().chain(schedulers).collect()
}

/// The rules of the kubelet and the agent in nft, none in legacy.
fn tables(facts: &Facts) -> Tables {
    let desired = facts.desired().unwrap();
    let dump = |variant, family, text| Dump {
        variant,
        family,
        text: Ok(text),
    };
    let used = desired.rules.iter().map(|rules| {
        let text = format!("{KUBELET}{}", saved(rules));
        dump(Variant::Nft, rules.family, text)
    });
    let other = Family::BOTH.map(|family| dump(Variant::Legacy, family, String::new()));
    Tables {
        used: Variant::Nft,
        dumps: used.chain(other).collect(),
    }
}

/// The rules as printed by `iptables-save`.
pub(crate) fn saved(rules: &Rules) -> String {
    let mut text = String::new();
    for table in &rules.tables {
        writeln!(text, "*{}", table.name).unwrap();
        for chain in table.chains.keys() {
            writeln!(text, ":{CHAIN_PREFIX}{chain} - [0:0]").unwrap();
        }
        for jump in table.jumps {
            writeln!(text, "-A {} -j {CHAIN_PREFIX}{}", jump.from, jump.to).unwrap();
        }
        for (chain, rules) in &table.chains {
            for rule in rules {
                writeln!(text, "-A {CHAIN_PREFIX}{chain} {rule}").unwrap();
            }
        }
        text.push_str("COMMIT\n");
    }
    text
}
