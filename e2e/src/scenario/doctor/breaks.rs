//! The table of faults: how each is caused and repaired, and the finding that doctor has to report.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::namespace::Namespace;
use crate::program::Program;

/// Something that is broken.
pub(super) struct Break {
    /// A description.
    pub(super) what: &'static str,
    /// The check that reports it, and its status.
    pub(super) check: &'static str,
    pub(super) level: &'static str,
    /// A part of its remedy.
    pub(super) remedy: &'static str,
    /// The change that causes the fault.
    pub(super) change: Change,
    /// State of the node that is saved and restored afterwards.
    pub(super) saves: Saves,
    /// Commands that repair the rest.
    pub(super) undo: &'static [&'static str],
}

/// A change of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Programs with their arguments; `sysctl NAME VALUE` writes a setting.
    Commands(&'static [&'static str]),
    /// The controller ends.
    DeadController,
    /// The plan on disk was confirmed an hour ago.
    OldPlan,
    /// A file of the state directory has other content.
    Garbage(&'static str),
    /// As many connections are tracked as may be.
    FullTracking,
    /// The state directory is mounted read-only.
    ReadOnlyState,
}

/// State of a node that is saved before a change and restored after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saves {
    /// Nothing.
    Nothing,
    /// All IPv4 rules.
    Rules,
    /// Routes over our device, both families.
    Routes,
    /// Virtual servers.
    VirtualServers,
}

const USUAL: Break = Break {
    what: "",
    check: "",
    level: "fail",
    remedy: "",
    change: Change::Commands(&[]),
    saves: Saves::Nothing,
    undo: &[],
};

