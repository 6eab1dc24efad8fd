//! The kernel's own view, from files of the kernel and standard tools: never through the code under
//! test.

pub mod tables;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use crate::namespace::Namespace;
use crate::program::Program;

/// A virtual server's key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualServer {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Where clients connect.
    pub address: SocketAddr,
}

/// Virtual servers with the weights of their real servers.
pub type VirtualServers = BTreeMap<VirtualServer, BTreeMap<SocketAddr, u32>>;

/// Whether this kernel has IPVS; loads the module if that is all it takes.
///
/// # Errors
/// When it has none; the message says what to do.
pub fn require_ipvs() -> Result<()> {
    let there = || std::path::Path::new("/proc/net/ip_vs").exists();
    if there() {
        return Ok(());
    }
    let loaded = Program::Modprobe.run(&["ip_vs"]);
    if there() {
        return Ok(());
    }
    let why = loaded
        .err()
        .map_or_else(String::new, |error| format!(" ({error:#})"));
    bail!("this kernel has no IPVS and ip_vs could not be loaded{why}: run this in the lab's guest")
}

/// All virtual servers of a namespace, as `ipvsadm` saves them.
///
/// Not from `/proc/net/ip_vs`: once its text is longer than a page and several namespaces hold
/// virtual servers, Linux 6.1 leaves some out.
///
/// # Errors
/// If `ipvsadm` fails or its output cannot be parsed.
pub fn virtual_servers(namespace: &Namespace) -> Result<VirtualServers> {
    parse(&namespace.inside(|| Program::Ipvsadm.run(&["-Sn"]))?)
}

/// The part that takes new connections: without draining real servers, and without virtual servers
/// that only have those.
#[must_use]
pub fn without_draining(servers: VirtualServers) -> VirtualServers {
    let left = servers.into_iter().filter_map(|(server, mut held)| {
        let before = held.len();
        held.retain(|_, weight| *weight > 0);
        (before == 0 || !held.is_empty()).then_some((server, held))
    });
    left.collect()
}

/// Everything a Service proxy could write in a namespace, as comparable text: what must not
/// change when nothing is to be done.
///
/// # Errors
/// When one of the tools fails.
pub fn everything(namespace: &Namespace) -> Result<BTreeMap<&'static str, String>> {
    namespace.inside(|| {
        let ip = |args: &[&str]| Program::Ip.run(args);
        Ok(BTreeMap::from([
            ("virtual servers", sorted(&Program::Ipvsadm.run(&["-Sn"])?)),
            ("sets", sorted(&Program::Ipset.run(&["save"])?)),
            ("IPv4 rules", rules_only(&Program::IptablesSave.run(&[])?)),
            ("IPv6 rules", rules_only(&Program::Ip6tablesSave.run(&[])?)),
            ("links", ip(&["-o", "link", "show"])?),
            (
                "IPv4 routes",
                sorted(&ip(&["route", "show", "table", "all"])?),
            ),
            (
                "IPv6 routes",
                sorted(&ip(&["-6", "route", "show", "table", "all"])?),
            ),
        ]))
    })
}

/// The first thing that differs, in words.
///
/// # Errors
/// When something differs.
pub fn must_equal(
    before: &BTreeMap<&'static str, String>,
    after: &BTreeMap<&'static str, String>,
) -> Result<()> {
    for (what, text) in after {
        let old = before.get(what).map_or("", String::as_str);
        if old == text {
            continue;
        }
        let gone: Vec<_> = old
            .lines()
            .filter(|line| !text.lines().any(|l| l == *line))
            .collect();
        let new: Vec<_> = text
            .lines()
            .filter(|line| !old.lines().any(|l| l == *line))
            .collect();
        bail!("{what} differ: gone {gone:?}, new {new:?}");
    }
    Ok(())
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The rules, table by table. Dates, packet counts and empty tables are left out: some versions of
/// the tool print empty tables and some do not.
fn rules_only(text: &str) -> String {
    let mut table = "";
    let mut rules = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if line.starts_with("-A") || (line.starts_with(':') && !line.contains(" ACCEPT ")) {
            let rule = line.split(" [").next().unwrap_or(line);
            rules.push(format!("{table} {rule}"));
        }
    }
    rules.join("\n")
}

