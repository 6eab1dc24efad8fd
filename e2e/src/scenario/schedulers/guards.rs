//! Packets that the filter rules accept despite the host's firewall, and packets that they drop.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use super::{Checks, Lab, POD, Service};
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;
use crate::traffic::line::Line;
use crate::traffic::server::Server;
use crate::waits::{ANSWER, SOON};

/// A port of no Service.
const DAEMON: u16 = 9999;
const SERVER: &str = "daemon-of-node-a";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("ports of daemons and invalid packets");
    let server = Server::start(&lab.node(Node::A)?, SERVER, &[(Protocol::Tcp, DAEMON)])?;
    close(lab)?;
    for family in Family::ALL {
        daemon(lab, checks, family);
    }
    open(lab)?;
    server.end()?;
    let what = "IPv4: a segment out of its window is dropped and the connection goes on (S-173)";
    checks.check(what, invalid(lab));
    Ok(())
}

/// The host's firewall accepts only IPv6 neighbour discovery.
fn close(lab: &Lab<'_>) -> Result<()> {
    neighbours(lab, "-A")?;
    policy(lab, "DROP")
}

fn open(lab: &Lab<'_>) -> Result<()> {
    policy(lab, "ACCEPT")?;
    neighbours(lab, "-D")
}

fn neighbours(lab: &Lab<'_>, act: &str) -> Result<()> {
    let line = format!("-w {act} INPUT -p ipv6-icmp -j ACCEPT");
    lab.tool(Node::A, Program::Ip6tables, &line).map(drop)
}

fn policy(lab: &Lab<'_>, policy: &str) -> Result<()> {
    for program in [Program::Iptables, Program::Ip6tables] {
        lab.tool(Node::A, program, &format!("-w -P INPUT {policy}"))?;
    }
    Ok(())
}

/// The exception for load balancers (scenario `health`) accepts nothing else.
fn daemon(lab: &Lab<'_>, checks: &mut Checks, family: Family) {
    let balancer: IpAddr = match family {
        Family::IPv4 => [203, 0, 113, 61].into(),
        Family::IPv6 => [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 0x61].into(),
    };
    let own = Node::A.address(family);
    let what = format!("{family}: no daemon answers on the balancer's address (S-27, S-247)");
    let to = SocketAddr::from((balancer, DAEMON));
    checks.check(&what, lab.refused(Resident::Outside, to));
    let what =
        format!("{family}: other ports of the node stay closed, as its firewall says (S-144)");
    checks.check(&what, silent(lab, (own, DAEMON).into()));
}

fn silent(lab: &Lab<'_>, to: SocketAddr) -> Result<()> {
    match lab.dial(Resident::Outside, to, Duration::from_millis(500))? {
        Outcome::Silent => Ok(()),
        other => bail!("{to}: {other}"),
    }
}

/// The only backend of the Service `asked`.
const BACKEND: Pod = Node::A.pod(1);
const LINES: u16 = 7070;

/// Segments with sequence numbers over the whole range: most are outside any window.
fn invalid(lab: &Lab<'_>) -> Result<()> {
    let deadline = lab.limit(ANSWER);
    let to = Service::Asked.at(Family::IPv4, 7000);
    let mut line = Line::open(lab.topology.of(POD)?, to, deadline)?;
    line.lives()?;
    let client = line.from()?;
    let (IpAddr::V4(source), IpAddr::V4(target)) = (BACKEND.address(Family::IPv4), client.ip())
    else {
        bail!("{client} is no IPv4 client");
    };
    let before = dropped(lab)?;
    lab.inside(Resident::Pod(BACKEND), || {
        let raw = socket(
            AddressFamily::Inet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::Raw,
        )?;
        for quarter in 0..4u32 {
            let segment = segment((source, LINES), (target, client.port()), quarter << 30);
            let [a, b, c, d] = target.octets();
            sendto(
                raw.as_raw_fd(),
                &segment,
                &SockaddrIn::new(a, b, c, d, 0),
                MsgFlags::empty(),
            )?;
        }
        Ok(())
    })?;
    lab.eventually("the rule to count a dropped packet", SOON, || {
        ensure!(dropped(lab)? > before, "it stands at {before}");
        Ok(())
    })?;
    line.lives()
}

/// Number of packets dropped by the rules for invalid packets on node-a.
fn dropped(lab: &Lab<'_>) -> Result<u64> {
    let saved = lab.tool(Node::A, Program::IptablesSave, "-c -t filter")?;
    let mut rules = 0;
    let mut packets = 0;
    for line in saved
        .lines()
        .filter(|line| line.contains("--ctstate INVALID") && line.contains("PORTOLAN-"))
    {
        let counter = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(':').next());
        let counter: u64 = counter.context("a rule without counter")?.parse()?;
        rules += 1;
        packets += counter;
    }
    ensure!(rules == 2, "{rules} rules drop invalid packets");
    Ok(packets)
}

/// An IPv4 packet with a TCP segment that acknowledges, with right checksums.
fn segment(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), sequence: u32) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(from.1.to_be_bytes());
    tcp.extend(to.1.to_be_bytes());
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(sequence.to_be_bytes());
    // Header length of five words, ACK, a window, no checksum yet, no urgent pointer, four bytes of
    // data.
    tcp.extend([0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
    tcp.extend(*b"late");
    let mut pseudo = Vec::new();
    pseudo.extend(from.0.octets());
    pseudo.extend(to.0.octets());
    pseudo.extend([0, 6, 0, 24]);
    pseudo.extend(&tcp);
    let sum = checksum(&pseudo).to_be_bytes();
    tcp[16..18].copy_from_slice(&sum);
    // The kernel fills in the checksum and the identification of the outer header.
    let mut packet = vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(from.0.octets());
    packet.extend(to.0.octets());
    packet.extend(tcp);
    packet
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Folded into sixteen bits above.
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_a_checksum_that_adds_up() {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let packet = segment((from, 7070), (to, 40000), 7);
        assert_eq!(packet.len(), 44);
        let mut pseudo = [from.octets(), to.octets()].concat();
        pseudo.extend([0, 6, 0, 24]);
        pseudo.extend(&packet[20..]);
        assert_eq!(checksum(&pseudo), 0);
    }
}
