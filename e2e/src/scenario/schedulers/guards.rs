//! What the filter lets in whatever the host's firewall says, and what it takes out of the way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use super::change::refused;
use super::{Checks, POD, Scene, Service};
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::Protocol;
use crate::traffic::client::{self, Outcome};
use crate::traffic::line::Line;
use crate::traffic::server::Server;

/// A port of no Service.
const DAEMON: u16 = 9999;
const SERVER: &str = "daemon-of-node-a";

pub(super) fn run(scene: &Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene
        .stage
        .console
        .heading("ports of daemons and invalid packets");
    let node = scene.topology.node(Node::A)?;
    let server = Server::start(node, SERVER, &[(Protocol::Tcp, DAEMON)])?;
    close(scene)?;
    for family in Family::ALL {
        daemon(scene, checks, family);
    }
    open(scene)?;
    server.end()?;
    let what = "IPv4: a segment out of its window is dropped and the connection goes on (S-173)";
    checks.check(what, invalid(scene));
    Ok(())
}

/// The host's firewall lets nothing in but what IPv6 neighbours say.
fn close(scene: &Scene<'_>) -> Result<()> {
    scene.topology.node(Node::A)?.inside(|| {
        Program::Ip6tables.run(&["-w", "-A", "INPUT", "-p", "ipv6-icmp", "-j", "ACCEPT"])?;
        Program::Iptables.run(&["-w", "-P", "INPUT", "DROP"])?;
        Program::Ip6tables
            .run(&["-w", "-P", "INPUT", "DROP"])
            .map(drop)
    })
}

fn open(scene: &Scene<'_>) -> Result<()> {
    scene.topology.node(Node::A)?.inside(|| {
        Program::Iptables.run(&["-w", "-P", "INPUT", "ACCEPT"])?;
        Program::Ip6tables.run(&["-w", "-P", "INPUT", "ACCEPT"])?;
        Program::Ip6tables
            .run(&["-w", "-D", "INPUT", "-p", "ipv6-icmp", "-j", "ACCEPT"])
            .map(drop)
    })
}

/// What is let in for balancers (scenario `health`) lets nothing else in.
fn daemon(scene: &Scene<'_>, checks: &mut Checks, family: Family) {
    let balancer: IpAddr = match family {
        Family::IPv4 => [203, 0, 113, 61].into(),
        Family::IPv6 => [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 0x61].into(),
    };
    let own = Node::A.address(family);
    let what = format!("{family}: other ports of the balancer's address are refused (S-27)");
    checks.check(
        &what,
        refused(scene, Resident::Outside, (balancer, DAEMON).into()),
    );
    let what =
        format!("{family}: other ports of the node stay closed, as its firewall says (S-144)");
    checks.check(&what, silent(scene, (own, DAEMON).into()));
}

fn silent(scene: &Scene<'_>, to: SocketAddr) -> Result<()> {
    let deadline = scene.stage.waits.limit(Duration::from_millis(500));
    let outside = scene.topology.of(Resident::Outside)?;
    match outside.inside(|| Ok(client::tcp(to, deadline)))?.outcome {
        Outcome::Silent => Ok(()),
        other => bail!("{to}: {other}"),
    }
}

/// The only backend of the Service `asked`.
const BACKEND: Pod = Pod {
    node: Node::A,
    number: 1,
};
const LINES: u16 = 7070;

/// Segments whose sequence numbers lie all around: most of them are outside of any window.
fn invalid(scene: &Scene<'_>) -> Result<()> {
    let deadline = scene.stage.waits.limit(Duration::from_secs(3));
    let to = Service::Asked.at(Family::IPv4, 7000);
    let mut line = Line::open(scene.topology.of(POD)?, to, deadline)?;
    line.lives()?;
    let client = line.from()?;
    let (IpAddr::V4(source), IpAddr::V4(target)) = (BACKEND.address(Family::IPv4), client.ip())
    else {
        bail!("{client} is no IPv4 client");
    };
    let before = dropped(scene)?;
    scene.topology.of(Resident::Pod(BACKEND))?.inside(|| {
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
    scene.stage.waits.until(
        "the rule to count a dropped packet",
        Duration::from_secs(3),
        Duration::from_millis(20),
        || Ok((dropped(scene)? > before).then_some(())),
        || format!("it stands at {before}"),
    )?;
    line.lives()
}

/// How many packets the rules for invalid ones of node-a have dropped.
fn dropped(scene: &Scene<'_>) -> Result<u64> {
    let saved = scene
        .topology
        .node(Node::A)?
        .inside(|| Program::IptablesSave.run(&["-c", "-t", "filter"]))?;
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
    // Five words of header, ACK, a window, no checksum yet, nothing urgent, four bytes of data.
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
