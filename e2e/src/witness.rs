//! The kernel's own view, from the kernel's own text and the tools everybody uses: never through
//! the code under test.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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

/// All virtual servers of a namespace.
///
/// # Errors
/// When the kernel's text cannot be read.
pub fn virtual_servers(namespace: &Namespace) -> Result<VirtualServers> {
    namespace.inside(|| {
        let path = "/proc/thread-self/net/ip_vs";
        let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
        parse(&text)
    })
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

/// What rules there are, table by table. Dates, packet counts and tables without content say
/// nothing: some versions of the tool print empty tables and some do not.
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

fn parse(text: &str) -> Result<VirtualServers> {
    let mut servers = VirtualServers::new();
    let mut current = None;
    // Three lines of header, then servers; real servers begin with an arrow.
    for line in text.lines().skip(3) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["->", address, _forward, weight, ..] => {
                let key = current
                    .as_ref()
                    .context("a real server before any virtual one")?;
                let weight = weight
                    .parse()
                    .with_context(|| format!("read weight in {line:?}"))?;
                servers
                    .entry(VirtualServer::clone(key))
                    .or_default()
                    .insert(socket_address(address)?, weight);
            }
            ["FWM", ..] | [] => current = None,
            [protocol, address, ..] => {
                let address = socket_address(address)?;
                let key = VirtualServer {
                    protocol: (*protocol).to_owned(),
                    address,
                };
                servers.insert(key.clone(), BTreeMap::new());
                current = Some(key);
            }
            [_] => bail!("cannot read {line:?} of /proc/net/ip_vs"),
        }
    }
    Ok(servers)
}

/// `0A600001:01BB` or `[fd00:0010:…]:0050`; the port is hexadecimal in both.
fn socket_address(text: &str) -> Result<SocketAddr> {
    let read = || -> Option<SocketAddr> {
        let (address, port) = text.rsplit_once(':')?;
        let address = match address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(six) => IpAddr::V6(six.parse::<Ipv6Addr>().ok()?),
            None => IpAddr::V4(Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?)),
        };
        Some(SocketAddr::new(
            address,
            u16::from_str_radix(port, 16).ok()?,
        ))
    };
    read().with_context(|| format!("read address {text:?} of /proc/net/ip_vs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_is_read_in_both_families() {
        let text = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
FWM  00000001 rr
  -> 0AF4010C:1F90      Masq    1      0          0
TCP  0A60000A:0050 rr  persistent 10800 FFFFFFFF
  -> 0AF4010B:1F90      Masq    1      2          0
UDP  [fd00:0010:0096:0000:0000:0000:0000:0053]:0035 rr
TCP  [fd00:0010:0096:0000:0000:0000:0000:0010]:0050 rr
  -> [fd00:0010:0244:0001:0000:0000:0000:0011]:1F90      Masq    0      0          0
";
        // A real server of a firewall mark belongs to nobody we know: an error, not a guess.
        assert!(parse(text).is_err());
        let text: String = text
            .lines()
            .filter(|line| !line.contains("0AF4010C"))
            .map(|l| format!("{l}\n"))
            .collect();
        let servers = parse(&text).unwrap();
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
