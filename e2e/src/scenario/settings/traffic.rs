//! Settings that affect connections: idle timeouts, and the ports of the node's own connections.

use std::fs::File;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{FILE, Lab, NODE, SERVICE, SOON};
use crate::checks::Checks;
use crate::harness::proxy_config;
use crate::program::Program;
use crate::topology::world::{Family, Resident, outside_address};
use crate::traffic::line::{self, Line};
use crate::waits;

/// How long a connection is idle: longer than the short timeout of [`idle`].
const IDLE: Duration = Duration::from_secs(8);

/// S-221: by default IPVS forgets idle connections after 15 minutes. Here that is 3 s, by the setting.
pub(super) fn idle(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a connection that is idle");
    in_force(lab, "timeouts: {tcp: 3s}", "udp): 3 ")?;
    let mut line = open(lab)?;
    waits::sleep_until(Instant::now() + IDLE)?;
    checks.require(
        "a connection that is idle for longer than timeouts.tcp is forgotten (S-221)",
        line.lives().is_err(),
        "it lives",
    );
    in_force(lab, "timeouts: {}", "udp): 86400 ")?;
    let mut line = open(lab)?;
    waits::sleep_until(Instant::now() + IDLE)?;
    checks.check(
        "without timeouts.tcp it lives as long as connection tracking keeps it (S-221)",
        line.lives(),
    );
    lab.write(FILE, &lab.state.base())
}

/// Waits until IPVS has the timeout of a setting.
fn in_force(lab: &Lab<'_>, setting: &str, shown: &str) -> Result<()> {
    lab.write(FILE, &proxy_config(&["sync: {period: 1h}", setting]))?;
    lab.eventually("the timeout of IPVS", SOON, || {
        let printed = lab.tool(NODE, Program::Ipvsadm, "--list --timeout")?;
        ensure!(printed.contains(shown), "{printed}");
        Ok(())
    })
}

fn open(lab: &Lab<'_>) -> Result<Line> {
    let client = lab.topology.of(Resident::Outside)?;
    let mut line = Line::open(client, SERVICE.parse()?, lab.limit(waits::ANSWER))?;
    line.lives()?;
    Ok(line)
}

pub(super) const RESERVED: &str = "net/ipv4/ip_local_reserved_ports";
const RANGE: &str = "net/ipv4/ip_local_port_range";
/// Ranges of ephemeral ports: node ports and others, and node ports alone. The kernel begins with the lowest.
const BOTH: &str = "32700 60999";
const NODE_PORTS_ALONE: &str = "32700 32767";
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// Where an external client listens. Each gets one connection.
pub(super) const LISTENS: std::ops::Range<u16> = 9000..9024;

/// S-222: the kernel gives the node's own connections no node port.
pub(super) fn source_ports(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("ports of the node's own connections");
    for port in LISTENS {
        line::serve(lab.topology.of(Resident::Outside)?, "far", port)?;
    }
    let node = lab.node(NODE)?;
    let (range, reserved) = (read(lab, RANGE)?, read(lab, RESERVED)?);
    node.set(&[(RANGE.to_owned(), BOTH)])?;
    let chosen = node_ports_among(lab)?;
    checks.require(
        "no connection of the node itself is given a node port (S-222)",
        chosen == 0,
        &format!("{chosen} were, reserved are {reserved:?}"),
    );
    // A line without a port: nothing at all would not be written.
    node.set(&[
        (RESERVED.to_owned(), "\n"),
        (RANGE.to_owned(), NODE_PORTS_ALONE),
    ])?;
    let chosen = node_ports_among(lab)?;
    checks.require(
        "… which the kernel does where they are not reserved",
        chosen == LISTENS.len(),
        &format!("{chosen} of {} were", LISTENS.len()),
    );
    node.set(&[(RESERVED.to_owned(), &reserved), (RANGE.to_owned(), &range)])
}

pub(super) fn read(lab: &Lab<'_>, setting: &str) -> Result<String> {
    let text = lab.inside(Resident::Node(NODE), || value_of(setting))?;
    Ok(text.trim().to_owned())
}

/// A kernel setting of this network namespace.
pub(super) fn value_of(setting: &str) -> Result<String> {
    let path = Path::new("/proc/sys").join(setting);
    // The kernel answers only the first read, with as much of a list as fits.
    let mut text = vec![0; 64 << 10];
    let read = File::open(&path).and_then(|mut file| file.read(&mut text));
    text.truncate(read.with_context(|| format!("read {}", path.display()))?);
    Ok(String::from_utf8(text)?)
}

/// Number of connections whose local port at the node is a node port.
fn node_ports_among(lab: &Lab<'_>) -> Result<usize> {
    let limit = lab.limit(waits::ANSWER);
    let open = |port| {
        let to = SocketAddr::new(outside_address(Family::IPv4), port);
        TcpStream::connect_timeout(&to, limit).with_context(|| format!("dial {to}"))
    };
    let streams = lab.inside(Resident::Node(NODE), || {
        LISTENS.map(open).collect::<Result<Vec<_>>>()
    })?;
    let mut count = 0;
    for stream in &streams {
        count += usize::from(NODE_PORTS.contains(&stream.local_addr()?.port()));
    }
    Ok(count)
}
