//! A CNI that routes pods by policy rules and remembers the way in by a mark, as the AWS VPC CNI does on nodes with
//! several network interfaces; and a node without a default route.

use anyhow::Result;

use super::ask::{OPEN, OPEN_PODS, Question, all_clients_are_served};
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, outside_address};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    rules_of_pods(lab, checks)?;
    no_default_route(lab, checks)
}

/// Rules of mangle: what comes to the node from outside is marked, and so are the answers of pods.
const CONNECTION_MARKS: [&str; 2] = [
    "PREROUTING -i eth0 -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80",
    "PREROUTING ! -i eth0 -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80",
];

/// The table of a second network interface.
const TABLE: &str = "2";

/// Rules before the table `main`: to pods, of the mark, and from pods.
fn policy_rules() -> Vec<String> {
    let mut lines = vec!["fwmark 0x80/0x80 lookup main pref 1024".to_owned()];
    for pod in Pod::on(Node::A) {
        let address = pod.address(Family::IPv4);
        lines.push(format!("to {address} lookup main pref 512"));
        lines.push(format!("from {address} lookup {TABLE} pref 1536"));
    }
    lines
}

/// S-172, with the rules of another CNI.
fn rules_of_pods(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let ip = |line: &str| lab.tool(Node::A, Program::Ip, line).map(drop);
    let mangle = |act: &str| {
        CONNECTION_MARKS.into_iter().try_for_each(|rule| {
            let line = format!("-w -t mangle {act} {rule}");
            lab.tool(Node::A, Program::Iptables, &line).map(drop)
        })
    };
    let gateway = outside_address(Family::IPv4);
    ip(&format!("route add default via {gateway} table {TABLE}"))?;
    // Pods of other nodes are behind an overlay here, by whatever table their packets are routed.
    let range = Node::B.pod_range(Family::IPv4);
    let routes = lab.tool(Node::A, Program::Ip, &format!("-4 route show {range}"))?;
    for route in routes.lines() {
        let route = route.split_whitespace().collect::<Vec<_>>().join(" ");
        ip(&format!("route add {route} table {TABLE}"))?;
    }
    for rule in policy_rules() {
        ip(&format!("rule add {rule}"))?;
    }
    mangle("-A")?;
    checks.check(
        "where a CNI routes pods by policy rules and marks, Services serve all clients (S-172)",
        all_clients_are_served(lab),
    );
    mangle("-D")?;
    for rule in policy_rules() {
        ip(&format!("rule del {rule}"))?;
    }
    ip(&format!("route flush table {TABLE}"))
}

/// An address of the Service `open` that the node itself can only reach by a default route.
const BALANCER: &str = "203.0.113.1:80";

/// Only IPVS has routes to the service ranges.
fn own_connections(lab: &Lab<'_>, checks: &mut Checks) {
    let question = |to| Question {
        from: "node-a",
        to,
        protocol: Protocol::Tcp,
    };
    let cluster_ips = ["10.96.1.1:80", "[fd00:10:96::101]:80"].map(question);
    let node_port = question("192.168.50.11:30080").is_answered(lab, &OPEN_PODS);
    match lab.stage.dataplane {
        Dataplane::Ipvs => checks.check(
            "… and the node itself at cluster IPs and node ports (S-15, S-24)",
            node_port.and_then(|()| {
                let mut all = cluster_ips.iter();
                all.try_for_each(|one| one.is_answered(lab, &OPEN_PODS))
            }),
        ),
        Dataplane::Nftables => checks.check(
            "… and the node itself at node ports, but not at cluster IPs",
            node_port.and_then(|()| {
                let mut all = cluster_ips.iter();
                all.try_for_each(|one| one.ends(lab, &Outcome::Unreachable))
            }),
        ),
    }
}

fn no_default_route(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let ip = |line: &str| lab.tool(Node::A, Program::Ip, line).map(drop);
    for family in ["-4", "-6"] {
        ip(&format!("{family} route del default"))?;
    }
    let external_clients = OPEN
        .into_iter()
        .map(|(to, protocol)| ("outside", to, protocol));
    let pods = OPEN
        .into_iter()
        .map(|(to, protocol)| ("pod-a3", to, protocol));
    let served = external_clients
        .chain(pods)
        .try_for_each(|(from, to, protocol)| {
            Question { from, to, protocol }.is_answered(lab, &OPEN_PODS)
        });
    checks.check(
        "on a node without a default route, Services serve pods and external clients (S-15)",
        served,
    );
    own_connections(lab, checks);
    let question = Question {
        from: "node-a",
        to: BALANCER,
        protocol: Protocol::Tcp,
    };
    checks.check(
        "… but not at a load balancer's address, to which it has no route (S-18)",
        question.ends(lab, &Outcome::Unreachable),
    );
    for (family, gateway) in [
        ("-4", outside_address(Family::IPv4)),
        ("-6", outside_address(Family::IPv6)),
    ] {
        ip(&format!(
            "{family} route add default via {gateway} dev eth0"
        ))?;
    }
    checks.check(
        "… and all clients once it has a default route again",
        all_clients_are_served(lab),
    );
    Ok(())
}
