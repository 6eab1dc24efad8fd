//! Problems with programmed state that was removed.

use portolan_agent::doctor::Check;
use portolan_agent::kernel::linux::Variant;
use portolan_plan::Family;
use portolan_reconcile::{HostRoute, RealServers};

use super::{Broken, FRONTEND, alone, dump, fails, network, put_routes, warns};
use crate::healthy::{KUBELET, address};

pub(super) const BROKEN: &[Broken] = &[
    alone(fails("no network", Check::Device, "as root", |facts| {
        facts.network = Err("open rtnetlink: Operation not permitted".into());
    })),
    alone(fails(
        "no device",
        Check::Device,
        "ip link set portolan0 up",
        |facts| {
            network(facts).device_up = false;
            network(facts).routes.clear();
        },
    )),
    fails(
        "no routes",
        Check::Routes,
        "ip route add local default dev lo table 10270 proto 112",
        |facts| {
            network(facts).routes.clear();
        },
    ),
    fails(
        "no policy rule",
        Check::Routes,
        "ip rule add pref 90 iif lo fwmark 0x1000/0x5000 goto 92 proto 112",
        |facts| {
            network(facts).policy.clear();
        },
    ),
    alone(warns(
        "a route in the way",
        Check::Routes,
        "ip route show",
        |facts| {
            let destination = "fd00:10:96::7/128".parse().unwrap();
            network(facts).host.routes.push(HostRoute {
                destination,
                gateway: None,
            });
            // In this case the agent rejects nothing in that range.
            put_routes(facts);
        },
    )),
    alone(warns(
        "NodeLocal DNSCache on the cluster IP of a Service",
        Check::Routes,
        "spec.settings.excludeCIDRs",
        |facts| {
            let cluster_ip = facts.desired().unwrap();
            let mut servers = cluster_ip.virtual_servers.keys();
            let cluster_ip = servers.find(|server| server.address.is_ipv4()).unwrap();
            let text = format!("{}/32", cluster_ip.address);
            network(facts)
                .host
                .addresses
                .push(address("nodelocaldns", &text));
            // In this case unused addresses of the range are not rejected.
            put_routes(facts);
        },
    )),
    alone(fails("no sets", Check::Sets, "modprobe ip_set", |facts| {
        facts.sets = Err("address sets (ip_set) are not loaded".into());
    })),
    fails("a set is gone", Check::Sets, "start the agent", |facts| {
        facts.sets.as_mut().unwrap().own.remove(&FRONTEND);
    }),
    alone(warns(
        "an entry is gone",
        Check::Sets,
        "start the agent",
        |facts| {
            let set = facts.sets.as_mut().unwrap().own.get_mut(&FRONTEND).unwrap();
            set.entries.pop_first();
        },
    )),
    alone(fails(
        "our rules are gone",
        Check::Rules,
        "start the agent",
        |facts| {
            dump(facts, Variant::Nft, Family::Ipv6, Ok(KUBELET.into()));
        },
    )),
    fails("a jump is gone", Check::Rules, "start the agent", |facts| {
        for dump in &mut facts.tables.as_mut().unwrap().dumps {
            let text = dump.text.as_mut().unwrap();
            *text = text.replace("-A PREROUTING -j PORTOLAN-PREROUTING\n", "");
        }
    }),
    alone(fails(
        "ipvsadm -C",
        Check::VirtualServers,
        "start the agent",
        |facts| {
            facts.servers.as_mut().unwrap().clear();
        },
    )),
    warns(
        "one is gone",
        Check::VirtualServers,
        "run this again",
        |facts| {
            facts.servers.as_mut().unwrap().pop_first();
        },
    ),
    alone(warns(
        "one has no backends",
        Check::VirtualServers,
        "run this again",
        |facts| {
            let servers = facts.servers.as_mut().unwrap();
            servers.values_mut().next().unwrap().real_servers = RealServers::new();
        },
    )),
];
