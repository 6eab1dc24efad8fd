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
    /// The problem, and the expected value.
    pub problem: String,
}

impl FieldError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The same error for settings in another place.
    pub(super) fn within(mut self, place: &str) -> Self {
        self.field = self.field.replacen("spec.settings", place, 1);
        self
    }

    /// The same error with its consequence.
    pub(super) fn with(mut self, result: &str) -> Self {
        self.problem += "; ";
        self.problem += result;
        self
    }
}

/// The value is ignored; the object is used.
impl From<FieldError> for Reason {
    fn from(error: FieldError) -> Self {
        Self::Ignored {
            field: error.field,
            problem: error.problem,
        }
    }
}

/// An IP address. Leading zeros are decimal, and an IPv4-mapped IPv6 address is IPv4, as Kubernetes parses them
/// (S-8).
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
                format!("{text:?} is not an IP address; write one like 10.96.0.10 or fd00::10"),
            )
        })
}

fn decimal(part: &str) -> Option<u8> {
    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| part.parse().ok()).flatten()
}

/// An address range. A range of IPv4-mapped IPv6 addresses is IPv4 (S-219).
pub(super) fn cidr(text: &str, field: impl Into<String>) -> Result<IpNet, FieldError> {
    let range = text.parse::<IpNet>().map(|range| canonical(range.trunc()));
    range.map_err(|_| {
        FieldError::new(
            field,
            format!("{text:?} is not an address range; write one like 10.96.0.0/12 or fd00::/112"),
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

/// A required port.
pub(super) fn port(number: i32, field: impl Into<String>) -> Result<u16, FieldError> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| {
        let problem = if number == 0 {
            "0 or missing; write a port from 1 to 65535".to_owned()
        } else {
            format!("{number} is not a port; write one from 1 to 65535")
        };
        FieldError::new(field, problem)
    })
}

/// A protocol; the default is TCP.
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
            format!("{text:?} is not a protocol; write TCP, UDP or SCTP"),
        )),
    }
}

/// Maximum length of an object name, in bytes, as in Kubernetes.
const MAX_NAME_BYTES: usize = 253;
/// Maximum length of a label value, in bytes, as in Kubernetes.
pub(super) const MAX_LABEL_BYTES: usize = 63;
/// Maximum length of the kernel's names of schedulers and devices, in bytes.
pub(super) const MAX_KERNEL_NAME_BYTES: usize = 15;

/// The name of an object. It becomes part of a key, so only the characters of Kubernetes names are allowed.
pub(super) fn name(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    word(
        text,
        MAX_NAME_BYTES,
        allowed,
        "lower-case letters, digits, '-' and '.'",
        field,
    )
}

/// The name of a port.
pub(super) fn port_name(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    word(
        text,
        MAX_LABEL_BYTES,
        allowed,
        "lower-case letters, digits, '-' and '.'",
        field,
    )
}

/// A non-empty label value.
pub(super) fn label(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    word(
        text,
        MAX_LABEL_BYTES,
        allowed,
        "letters, digits, '-', '_' and '.'",
        field,
    )
}

/// A name that is passed to the kernel.
pub(super) fn kernel_name(text: &str, field: impl Into<String>) -> Result<Arc<str>, FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    word(
        text,
        MAX_KERNEL_NAME_BYTES,
        allowed,
        "letters, digits, '-', '_', '.' and '@'",
        field,
    )
}

/// A prefix of interface names. A rule adds `+` to it and has room for one interface name.
pub(super) fn interface_prefix(
    text: &str,
    field: impl Into<String>,
) -> Result<Arc<str>, FieldError> {
    let field = field.into();
    let prefix = kernel_name(text, field.clone())?;
    if prefix.len() < MAX_KERNEL_NAME_BYTES {
        return Ok(prefix);
    }
    let longest = MAX_KERNEL_NAME_BYTES - 1;
    Err(FieldError::new(
        field,
        format!("{text:?} is longer than {longest} bytes, which is the most for a prefix"),
    ))
}

/// The IPVS schedulers of all kernels. With another name, probably mistyped, no node could ever apply its plan.
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
        format!("{name:?} is not a scheduler of IPVS; known are {known}"),
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

/// A number within limits.
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

/// The name of a cluster-scoped object.
pub(super) fn own_name(metadata: &ObjectMeta) -> Result<Arc<str>, FieldError> {
    let Some(text) = metadata.name.as_deref() else {
        return Err(FieldError::new(
            "metadata.name",
            "missing; an object needs a name",
        ));
    };
    name(text, "metadata.name")
}

/// Namespace and name of an object. The default namespace is `default`, as in kubectl.
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
        assert!(kernel_name("a-name-of-15-by", "f").is_ok());
        assert!(interface_prefix("a-name-of-15-by", "f").is_err());
        assert!(interface_prefix("a-name-of-14-b", "f").is_ok());
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
