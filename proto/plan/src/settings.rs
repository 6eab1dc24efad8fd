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
    /// The ports that the API server takes node ports from (S-222).
    pub node_port_range: PortRange,
    /// How packets of this node's pods are told from others (S-204).
    pub local_detection: LocalDetection,
    /// Source address translation.
    pub masquerade: MasqueradeSettings,
    /// How packets to Services are led to IPVS.
    pub capture: CaptureSettings,
    /// Whether the host's firewall decides who may connect to Services on the node's own addresses (S-213).
    pub host_firewall: HostFirewall,
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
    /// The dummy device that routes to service ranges lead to. It has no address.
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
            node_port_range: PortRange::default(),
            local_detection: LocalDetection::default(),
            masquerade: MasqueradeSettings::default(),
            capture: CaptureSettings::default(),
            host_firewall: HostFirewall::default(),
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

impl MasqueradeSettings {
    /// The bit as a mark, which is its own mask.
    pub fn mark(&self) -> u32 {
        mark(self.bit)
    }
}

/// The mark with this bit alone.
fn mark(bit: u8) -> u32 {
    1u32.checked_shl(bit.into()).unwrap_or_default()
}

/// How packets to Services are led to IPVS: by a mark, policy routing rules and a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaptureSettings {
    /// Which bit of the packet mark is ours, 0 to 31.
    pub bit: u8,
    /// The priority of the first of three policy routing rules, 1 to 32763.
    pub rule_priority: u32,
    /// The routing table, 256 or more.
    pub table: u32,
}

impl Default for CaptureSettings {
    fn default() -> Self {
        Self {
            bit: 12,
            rule_priority: 90,
            table: 10_270,
        }
    }
}

impl CaptureSettings {
    /// The bit as a mark, which is its own mask.
    pub fn mark(&self) -> u32 {
        mark(self.bit)
    }
}

/// Who decides about connections to Services on the node's own addresses, such as node ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostFirewall {
    /// They are let in, whatever the host's chain INPUT says.
    #[default]
    Open,
    /// The host's chain INPUT decides.
    Respect,
}

/// Ports from a first to a last one, written `30000-32767`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl Default for PortRange {
    fn default() -> Self {
        Self {
            first: 30_000,
            last: 32_767,
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A text that is no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no range of ports; write the first and the last, like 30000-32767")]
pub struct PortRangeError {
    /// The text as it came.
    pub text: String,
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let error = || PortRangeError { text: text.into() };
        let number = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let (first, last) = text.split_once('-').ok_or_else(error)?;
        let range = number(first).zip(number(last));
        let range = range.filter(|(first, last)| first <= last);
        let (first, last) = range.ok_or_else(error)?;
        Ok(Self { first, last })
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeoutSettings {
    /// Idle established TCP connections. The kernel's 15 minutes reset what connection tracking keeps for a day
    /// (S-221).
    pub tcp: Period,
    /// TCP connections after a FIN.
    pub tcp_fin: Period,
    /// UDP flows.
    pub udp: Period,
}

impl Default for TimeoutSettings {
    fn default() -> Self {
        Self {
            tcp: ConntrackSettings::default().tcp_established,
            tcp_fin: Period::default(),
            udp: Period::default(),
        }
    }
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
    /// How long a UDP flow is kept that had no answer yet.
    pub udp_timeout: Period,
    /// How long a UDP flow is kept that had answers.
    pub udp_stream_timeout: Period,
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
            udp_timeout: Period::default(),
            udp_stream_timeout: Period::default(),
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
