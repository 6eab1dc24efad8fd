//! The text form of entries, as in `ipset save`: `10.0.0.1,tcp:80`, `10.96.0.0/12`, `fd00::1,udp:53,fd00::1`,
//! `10.0.0.1,tcp:80,10.1.0.0/16`, `8080`. A range of one address is written as the address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::entry::Entry;
use crate::kind::{Family, Protocol};

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IpPort {
                address,
                protocol,
                port,
            } => write!(f, "{address},{protocol}:{port}"),
            Self::Net(net) if net.prefix_len() == Family::of(net.addr()).bits() => {
                write!(f, "{}", net.addr())
            }
            Self::Net(net) => write!(f, "{}", net.trunc()),
            Self::IpPortIp {
                address,
                protocol,
                port,
                source,
            } => {
                write!(f, "{address},{protocol}:{port},{source}")
            }
            Self::IpPortNet {
                address,
                protocol,
                port,
                net,
            } => write!(f, "{address},{protocol}:{port},{}", Self::Net(*net)),
            Self::Port(port) => write!(f, "{port}"),
        }
    }
}

/// The text is not a set entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a set entry: {reason}")]
pub struct ParseEntryError {
    /// The text.
    pub text: String,
    /// The reason.
    pub reason: &'static str,
}

impl FromStr for Entry {
    type Err = ParseEntryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |reason| ParseEntryError {
            text: text.to_owned(),
            reason,
        };
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let second = parts.next();
        let third = parts.next();
        if parts.next().is_some() {
            return Err(refuse("it has more than three parts"));
        }
        let Some(second) = second else {
            if let Ok(port) = first.parse() {
                return Ok(Self::Port(port));
            }
            return parse_net(first).map(Self::Net).map_err(refuse);
        };
        let address = parse_address(first).map_err(refuse)?;
        let (protocol, port) = parse_port(second).map_err(refuse)?;
        Ok(match third {
            None => Self::IpPort {
                address,
                protocol,
                port,
            },
            Some(third) if third.contains('/') => Self::IpPortNet {
                address,
                protocol,
                port,
                net: parse_net(third).map_err(refuse)?,
            },
            Some(third) => {
                let source = parse_address(third).map_err(refuse)?;
                Self::IpPortIp {
                    address,
                    protocol,
                    port,
                    source,
                }
            }
        })
    }
}

fn parse_address(text: &str) -> Result<IpAddr, &'static str> {
    text.parse().map_err(|_| "an address was expected")
}

fn parse_net(text: &str) -> Result<IpNet, &'static str> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let net: IpNet = text
        .parse()
        .map_err(|_| "a port, an address or a range such as 10.0.0.0/8 was expected")?;
    Ok(net.trunc())
}

fn parse_port(text: &str) -> Result<(Protocol, u16), &'static str> {
    let (protocol, port) = text
        .split_once(':')
        .ok_or("a port such as tcp:80 was expected")?;
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|candidate| candidate.name() == protocol)
        .ok_or("the protocol is not tcp, udp or sctp")?;
    let port = port
        .parse()
        .map_err(|_| "the port is not a number from 0 to 65535")?;
    Ok((protocol, port))
}
