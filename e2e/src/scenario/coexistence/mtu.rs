//! A link on the way that takes only small packets: its ICMP errors must find the client through
//! every translation, or large transfers hang.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::firewall::TOOLS;
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Family, Node, OUTSIDE, Pod, Resident};

/// The pod that takes in whatever it is sent.
const SINK: Pod = Node::B.pod(1);
const PORT: u16 = 8090;
/// Some hundred packets.
const BYTES: usize = 300_000;
/// Far more than the transfer takes, and less than TCP gives up after.
const PATIENCE: Duration = Duration::from_secs(3);

/// A policy rule that the agent restores when it reads the node's network. Nothing depends on it meanwhile.
const LOOKED_AT: &str = "92:";
/// Adding it triggers a read of the network.
const ADDRESS: &str = "192.168.50.77/32";
const WHOLE: &str = "10.96.0.0/12 dev kube-ipvs0";

/// Clients, and the frontends of the Service `bulk`: masqueraded and not.
const TRANSFERS: [(&str, &str); 6] = [
    (OUTSIDE, "192.168.50.11:30091"),
    (OUTSIDE, "[fd00:50::11]:30091"),
    ("pod-a3", "10.96.1.21:8090"),
    ("pod-a3", "[fd00:10:96::121]:8090"),
    ("node-a", "10.96.1.21:8090"),
    ("node-a", "[fd00:10:96::121]:8090"),
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let listener = lab.inside(Resident::Pod(SINK), || {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).context("listen for large transfers")
    })?;
    listener.set_nonblocking(true)?;
    let cable = SINK.cable();
    let link = ["link", "set", &cable, "mtu", "1300"];
    lab.node(Node::B)?.inside(|| Program::Ip.run(&link))?;
    for (from, to) in TRANSFERS {
        let target: SocketAddr = to.parse().with_context(|| format!("read {to:?}"))?;
        let family = Family::of(target.ip());
        errors_are_dropped(lab, family, true)?;
        let hangs = transfer(lab, &listener, from, target).and_then(|ended| match ended {
            Ended::Stalled { .. } => Ok(()),
            Ended::Whole => bail!("the transfer ended"),
        });
        let what = format!("{from} -> {to}: without the ICMP errors of the small link it hangs");
        checks.check(&what, hangs);
        errors_are_dropped(lab, family, false)?;
        if learns_late(from, family) {
            // Only its route learns the MTU; whether this transfer completes depends on the kernel.
            transfer(lab, &listener, from, target)?;
        }
        let what = format!("{from} -> {to}: with them a large transfer completes (S-85)");
        let ended = transfer(lab, &listener, from, target).and_then(|ended| match ended {
            Ended::Whole => Ok(()),
            Ended::Stalled { taken } => bail!("it stalled after {taken} bytes"),
        });
        checks.check(&what, ended);
    }
    if lab.stage.dataplane == Dataplane::Ipvs {
        checks.check(
            "ranges are still routed as a whole after path MTUs were learnt (S-24, S-30)",
            ranges_are_whole(lab),
        );
    }
    Ok(())
}

/// The kernel keeps a path MTU beside its routes, for one address inside the range. The agent reads all routes when
/// an address is added; the rule that it restores proves that it did.
fn ranges_are_whole(lab: &Lab<'_>) -> Result<()> {
    let waits = lab.stage.waits;
    lab.node(Node::A)?.inside(|| {
        Program::Ip.run(&["rule", "del", "pref", "92"])?;
        Program::Ip.run(&["address", "add", ADDRESS, "dev", "eth0"])?;
        let looked = waits.eventually("a policy rule that comes back", PATIENCE, || {
            let rules = Program::Ip.run(&["rule", "show"])?;
            ensure!(
                rules.lines().any(|line| line.starts_with(LOOKED_AT)),
                "{LOOKED_AT} is not among\n{rules}"
            );
            Ok(())
        });
        let routes = Program::Ip.run(&["-4", "route", "show"]);
        Program::Ip.run(&["address", "del", ADDRESS, "dev", "eth0"])?;
        looked?;
        let routes = routes?;
        ensure!(routes.contains(WHOLE), "{WHOLE} is not among\n{routes}");
        Ok(())
    })
}

/// Whether the first connection may hang. The kernel updates the route. Over IPv4 it does not update a socket that
/// uses this route already, if the route leads to the node itself over another device than `lo`: only the next
/// connection uses the new MTU. Addresses bound to a dummy device behave the same.
fn learns_late(from: &str, family: Family) -> bool {
    from == Node::A.name() && family == Family::IPv4
}

/// Whether node-a is deaf to the errors.
fn errors_are_dropped(lab: &Lab<'_>, family: Family, yes: bool) -> Result<()> {
    let matches = match family {
        Family::IPv4 => "-p icmp --icmp-type fragmentation-needed",
        Family::IPv6 => "-p icmpv6 --icmpv6-type packet-too-big",
    };
    let act = if yes { "-I" } else { "-D" };
    let line = format!("-w -t raw {act} PREROUTING {matches} -j DROP");
    let tools = TOOLS.into_iter().filter(|tool| tool.0 == family);
    lab.node(Node::A)?.inside(|| {
        for (_, tool) in tools {
            tool.run_line(&line)?;
        }
        Ok(())
    })
}

/// How a transfer ended that began.
enum Ended {
    /// All bytes arrived.
    Whole,
    /// This number of bytes arrived, then none for a long time.
    Stalled { taken: usize },
}

/// Sends all bytes, and reads from the receiver how many arrived.
fn transfer(
    lab: &Lab<'_>,
    listener: &TcpListener,
    from: &str,
    target: SocketAddr,
) -> Result<Ended> {
    let client = Resident::named(from).with_context(|| format!("find {from}"))?;
    let patience = lab.limit(PATIENCE);
    std::thread::scope(|scope| {
        let sink = scope.spawn(|| take_in(listener, patience));
        let sent = lab.inside(client, || {
            send(target, patience).with_context(|| format!("send to {target}"))
        });
        let Ok(taken) = sink.join() else {
            bail!("the thread that takes bytes in panicked");
        };
        let ended = taken?;
        if let Ended::Whole = ended {
            // The receiver of a stalled transfer ends with an error, as expected.
            sent?;
        }
        Ok(ended)
    })
}

fn send(target: SocketAddr, patience: Duration) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, patience)?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&vec![0x2a; BYTES])?;
    stream.shutdown(Shutdown::Write)?;
    let mut count = String::new();
    stream.read_to_string(&mut count)?;
    ensure!(count == BYTES.to_string(), "the other side got {count:?}");
    Ok(())
}

/// Takes one connection to its end.
fn take_in(listener: &TcpListener, patience: Duration) -> Result<Ended> {
    let start = Instant::now();
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                ensure!(start.elapsed() < patience, "no client connected");
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error).context("accept a large transfer"),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    let mut buffer = vec![0; 65_536];
    let mut count = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Ok(Ended::Stalled { taken: count });
            }
            Err(error) => return Err(error).context("read a large transfer"),
        }
    }
    stream.write_all(count.to_string().as_bytes())?;
    ensure!(count == BYTES, "only {count} of {BYTES} bytes arrived");
    Ok(Ended::Whole)
}
