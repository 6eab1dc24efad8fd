//! Chains that translate all packets to an address of the node, as the CNI plugin portmap and Docker add them for
//! host ports and published ports. Services with the same port keep their packets (S-166, S-212).

use std::time::{Duration, Instant};

use anyhow::Result;

use super::ask::{Question, all_clients_are_served};
use super::firewall::{TOOLS, nat_is_ours_first, rules};
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::harness::Lab;
use crate::topology::world::{Family, Node, OUTSIDE};
use crate::traffic::Protocol;
use crate::waits;

/// Ports of the Service `open`: at its cluster IP and external addresses, and its node port.
const PORTS: [u16; 2] = [80, 30080];
/// The pod with the host port.
const POD: (&str, [&str; 2]) = ("pod-a2", ["10.244.1.12:8080", "[fd00:10:244:1::12]:8080"]);
/// Jumps as portmap has them.
const JUMPS: [&str; 2] = [
    "PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
    "OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    rules(lab, "-t nat -N CNI-HOSTPORT-DNAT")?;
    for (family, tool) in TOOLS {
        let pod = POD.1[usize::from(family == Family::IPv6)];
        for port in PORTS {
            let matches = format!("-p tcp --dport {port}");
            let line =
                format!("-w -t nat -A CNI-HOSTPORT-DNAT {matches} -j DNAT --to-destination {pod}");
            lab.tool(Node::A, tool, &line)?;
        }
    }
    for jump in JUMPS {
        rules(lab, &format!("-t nat -A {jump}"))?;
    }
    served(lab, checks, "behind ours")?;
    for jump in JUMPS {
        rules(lab, &format!("-t nat -D {jump}"))?;
        rules(lab, &format!("-t nat -I {jump}"))?;
    }
    // Three sync periods.
    let period = lab.limit(Duration::from_secs(1));
    waits::sleep_until(Instant::now() + 3 * period)?;
    // The chains of nftables have a priority before that of NAT instead.
    if lab.stage.dataplane == Dataplane::Ipvs {
        checks.check(
            "our jumps of nat are before a chain for host ports that was put first (S-166)",
            nat_is_ours_first(lab),
        );
    }
    served(lab, checks, "put before ours")?;
    for jump in JUMPS {
        rules(lab, &format!("-t nat -D {jump}"))?;
    }
    rules(lab, "-t nat -F CNI-HOSTPORT-DNAT")?;
    rules(lab, "-t nat -X CNI-HOSTPORT-DNAT")
}

pub(super) fn served(lab: &Lab<'_>, checks: &mut Checks, place: &str) -> Result<()> {
    checks.check(
        &format!(
            "beside host ports of the same number, {place}, Services serve all clients (S-212)"
        ),
        all_clients_are_served(lab),
    );
    for to in ["192.168.50.11:80", "[fd00:50::11]:80"] {
        let question = Question {
            from: OUTSIDE,
            to,
            protocol: Protocol::Tcp,
        };
        checks.check(
            &format!("the host port itself, {place}, answers at {to} (S-212)"),
            question.is_answered(lab, &[POD.0]),
        );
    }
    Ok(())
}
