//! Settings in force on a node. Names follow KubeProxyConfiguration where the meaning is the same.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Everything about a node's proxy that a user may set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The IPVS scheduler of Services that name none (S-101).
    pub scheduler: Arc<str>,
    /// Where node ports answer: `primary`, or ranges; empty means all local addresses (S-32…34).
    pub node_port_addresses: Vec<String>,
    /// How packets of this node's pods are told from others (S-204).
    pub local_detection: LocalDetection,
    /// Source address translation.
    pub masquerade: MasqueradeSettings,
    /// Answer ARP only for addresses of the interface that was asked (S-176).
    #[serde(rename = "strictARP")]
    pub strict_arp: bool,
    /// Which external IPs may be captured.
    #[serde(rename = "externalIPs")]
    pub external_ips: ExternalIpSettings,
    /// Virtual servers in these ranges belong to somebody else.
    #[serde(rename = "excludeCIDRs")]
    pub exclude_cidrs: Vec<IpNet>,
    /// Connection timeouts of IPVS (S-105).
    pub timeouts: TimeoutSettings,
    /// Connection tracking limits (S-178, S-179).
    pub conntrack: ConntrackSettings,
    /// How often the kernel is compared with the plan.
    pub sync: SyncSettings,
    /// How backends that left the cluster are let go.
    pub drain: DrainSettings,
    /// What is done about kernel state that somebody else changed.
    pub drift: Drift,
    /// Drop packets from backends that connection tracking calls invalid (S-173).
    pub drop_invalid: bool,
    /// The dummy device that carries the routes.
    pub device: Arc<str>,
    /// The plan kept on disk.
    pub disk: DiskSettings,
    /// The node's health port.
    pub healthz: ListenSettings,
    /// The metrics port.
    pub metrics: ListenSettings,
    /// Which Services are ours, by the value of `service.kubernetes.io/service-proxy-name`; empty
    /// means those without the label (S-2).
    pub service_proxy_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler: "rr".into(),
            node_port_addresses: vec!["primary".into()],
            local_detection: LocalDetection::default(),
            masquerade: MasqueradeSettings::default(),
            strict_arp: true,
            external_ips: ExternalIpSettings::default(),
            exclude_cidrs: Vec::new(),
            timeouts: TimeoutSettings::default(),
            conntrack: ConntrackSettings::default(),
            sync: SyncSettings::default(),
            drain: DrainSettings::default(),
            drift: Drift::default(),
            drop_invalid: true,
            device: "kube-ipvs0".into(),
            disk: DiskSettings::default(),
            healthz: ListenSettings {
                bind_address: IpAddr::from([0, 0, 0, 0]),
                port: 10256,
            },
            metrics: ListenSettings {
                bind_address: IpAddr::from([127, 0, 0, 1]),
                port: 10249,
            },
            service_proxy_name: String::new(),
        }
    }
}

/// How packets of this node's pods are recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", deny_unknown_fields)]
pub enum LocalDetection {
    /// The source lies in one of the node's pod ranges.
    #[default]
    #[serde(rename = "NodeCIDR")]
    NodeCidr,
    /// The source lies in one of these cluster-wide ranges.
    #[serde(rename = "ClusterCIDR")]
    ClusterCidr {
        /// The ranges all pods have their addresses from.
        #[serde(rename = "clusterCIDRs")]
        cluster_cidrs: Vec<IpNet>,
    },
    /// The packet came in by this bridge.
    BridgeInterface {
        /// The bridge's name, at most 15 bytes.
        bridge: String,
    },
    /// The packet came in by an interface whose name begins so.
    InterfaceNamePrefix {
        /// The beginning of the names, at most 15 bytes.
        prefix: String,
    },
}

/// Source address translation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MasqueradeSettings {
    /// Which bit of the packet mark is ours, 0 to 31 (S-72).
    pub bit: u8,
    /// Masquerade everything that goes to cluster IPs, pods too (S-75).
    pub all: bool,
}

impl Default for MasqueradeSettings {
    fn default() -> Self {
        Self {
            bit: 14,
            all: false,
        }
    }
}

/// Which external IPs may be captured (CVE-2020-8554).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalIpSettings {
    /// External IPs outside these ranges get no frontend.
    #[serde(rename = "allowedCIDRs")]
    pub allowed_cidrs: Vec<IpNet>,
}

