//! Single values: addresses, ports, words, names.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portolan_plan::Protocol;
use portolan_planner::Reason;
use thiserror::Error;

/// A field that makes its object unreadable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The path of the field, like `spec.ports[0].port`.
    pub field: String,
    /// What is wrong with it, and what to write instead.
    pub problem: String,
}

impl FieldError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The same about settings in another place.
    pub(super) fn within(mut self, place: &str) -> Self {
        self.field = self.field.replacen("spec.settings", place, 1);
        self
    }

    /// The same, and what follows from it.
    pub(super) fn with(mut self, result: &str) -> Self {
        self.problem += "; ";
        self.problem += result;
        self
    }
}

/// The value is passed over, the object is not.
impl From<FieldError> for Reason {
    fn from(error: FieldError) -> Self {
        Self::Ignored {
            field: error.field,
            problem: error.problem,
        }
    }
}

/// An address. Leading zeros are decimal, and an IPv4 address in IPv6 clothes is IPv4, as
/// Kubernetes reads them (S-8).
pub(super) fn address(text: &str, field: impl Into<String>) -> Result<IpAddr, FieldError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical());
    }
    let parts: Option<Vec<u8>> = text.split('.').map(decimal).collect();
    let octets: Option<[u8; 4]> = parts.and_then(|parts| parts.try_into().ok());
    octets
        .map(|octets| IpAddr::V4(Ipv4Addr::from(octets)))
        .ok_or_else(|| {
            FieldError::new(
                field,
                format!("{text:?} is no IP address; write one like 10.96.0.10 or fd00::10"),
            )
        })
}

fn decimal(part: &str) -> Option<u8> {
    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| part.parse().ok()).flatten()
}

/// An address range. One of IPv4 addresses in IPv6 clothes is of IPv4 (S-219).
pub(super) fn cidr(text: &str, field: impl Into<String>) -> Result<IpNet, FieldError> {
    let range = text.parse::<IpNet>().map(|range| canonical(range.trunc()));
    range.map_err(|_| {
        FieldError::new(
            field,
            format!("{text:?} is no address range; write one like 10.96.0.0/12 or fd00::/112"),
        )
    })
}

fn canonical(range: IpNet) -> IpNet {
    let address = range.network().to_canonical();
    let length = range.prefix_len().checked_sub(96);
    let of_ipv4 = length.filter(|_| address.is_ipv4() && range.network().is_ipv6());
    of_ipv4
        .and_then(|length| IpNet::new(address, length).ok())
        .unwrap_or(range)
}

/// A port that must be there.
pub(super) fn port(number: i32, field: impl Into<String>) -> Result<u16, FieldError> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| {
        let problem = if number == 0 {
            "0 or missing; write a port from 1 to 65535".to_owned()
        } else {
            format!("{number} is no port; write one from 1 to 65535")
        };
        FieldError::new(field, problem)
    })
}

/// A protocol; TCP where nothing is said.
pub(super) fn protocol(
    text: Option<&str>,
    field: impl Into<String>,
) -> Result<Protocol, FieldError> {
    match text {
        None | Some("" | "TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(text) => Err(FieldError::new(
            field,
            format!("{text:?} is no protocol; write TCP, UDP or SCTP"),
        )),
    }
}

/// The longest name of an object.
const LONGEST_NAME: usize = 253;
/// The longest value of a label.
pub(super) const LONGEST_LABEL: usize = 63;
/// The longest name that the kernel takes for a scheduler or a device.
pub(super) const LONGEST_KERNEL_NAME: usize = 15;

/// The name of an object: it becomes part of a key, so what Kubernetes allows is all there may be.
pub(super) fn name(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    word(
        text,
        LONGEST_NAME,
        allowed,
        "lower-case letters, digits, '-' and '.'",
        field,
    )
}

/// A value of a label that must not be empty.
pub(super) fn label(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    word(
        text,
        LONGEST_LABEL,
        allowed,
        "letters, digits, '-', '_' and '.'",
        field,
    )
}

/// A name that is handed to the kernel.
pub(super) fn kernel_name(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    word(
        text,
        LONGEST_KERNEL_NAME,
        allowed,
        "letters, digits, '-', '_', '.' and '@'",
        field,
    )
}

/// The schedulers that any kernel may have. Another name, a typing mistake most likely, would keep the
/// plans of all nodes from being applied for ever.
const SCHEDULERS: [&str; 14] = [
    "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf", "twos",
];

