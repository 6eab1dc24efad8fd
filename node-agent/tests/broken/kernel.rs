//! Problems of kernel modules, settings and table sizes.

use portolan_agent::doctor::Check;
use portolan_agent::doctor::facts::{Module, RUN_ESTIMATION};
use portolan_plan::Family;
use portolan_reconcile::{Ipv6Off, Ports, SetRole};

use super::{Broken, add_bridge, add_interface, add_servers, alone, fails, module, sysctl, warns};

pub(super) const BROKEN: &[Broken] = &[
    fails("no xt_set", Check::Modules, "modprobe -a xt_set", |facts| {
        module(facts, "xt_set", Module::Missing);
    }),
    fails(
        "no mh",
        Check::Modules,
        "spec.settings.scheduler",
        |facts| {
            module(facts, "ip_vs_none", Module::Missing);
        },
    ),
    alone(warns(
        "no list of modules",
        Check::Modules,
        "modprobe -a dummy",
        |facts| {
            module(facts, "dummy", Module::Unknown);
        },
    )),
    alone(fails("no IPVS", Check::Ipvs, "modprobe ip_vs", |facts| {
        facts.servers = Err("IPVS is not loaded".into());
        facts
            .sysctls
            .retain(|name, _| !name.starts_with("net.ipv4.vs."));
        facts.connection_table_bits = Err("no such file".into());
    })),
    alone(fails("no privileges", Check::Ipvs, "as root", |facts| {
        facts.privileged = Ok(false);
        facts.servers = Err("open IPVS: Operation not permitted".into());
    })),
    fails(
        "no forwarding",
        Check::Sysctls,
        "sysctl -w net.ipv4.ip_forward=1",
        |facts| {
            sysctl(facts, "net.ipv4.ip_forward", "0");
        },
    ),
    warns(
        "fewer connections",
        Check::Sysctls,
        "nf_conntrack_max=262144",
        |facts| {
            sysctl(facts, "net.netfilter.nf_conntrack_max", "65536");
        },
    ),
    warns(
        "node ports that the kernel may give away",
        Check::Sysctls,
        "net.ipv4.ip_local_reserved_ports=8080,30000-32767",
        |facts| {
            sysctl(facts, "net.ipv4.ip_local_reserved_ports", "8080");
            if let Ok(network) = &mut facts.network {
                network.host.machine.reserved_by_others = Ports::parse("8080");
            }
        },
    ),
    alone(fails(
        "IPv6 packets that are not passed on",
        Check::Ipv6,
        "sysctl -w net.ipv6.conf.all.forwarding=1",
        |facts| {
            sysctl(facts, "net.ipv6.conf.all.forwarding", "0");
        },
    )),
    alone(fails(
        "IPv6 switched off under a node that has IPv6",
        Check::Ipv6,
        "sysctl -w net.ipv6.conf.all.disable_ipv6=0",
        |facts| {
            if let Ok(network) = &mut facts.network {
                network.host.machine.ipv6_off = Some(Ipv6Off::Disabled);
            }
            // The state that the agent leaves in this case.
            let sets = facts.sets.iter_mut().flat_map(|sets| &mut sets.own);
            for (id, set) in sets.filter(|(id, _)| id.family == Family::Ipv6) {
                if id.role != SetRole::Pods && id.role != SetRole::Health {
                    set.entries.clear();
                }
            }
        },
    )),
    warns(
        "a second network",
        Check::ReversePath,
        "conf/eth1/rp_filter=2",
        |facts| {
            add_interface(facts, "eth1", "192.168.60.1/24");
        },
    ),
    alone(warns(
        "an overlay",
        Check::ReversePath,
        "conf/vxlan/rp_filter=2",
        |facts| {
            add_interface(facts, "vxlan", "10.244.1.0/32");
        },
    )),
    fails(
        "no br_netfilter",
        Check::Bridges,
        "modprobe br_netfilter",
        |facts| {
            add_bridge(facts);
        },
    ),
    alone(fails(
        "a bridge that hands on nothing",
        Check::Bridges,
        "bridge-nf-call-iptables=1",
        |facts| {
            add_bridge(facts);
            sysctl(facts, "net.bridge.bridge-nf-call-iptables", "0");
            sysctl(facts, "net.bridge.bridge-nf-call-ip6tables", "1");
        },
    )),
    alone(warns(
        "many connections",
        Check::Conntrack,
        "spec.settings.conntrack",
        |facts| {
            facts.tracked.as_mut().unwrap().count = 262_144 * 80 / 100 + 1;
        },
    )),
    fails(
        "no room for connections",
        Check::Conntrack,
        "nf_conntrack_max=524288",
        |facts| {
            facts.tracked.as_mut().unwrap().count = 262_144;
        },
    ),
    alone(warns(
        "no tracking",
        Check::Conntrack,
        "modprobe nf_conntrack",
        |facts| {
            facts.tracked = Err("/proc/sys/net/netfilter/nf_conntrack_count: no such file".into());
        },
    )),
    alone(fails(
        "all ports reserved",
        Check::ConnectPorts,
        "smaller spec.settings.nodePortRange",
        |facts| {
            sysctl(facts, "net.ipv4.ip_local_reserved_ports", "1024-65535");
            if let Ok(network) = &mut facts.network {
                network.host.machine.reserved_by_others = Ports::parse("1024-65535");
            }
        },
    )),
    warns(
        "a small table",
        Check::ConnectionTable,
        "conn_tab_bits=18",
        |facts| {
            facts.connection_table_bits = Ok(12);
        },
    ),
    warns(
        "many servers",
        Check::RateEstimation,
        "run_estimation=0",
        |facts| {
            add_servers(facts, 10_000);
        },
    ),
    alone(warns(
        "many servers, and older",
        Check::RateEstimation,
        "Linux 6.2",
        |facts| {
            add_servers(facts, 10_000);
            facts.sysctls.remove(RUN_ESTIMATION);
        },
    )),
];
