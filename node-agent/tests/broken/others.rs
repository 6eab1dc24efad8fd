//! Problems caused by other programs in iptables, nftables, sets and IPVS.

use portolan_agent::doctor::Check;
use portolan_agent::kernel::linux::Variant;
use portolan_plan::Family;
use portolan_reconcile::{RealServers, VirtualServer};

use super::{Broken, add_rules, alone, dump, fails, key, warns};
use crate::healthy::KUBELET;

/// The rules of a full tunnel.
const TUNNEL: &str = "table inet tunnel {\n\tchain premangle {\n\t\ttype filter hook prerouting priority mangle;\n\
                      \t\tmeta l4proto udp meta mark set ct mark\n\t}\n}\n";

pub(super) const BROKEN: &[Broken] = &[
    alone(fails(
        "no iptables",
        Check::Iptables,
        "apt install iptables",
        |facts| {
            facts.tables = Err("run iptables-restore: No such file or directory".into());
        },
    )),
    alone(fails(
        "rules of nft",
        Check::Iptables,
        "nft list ruleset",
        |facts| {
            let reason = "iptables-nft-save: Table `nat' is incompatible, use 'nft' tool.";
            dump(facts, Variant::Nft, Family::Ipv4, Err(reason.into()));
        },
    )),
    fails(
        "own in both",
        Check::Iptables,
        "iptables-legacy-restore",
        |facts| {
            let own = "*nat\n:PORTOLAN-OUTPUT - [0:0]\nCOMMIT\n";
            dump(facts, Variant::Legacy, Family::Ipv4, Ok(own.into()));
        },
    ),
    warns(
        "Kubernetes in both",
        Check::Iptables,
        "--iptables",
        |facts| {
            dump(facts, Variant::Legacy, Family::Ipv6, Ok(KUBELET.into()));
        },
    ),
    warns(
        "our mark is Calico's",
        Check::PacketMark,
        "spec.settings.masquerade.bit",
        |facts| {
            let rules = "*mangle\n:cali-PREROUTING - [0:0]\n\
                     -A cali-PREROUTING -j MARK --set-xmark 0x0/0xc000\nCOMMIT\n";
            add_rules(facts, rules);
        },
    ),
    warns(
        "a program that marks with our bit",
        Check::PacketMark,
        "spec.settings.capture.bit",
        |facts| {
            let rules =
                "*mangle\n:TUNNEL - [0:0]\n-A TUNNEL -j MARK --set-xmark 0x1000/0x1000\nCOMMIT\n";
            add_rules(facts, rules);
        },
    ),
    warns(
        "a whole mark restored after Portolan's",
        Check::PacketMark,
        "--nfmask MASK",
        |facts| {
            let rules = "*mangle\n-A POSTROUTING -j CONNMARK --restore-mark\nCOMMIT\n";
            add_rules(facts, rules);
        },
    ),
    warns(
        "a tunnel in nftables that restores whole marks",
        Check::PacketMark,
        "ct mark & MASK",
        |facts| {
            facts.nft_rules = Ok(TUNNEL.into());
        },
    ),
    warns(
        "systemd-networkd",
        Check::NetworkManagers,
        "ManageForeignRoutes=no into",
        |facts| {
            let text =
                "[Network]\n#ManageForeignRoutes=no\nManageForeignRoutingPolicyRules = off\n";
            facts.network_managers.networkd = Some(text.into());
        },
    ),
    warns(
        "NetworkManager",
        Check::NetworkManagers,
        "unmanaged-devices=interface-name:portolan0",
        |facts| {
            let text = "[keyfile]\nunmanaged-devices=mac:00:22:68:1c:59:b1;interface-name:cali*\n";
            facts.network_managers.network_manager = Some(text.into());
        },
    ),
    warns(
        "host ports by nftables",
        Check::Nftables,
        "backend",
        |facts| {
            facts.nft_tables = Ok("table ip cni_hostport\n".into());
        },
    ),
    warns("firewalld", Check::Nftables, "firewall-cmd", |facts| {
        facts.nft_tables = Ok("table inet firewalld\n".into());
    }),
    alone(warns(
        "an old kubelet",
        Check::PacketMark,
        "no rule uses 31",
        |facts| {
            let rules = "*nat\n:KUBE-MARK-MASQ - [0:0]\n\
                     -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\nCOMMIT\n";
            add_rules(facts, rules);
        },
    )),
    fails(
        "kube-proxy's rules",
        Check::KubeProxy,
        "kube-proxy --cleanup",
        |facts| {
            let rules = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-ERIFXISQEP7F7OF4 - [0:0]\n\
                     -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                     -A KUBE-SERVICES -d 10.96.0.10/32 -j KUBE-SVC-ERIFXISQEP7F7OF4\nCOMMIT\n";
            add_rules(facts, rules);
        },
    ),
    alone(warns(
        "kube-proxy's chains",
        Check::KubeProxy,
        "kube-proxy --cleanup",
        |facts| {
            let rules = "*nat\n:KUBE-NODEPORTS - [0:0]\n:KUBE-SVC-ERIFXISQEP7F7OF4 - [0:0]\n\
                     -A KUBE-NODEPORTS -p tcp -j KUBE-SVC-ERIFXISQEP7F7OF4\nCOMMIT\n";
            add_rules(facts, rules);
        },
    )),
    warns(
        "kube-proxy's sets",
        Check::KubeProxy,
        "ipset destroy",
        |facts| {
            let sets = facts.sets.as_mut().unwrap();
            sets.names.push("KUBE-6-CLUSTER-IP".into());
        },
    ),
    fails(
        "kube-proxy in nftables",
        Check::KubeProxy,
        "nft delete table ip6 kube-proxy",
        |facts| {
            let tables = facts.nft_tables.as_mut().unwrap();
            tables.push_str("table ip kube-proxy\ntable ip6 kube-proxy\n");
        },
    ),
    warns(
        "foreign virtual server",
        Check::KubeProxy,
        "ipvsadm -D -u 10.96.9.9:53",
        |facts| {
            let foreign = VirtualServer {
                scheduler: "wlc".into(),
                flags: 0,
                timeout: 0,
                real_servers: RealServers::new(),
            };
            let servers = facts.servers.as_mut().unwrap();
            servers.insert(key("UDP 10.96.9.9:53"), foreign.clone());
            // Belongs to another program and is no problem.
            servers.insert(key("TCP 203.0.113.9:80"), foreign);
        },
    ),
];