/// Lines like `-A -t 10.96.0.10:80 -s rr` and `-a -t 10.96.0.10:80 -r 10.244.1.11:8080 -m -w 1`.
fn parse(text: &str) -> Result<VirtualServers> {
    let mut servers = VirtualServers::new();
    for line in text.lines() {
        let not_understood = || format!("read {line:?} of ipvsadm -Sn");
        let mut words = line.split_whitespace();
        let act = words.next();
        let key = virtual_server(words.next(), words.next()).with_context(not_understood)?;
        if act == Some("-A") {
            servers.insert(key, BTreeMap::new());
            continue;
        }
        let (address, weight) = real_server(words).with_context(not_understood)?;
        let of = servers.get_mut(&key).with_context(not_understood)?;
        of.insert(address, weight);
    }
    Ok(servers)
}

fn virtual_server(option: Option<&str>, address: Option<&str>) -> Option<VirtualServer> {
    let protocol = match option? {
        "-t" => "TCP",
        "-u" => "UDP",
        "--sctp-service" => "SCTP",
        // Firewall marks: Portolan never makes any, so nothing here should have one.
        _ => return None,
    };
    Some(VirtualServer {
        protocol: protocol.to_owned(),
        address: address?.parse().ok()?,
    })
}

fn real_server<'a>(words: impl Iterator<Item = &'a str>) -> Option<(SocketAddr, u32)> {
    let words: Vec<_> = words.collect();
    let after = |option| {
        let place = words.iter().position(|word| *word == option)?;
        words.get(place + 1).copied()
    };
    Some((after("-r")?.parse().ok()?, after("-w")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_virtual_servers_are_read_in_both_families() {
        let text = "\
-A -t 10.96.0.10:80 -s rr -p 10800
-a -t 10.96.0.10:80 -r 10.244.1.11:8080 -m -w 1
-A -u [fd00:10:96::53]:53 -s rr
-A -t [fd00:10:96::10]:80 -s rr
-a -t [fd00:10:96::10]:80 -r [fd00:10:244:1::11]:8080 -m -w 0
";
        let servers = parse(text).unwrap();
        let seen: Vec<_> = servers
            .iter()
            .map(|(key, reals)| format!("{} {} {reals:?}", key.protocol, key.address))
            .collect();
        assert_eq!(
            seen,
            [
                "TCP 10.96.0.10:80 {10.244.1.11:8080: 1}",
                "TCP [fd00:10:96::10]:80 {[fd00:10:244:1::11]:8080: 0}",
                "UDP [fd00:10:96::53]:53 {}",
            ]
        );
        assert!(
            parse("-A -f 1 -s rr").is_err(),
            "firewall marks are not used here"
        );
    }

    #[test]
    fn draining_servers_are_distinguished_from_empty_ones() {
        let text = "\
-A -t 10.96.0.1:80 -s rr
-a -t 10.96.0.1:80 -r 10.244.1.11:8080 -m -w 1
-a -t 10.96.0.1:80 -r 10.244.1.12:8080 -m -w 0
-A -t 10.96.0.2:80 -s rr
-a -t 10.96.0.2:80 -r 10.244.1.11:8080 -m -w 0
-A -t 10.96.0.3:80 -s rr
";
        let left = without_draining(parse(text).unwrap());
        let left: Vec<_> = left
            .iter()
            .map(|(key, held)| (key.address.to_string(), held.len()))
            .collect();
        let expected = [("10.96.0.1:80", 1), ("10.96.0.3:80", 0)];
        assert_eq!(left, expected.map(|(at, count)| (at.to_owned(), count)));
    }

    #[test]
    fn counters_dates_and_empty_tables_are_no_difference() {
        let rules = "\
# Generated on Monday
*nat
:PREROUTING ACCEPT [0:0]
COMMIT
*filter
:INPUT ACCEPT [12:345]
:MINE - [0:0]
-A INPUT -j MINE
COMMIT";
        assert_eq!(rules_only(rules), "filter :MINE -\nfilter -A INPUT -j MINE");
    }
}
