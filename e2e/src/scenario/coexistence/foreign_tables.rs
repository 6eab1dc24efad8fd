//! Tables of nftables that other software has on nodes: firewalld, the CNI plugin portmap, and Docker. Only for nodes
//! whose dataplane is nftables, too: nothing can accept packets to IPVS on behalf of such a firewall.

use anyhow::{Result, ensure};

use super::ask::{Question, all_clients_are_served};
use super::firewall::unused_ports_are_refused;
use super::host_ports;
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Node, OUTSIDE};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;

/// A zone that rejects everything but the overlay's tunnel, with the hooks and the order of firewalld.
const FIREWALLD: &str = r#"
table inet firewalld {
    chain filter_INPUT {
        type filter hook input priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname "lo" accept
        ct state invalid drop
        icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect } accept
        udp dport 8472 accept
        reject with icmpx admin-prohibited
    }
    chain filter_FORWARD {
        type filter hook forward priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname "lo" accept
        ct state invalid drop
        reject with icmpx admin-prohibited
    }
}
"#;

/// Host port 80 of a pod, as portmap adds it.
const PORTMAP: &str = "
table inet cni_hostport {
    chain hostports {
        meta nfproto ipv4 tcp dport 80 dnat ip to 10.244.1.12:8080
        meta nfproto ipv6 tcp dport 80 dnat ip6 to [fd00:10:244:1::12]:8080
    }
    chain prerouting {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local jump hostports
    }
    chain output {
        type nat hook output priority -100; policy accept;
        fib daddr type local jump hostports
    }
}
";

/// A published port with the number of a node port, and a bridge that nothing else may enter, as Docker adds them.
const DOCKER: &str = r#"
table ip docker-bridges {
    chain nat-prerouting-and-output {
        tcp dport 30080 dnat to 172.17.0.2:80
    }
    chain nat-PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local jump nat-prerouting-and-output
    }
    chain nat-OUTPUT {
        type nat hook output priority -100; policy accept;
        ip daddr != 127.0.0.0/8 fib daddr type local jump nat-prerouting-and-output
    }
    chain filter-FORWARD {
        type filter hook forward priority filter; policy accept;
        oifname "docker0" drop
    }
    chain raw-PREROUTING {
        type filter hook prerouting priority raw; policy accept;
        iifname != "docker0" ip daddr 172.17.0.2 drop
    }
}
"#;

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    if lab.stage.dataplane == Dataplane::Ipvs {
        return Ok(());
    }
    add(lab, FIREWALLD)?;
    checks.check(
        "behind firewalld, no client reaches a daemon of node-a",
        daemon_is_closed(lab),
    );
    checks.check(
        "behind firewalld, Services serve all clients",
        all_clients_are_served(lab),
    );
    checks.check(
        "behind firewalld, unused ports are refused (S-27)",
        unused_ports_are_refused(lab),
    );
    delete(lab, "inet firewalld")?;
    add(lab, PORTMAP)?;
    add(lab, DOCKER)?;
    host_ports::served(lab, checks, "in tables of portmap and Docker")?;
    delete(lab, "ip docker-bridges")?;
    delete(lab, "inet cni_hostport")
}

fn add(lab: &Lab<'_>, table: &str) -> Result<()> {
    lab.node(Node::A)?
        .inside(|| Program::Nft.run_with_input(&["-f", "-"], table))
        .map(drop)
}

fn delete(lab: &Lab<'_>, table: &str) -> Result<()> {
    lab.tool(Node::A, Program::Nft, &format!("delete table {table}"))
        .map(drop)
}

fn daemon_is_closed(lab: &Lab<'_>) -> Result<()> {
    let question = Question {
        from: OUTSIDE,
        to: "192.168.50.11:9999",
        protocol: Protocol::Tcp,
    };
    let outcome = question.ask(lab)?;
    let is_answered = matches!(outcome, Outcome::Answered { .. });
    ensure!(!is_answered, "{outcome}");
    Ok(())
}