/// The name of an IPVS scheduler (S-101).
pub(super) fn scheduler(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let field = field.into();
    let name = kernel_name(text, field.clone())?;
    if SCHEDULERS.contains(&&*name) {
        return Ok(name);
    }
    let known = SCHEDULERS.join(", ");
    Err(FieldError::new(
        field,
        format!("no kernel has a scheduler {name:?}; known are {known}"),
    ))
}

fn word(
    text: &str,
    longest: usize,
    allowed: impl Fn(char) -> bool,
    alphabet: &str,
    field: impl Into<String>,
) -> Result<Arc<str>, FieldError> {
    if (1..=longest).contains(&text.len()) && text.chars().all(allowed) {
        return Ok(text.into());
    }
    let shown: String = text.chars().take(80).collect();
    Err(FieldError::new(
        field,
        format!("{shown:?} is not 1 to {longest} {alphabet}"),
    ))
}

/// A number within bounds.
pub(super) fn bounded<T: PartialOrd + Display + Copy>(
    number: T,
    least: T,
    most: T,
    field: impl Into<String>,
) -> Result<T, FieldError> {
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(FieldError::new(
        field,
        format!("{number} is not between {least} and {most}"),
    ))
}

/// The name of an object of the whole cluster.
pub(super) fn own_name(metadata: &ObjectMeta) -> Result<Arc<str>, FieldError> {
    let Some(text) = metadata.name.as_deref() else {
        return Err(FieldError::new(
            "metadata.name",
            "missing; an object needs a name",
        ));
    };
    name(text, "metadata.name")
}

/// Namespace and name of an object; without a namespace it is in `default`, as kubectl does it.
pub(super) fn own_names(metadata: &ObjectMeta) -> Result<(Arc<str>, Arc<str>), FieldError> {
    let namespace = metadata
        .namespace
        .as_deref()
        .filter(|text| !text.is_empty());
    Ok((
        name(namespace.unwrap_or("default"), "metadata.namespace")?,
        own_name(metadata)?,
    ))
}

/// A label or an annotation.
pub(super) fn value<'a>(map: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    map?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_kubernetes_reads_them() {
        let same = |text: &str, other: &str| {
            assert_eq!(
                address(text, "f").unwrap(),
                other.parse::<IpAddr>().unwrap()
            );
        };
        same("010.0.0.1", "10.0.0.1"); // S-8: decimal, not octal
        same("::ffff:10.0.0.1", "10.0.0.1");
        same("FD00:0:0::1", "fd00::1");
        for text in [
            "",
            "10.0.0",
            "10.0.0.0.1",
            "10.0.0.256",
            "1.2.3.+4",
            "fe80::1%eth0",
            "web",
            " 10.0.0.1",
        ] {
            assert!(address(text, "f").is_err(), "{text:?}");
        }
    }

    #[test]
    fn ports_are_1_to_65535() {
        assert_eq!(port(1, "f"), Ok(1));
        assert_eq!(port(65535, "f"), Ok(65535));
        for number in [0, -1, 65536, i32::MIN, i32::MAX] {
            assert_eq!(port(number, "f").unwrap_err().field, "f", "{number}");
        }
    }

    #[test]
    fn names_cannot_break_out_of_a_key() {
        assert!(name("cart.v2-0", "f").is_ok());
        for text in ["", "a/b", "A", "ä", "a b", &"x".repeat(254)] {
            assert!(name(text, "f").is_err(), "{text:?}");
        }
        assert!(label("Zone_1.a", "f").is_ok());
        assert!(label("zone/1", "f").is_err());
        assert!(label(&"z".repeat(64), "f").is_err());
        assert!(kernel_name("kube-ipvs0", "f").is_ok());
        assert!(kernel_name("a-name-of-16-byt", "f").is_err());
    }

    #[test]
    fn ranges_lose_their_host_bits() {
        assert_eq!(
            cidr("10.96.3.4/12", "f").unwrap().to_string(),
            "10.96.0.0/12"
        );
        let of_ipv4 = |text| cidr(text, "f").unwrap().to_string();
        assert_eq!(
            of_ipv4("::ffff:198.51.100.0/120"),
            "198.51.100.0/24",
            "S-219"
        );
        assert_eq!(of_ipv4("::ffff:0:0/96"), "0.0.0.0/0", "S-219");
        assert_eq!(
            of_ipv4("::ffff:0:0/95"),
            "::fffe:0:0/95",
            "it holds others too"
        );
        assert!(cidr("10.96.0.0", "f").is_err());
        assert!(cidr("10.96.0.0/33", "f").is_err());
    }
}
