//! Conntrack entries of a node, from the tool `conntrack`: a witness that shares no code with the
//! agent.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};

use crate::namespace::Namespace;
use crate::program::Program;

/// An entry of connection tracking.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tracked {
    pub(super) protocol: String,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// The address that answers are expected from.
    pub(super) reply_source: SocketAddr,
    /// Distinguishes it from a later entry with the same addresses and ports.
    pub(super) id: u64,
}

/// Every UDP, TCP and SCTP entry of a node.
pub(super) fn all(node: &Namespace) -> Result<Vec<Tracked>> {
    node.inside(|| {
        let mut all = Vec::new();
        for family in ["ipv4", "ipv6"] {
            let text = Program::Conntrack.run(&["-L", "-o", "id", "-f", family])?;
            for line in text.lines().filter(|line| has_ports(line)) {
                all.push(parse(line).with_context(|| format!("read {line:?} of conntrack"))?);
            }
        }
        Ok(all)
    })
}

/// Creates an untranslated entry, as if a client had sent to this address.
pub(super) fn insert(
    node: &Namespace,
    protocol: &str,
    source: SocketAddr,
    destination: SocketAddr,
) -> Result<()> {
    let (from, to) = (source.ip().to_string(), destination.ip().to_string());
    let ports = [source.port().to_string(), destination.port().to_string()];
    let mut args = vec!["-I", "-p", protocol, "-s", &from, "-d", &to];
    args.extend(["--sport", &ports[0], "--dport", &ports[1], "-t", "3600"]);
    match protocol {
        "tcp" => args.extend(["--state", "ESTABLISHED"]),
        "sctp" => args.extend([
            "--state",
            "ESTABLISHED",
            "--orig-vtag",
            "1",
            "--reply-vtag",
            "2",
        ]),
        _ => {}
    }
    node.inside(|| Program::Conntrack.run(&args).map(drop))
}

fn has_ports(line: &str) -> bool {
    ["udp ", "tcp ", "sctp "]
        .iter()
        .any(|protocol| line.starts_with(protocol))
}

fn parse(line: &str) -> Result<Tracked> {
    let mut words = line.split_whitespace();
    let protocol = words.next().context("no protocol")?.to_owned();
    let (mut addresses, mut ports, mut id) = (Vec::new(), Vec::new(), None);
    for word in words {
        match word.split_once('=') {
            Some(("src" | "dst", address)) => addresses.push(address.parse::<IpAddr>()?),
            Some(("sport" | "dport", port)) => ports.push(port.parse::<u16>()?),
            Some(("id", number)) => id = Some(number.parse()?),
            _ => {}
        }
    }
    let ([source, destination, reply_source, _], [from, to, reply_from, _]) =
        (&addresses[..], &ports[..])
    else {
        bail!("not two directions with ports");
    };
    Ok(Tracked {
        protocol,
        source: (*source, *from).into(),
        destination: (*destination, *to).into(),
        reply_source: (*reply_source, *reply_from).into(),
        id: id.context("no id")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_conntrack_is_understood() {
        let line = "udp      17 29 src=10.244.1.13 dst=10.96.3.1 sport=40000 dport=53 \
                    src=10.244.2.11 dst=10.244.1.13 sport=5353 dport=40000 [ASSURED] mark=0 use=1 \
                    id=3937845994";
        assert!(has_ports(line));
        let tracked = parse(line).unwrap();
        assert_eq!(tracked.source, "10.244.1.13:40000".parse().unwrap());
        assert_eq!(tracked.destination, "10.96.3.1:53".parse().unwrap());
        assert_eq!(tracked.reply_source, "10.244.2.11:5353".parse().unwrap());
        assert_eq!((&*tracked.protocol, tracked.id), ("udp", 3_937_845_994));
        assert!(parse("udp 17 29 src=10.244.1.13 dst=10.96.3.1 id=1").is_err());
        assert!(!has_ports(
            "icmp     1 29 src=10.244.1.13 dst=10.96.3.1 type=8"
        ));
    }
}