pub(super) const BREAKS: &[Break] = &[
    Break {
        what: "forwarding is off",
        check: "sysctls",
        remedy: "sysctl -w net.ipv4.ip_forward=1",
        change: Change::Commands(&["sysctl net/ipv4/ip_forward 0"]),
        undo: &["sysctl net/ipv4/ip_forward 1"],
        ..USUAL
    },
    Break {
        what: "IPVS does not track connections",
        check: "sysctls",
        remedy: "sysctl -w net.ipv4.vs.conntrack=1",
        change: Change::Commands(&["sysctl net/ipv4/vs/conntrack 0"]),
        undo: &["sysctl net/ipv4/vs/conntrack 1"],
        ..USUAL
    },
    Break {
        what: "a bridge of pods hands no packets to the rules",
        check: "bridges",
        remedy: "net.bridge.bridge-nf-call-iptables=1",
        change: Change::Commands(&["sysctl net/bridge/bridge-nf-call-iptables 0"]),
        undo: &["sysctl net/bridge/bridge-nf-call-iptables 1"],
        ..USUAL
    },
    Break {
        what: "the kernel may give node ports away",
        check: "sysctls",
        level: "warn",
        remedy: "net.ipv4.ip_local_reserved_ports=8080,30000-32767",
        change: Change::Commands(&["sysctl net/ipv4/ip_local_reserved_ports 8080"]),
        undo: &["sysctl net/ipv4/ip_local_reserved_ports 30000-32767"],
        ..USUAL
    },
    Break {
        what: "reverse path filtering is strict on an overlay",
        check: "reverse-path",
        level: "warn",
        remedy: "2 is loose",
        change: Change::Commands(&["sysctl net/ipv4/conf/overlay0/rp_filter 1"]),
        undo: &["sysctl net/ipv4/conf/overlay0/rp_filter 2"],
        ..USUAL
    },
    Break {
        what: "a foreign rule writes our bit of the mark",
        check: "packet-mark",
        level: "warn",
        remedy: "spec.settings.masquerade.bit",
        change: Change::Commands(&[
            "iptables -w -t mangle -A PREROUTING -j MARK --set-xmark 0x4000/0x4000",
        ]),
        undo: &["iptables -w -t mangle -D PREROUTING -j MARK --set-xmark 0x4000/0x4000"],
        ..USUAL
    },
    Break {
        what: "portmap keeps host ports in a table of nftables",
        check: "nftables",
        level: "warn",
        remedy: "\"backend\": \"iptables\"",
        change: Change::Commands(&["nft add table inet cni_hostport"]),
        undo: &["nft delete table inet cni_hostport"],
        ..USUAL
    },
    Break {
        what: "the table of connections is full",
        check: "conntrack",
        remedy: "net.netfilter.nf_conntrack_max=",
        change: Change::FullTracking,
        ..USUAL
    },
    Break {
        what: "chains of kube-proxy take packets",
        check: "kube-proxy",
        remedy: "kube-proxy --cleanup",
        change: Change::Commands(&[
            "iptables -w -t nat -N KUBE-SERVICES",
            "iptables -w -t nat -A PREROUTING -j KUBE-SERVICES",
        ]),
        undo: &[
            "iptables -w -t nat -D PREROUTING -j KUBE-SERVICES",
            "iptables -w -t nat -X KUBE-SERVICES",
        ],
        ..USUAL
    },
    Break {
        what: "a set of kube-proxy is left",
        check: "kube-proxy",
        level: "warn",
        remedy: "ipset destroy",
        change: Change::Commands(&["ipset create KUBE-CLUSTER-IP hash:ip,port"]),
        undo: &["ipset destroy KUBE-CLUSTER-IP"],
        ..USUAL
    },
    Break {
        what: "a virtual server of kube-proxy is left in the service range",
        check: "kube-proxy",
        level: "warn",
        remedy: "ipvsadm -D -t 10.96.7.7:80",
        change: Change::Commands(&["ipvsadm -A -t 10.96.7.7:80 -s rr"]),
        undo: &["ipvsadm -D -t 10.96.7.7:80"],
        ..USUAL
    },
    Break {
        what: "a virtual server is gone",
        check: "virtual-servers",
        level: "warn",
        remedy: "start the agent",
        change: Change::Commands(&["ipvsadm -D -t 10.96.1.1:80"]),
        saves: Saves::VirtualServers,
        ..USUAL
    },
    Break {
        what: "an entry of a set is gone",
        check: "sets",
        level: "warn",
        remedy: "start the agent",
        change: Change::Commands(&["ipset del PORTOLAN-FRONTEND 10.96.1.1,tcp:80"]),
        undo: &["ipset add PORTOLAN-FRONTEND 10.96.1.1,tcp:80"],
        ..USUAL
    },
    Break {
        what: "a chain was flushed",
        check: "rules",
        remedy: "start the agent",
        change: Change::Commands(&["iptables -w -t nat -F PORTOLAN-PREROUTING"]),
        saves: Saves::Rules,
        ..USUAL
    },
    Break {
        what: "the route to the service range is gone",
        check: "routes",
        remedy: "ip route add 10.96.0.0/12",
        change: Change::Commands(&["ip route del 10.96.0.0/12 dev kube-ipvs0"]),
        saves: Saves::Routes,
        ..USUAL
    },
    Break {
        what: "a policy rule is gone",
        check: "routes",
        remedy: "ip -6 rule add pref 91",
        change: Change::Commands(&["ip -6 rule del pref 91"]),
        undo: &["ip -6 rule add pref 91 fwmark 0x1000/0x1000 lookup 10270 proto 112"],
        ..USUAL
    },
    Break {
        what: "the device is down",
        check: "device",
        remedy: "ip link set kube-ipvs0 up",
        change: Change::Commands(&["ip link set kube-ipvs0 down"]),
        saves: Saves::Routes,
        undo: &["ip link set kube-ipvs0 up"],
        ..USUAL
    },
    Break {
        what: "no controller answers",
        check: "controller",
        remedy: "kubectl get pods -A",
        change: Change::DeadController,
        ..USUAL
    },
    Break {
        what: "no controller stood behind the plan for an hour",
        check: "plan",
        level: "warn",
        remedy: "kubectl get proxyplans",
        change: Change::OldPlan,
        ..USUAL
    },
    Break {
        what: "the record of what is ours is damaged",
        check: "ownership-record",
        remedy: "/virtual-servers`, and restart the agent",
        change: Change::Garbage("virtual-servers"),
        ..USUAL
    },
    Break {
        what: "the state directory is mounted read-only",
        check: "state-directory",
        remedy: "mount -o remount,rw",
        change: Change::ReadOnlyState,
        ..USUAL
    },
];