impl Default for ExternalIpSettings {
    fn default() -> Self {
        let everything = [IpAddr::from([0u8; 4]), IpAddr::from([0u8; 16])];
        let range = |address| IpNet::new(address, 0).ok();
        Self {
            allowed_cidrs: everything.into_iter().filter_map(range).collect(),
        }
    }
}

/// Timeouts of IPVS connections; 0 leaves the kernel's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeoutSettings {
    /// Idle established TCP connections.
    pub tcp: Period,
    /// TCP connections after a FIN.
    pub tcp_fin: Period,
    /// UDP flows.
    pub udp: Period,
}

/// Connection tracking limits; 0 leaves the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConntrackSettings {
    /// Entries for each core.
    pub max_per_core: u32,
    /// Entries at least.
    pub min: u32,
    /// How long an idle established TCP connection is kept.
    pub tcp_established: Period,
    /// How long a TCP connection in CLOSE_WAIT is kept.
    pub tcp_close_wait: Period,
    /// Do not call out-of-window packets invalid.
    pub tcp_be_liberal: bool,
}

impl Default for ConntrackSettings {
    fn default() -> Self {
        Self {
            max_per_core: 32_768,
            min: 131_072,
            tcp_established: Period::seconds(86_400),
            tcp_close_wait: Period::seconds(3_600),
            tcp_be_liberal: false,
        }
    }
}

/// How often the kernel is compared with the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncSettings {
    /// A full comparison, also when nothing changed (S-184).
    pub period: Period,
    /// The shortest time between two applied batches.
    pub min_period: Period,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            period: Period::seconds(30),
            min_period: Period::default(),
        }
    }
}

/// How backends that left the cluster are let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainSettings {
    /// How long their connections may live on.
    pub deadline: Period,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            deadline: Period::seconds(60),
        }
    }
}

/// What is done about kernel state that somebody else changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drift {
    /// It is put right.
    #[default]
    Repair,
    /// It is only reported.
    Report,
}

/// The plan kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskSettings {
    /// After a reboot, a plan older than this is used for boot-critical Services only …
    pub max_age: Period,
    /// … until this long has passed without any controller.
    pub grace: Period,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            max_age: Period::seconds(600),
            grace: Period::seconds(60),
        }
    }
}

/// Where a server of the agent listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenSettings {
    /// The address; an unspecified one means both families (S-146).
    pub bind_address: IpAddr,
    /// The port; 0 means that nobody listens.
    pub port: u16,
}

impl ListenSettings {
    /// Whether somebody listens at all.
    pub fn is_on(&self) -> bool {
        self.port != 0
    }
}

/// A length of time in whole milliseconds, written as Kubernetes writes them: `30s`, `1m30s`,
/// `250ms`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    milliseconds: u64,
}

impl Period {
    /// So many seconds.
    pub const fn seconds(seconds: u32) -> Self {
        // A widening conversion; `u64::from` is not const.
        #[allow(clippy::cast_lossless)]
        Self {
            milliseconds: seconds as u64 * 1000,
        }
    }

    /// So many milliseconds.
    pub const fn milliseconds(milliseconds: u64) -> Self {
        Self { milliseconds }
    }

    /// The length in milliseconds.
    pub const fn as_milliseconds(self) -> u64 {
        self.milliseconds
    }

    /// The same as a standard duration.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.milliseconds)
    }
}

/// As Go prints a duration without its zero parts: `1h`, `1m30s`, `250ms`, `0s`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milliseconds == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.milliseconds;
        for (unit, length) in UNITS {
            let count = rest / length;
            rest %= length;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Units from the longest, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// A text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no duration; write whole numbers with units h, m, s or ms, like 30s or 1m30s")]
pub struct PeriodError {
    /// The text as it came.
    pub text: String,
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let error = || PeriodError { text: text.into() };
        let mut rest = text;
        let mut milliseconds = 0u64;
        if rest.is_empty() {
            return Err(error());
        }
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            let letters = tail
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let length = match UNITS.iter().find(|(name, _)| *name == unit) {
                Some((_, length)) => *length,
                // Go writes a bare zero too.
                None if unit.is_empty() && text == "0" => 0,
                None => return Err(error()),
            };
            let count: u64 = number.parse().map_err(|_| error())?;
            milliseconds = count
                .checked_mul(length)
                .and_then(|part| milliseconds.checked_add(part))
                .ok_or_else(error)?;
            rest = tail;
        }
        Ok(Self { milliseconds })
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