/// A device as an overlay has for the agent, `overlay0`, and tracked connections.
pub(super) fn prepare(node: &Namespace) -> Result<()> {
    let commands = [
        "ip link add overlay0 type dummy",
        "ip address add 10.244.1.254/32 dev overlay0",
        "ip link set overlay0 up",
        "sysctl net/ipv4/conf/overlay0/rp_filter 2",
    ];
    execute(node, &commands, Saves::Nothing)?;
    for port in ["7001", "7002", "7003"] {
        let ends = format!("-s 192.0.2.1 -d 192.0.2.2 --sport {port} --dport 9");
        let line = format!("-I -p udp {ends} --timeout 600");
        node.inside(|| Program::Conntrack.run_line(&line))?;
    }
    Ok(())
}

/// Runs commands in a node; returns the state to restore.
pub(super) fn execute(node: &Namespace, commands: &[&str], saves: Saves) -> Result<String> {
    node.inside(|| {
        let before = match saves {
            Saves::Nothing => String::new(),
            Saves::Rules => Program::IptablesSave.run(&[])?,
            Saves::VirtualServers => Program::Ipvsadm.run(&["-Sn"])?,
            Saves::Routes => routes()?,
        };
        commands.iter().try_for_each(|command| one(command))?;
        Ok(before)
    })
}

/// The arguments that put each route over our device back, a line each.
fn routes() -> Result<String> {
    let mut text = String::new();
    for family in ["-4", "-6"] {
        let line = format!("{family} route show dev kube-ipvs0 proto 112");
        for line in Program::Ip.run_line(&line)?.lines() {
            let mut words: Vec<_> = line.split_whitespace().collect();
            // Words that only older versions print and the tool does not accept as input.
            words.truncate(
                words
                    .iter()
                    .position(|word| *word == "pref")
                    .unwrap_or(words.len()),
            );
            text += &format!(
                "{family} route replace {} dev kube-ipvs0 proto 112\n",
                words.join(" ")
            );
        }
    }
    Ok(text)
}

/// Puts right what a break did.
pub(super) fn restore(node: &Namespace, broken: &Break, before: &str) -> Result<()> {
    node.inside(|| {
        broken.undo.iter().try_for_each(|command| one(command))?;
        match broken.saves {
            Saves::Nothing => Ok(()),
            Saves::Rules => Program::IptablesRestore
                .run_with_input(&[], before)
                .map(drop),
            Saves::VirtualServers => {
                Program::Ipvsadm.run(&["-C"])?;
                Program::Ipvsadm.run_with_input(&["-R"], before).map(drop)
            }
            Saves::Routes => before
                .lines()
                .try_for_each(|line| Program::Ip.run_line(line).map(drop)),
        }
    })
}

fn one(command: &str) -> Result<()> {
    let words: Vec<_> = command.split(' ').collect();
    let [first, arguments @ ..] = words.as_slice() else {
        bail!("no command");
    };
    let program = match (*first, arguments) {
        ("sysctl", [name, value]) => {
            let path = Path::new("/proc/sys").join(name);
            return std::fs::write(&path, value)
                .with_context(|| format!("write {}", path.display()));
        }
        ("ip", _) => Program::Ip,
        ("ipset", _) => Program::Ipset,
        ("ipvsadm", _) => Program::Ipvsadm,
        ("iptables", _) => Program::Iptables,
        ("nft", _) => Program::Nft,
        _ => bail!("unknown command {command:?}"),
    };
    program.run(arguments).map(drop)
}

/// The limit belongs to the machine: it is set outside of the node.
const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Lowers the limit to the current number of connections; returns the previous limit.
pub(super) fn fill_tracking(node: &Namespace) -> Result<String> {
    let count = node.inside(|| {
        let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")?;
        Ok(count.trim().to_owned())
    })?;
    let before = std::fs::read_to_string(LIMIT)?;
    std::fs::write(LIMIT, &count).with_context(|| format!("write {count} to {LIMIT}"))?;
    Ok(before)
}

pub(super) fn empty_tracking(before: &str) -> Result<()> {
    std::fs::write(LIMIT, before.trim()).context("put the limit back")
}
