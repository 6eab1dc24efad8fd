//! The settings in force on a node. Names follow KubeProxyConfiguration if the meaning is the same.

mod period;
mod port_range;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::period::{Period, PeriodError};
pub use self::port_range::{PortRange, PortRangeError};

/// All user settings of a node's proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The IPVS scheduler of Services that do not name one (S-101).
    pub scheduler: Arc<str>,
    /// The node addresses that serve node ports: `primary`, or CIDR ranges; empty means all local addresses
    /// (S-32…34).
    pub node_port_addresses: Vec<String>,
    /// The port range from which the API server allocates node ports (S-222).
    pub node_port_range: PortRange,
    /// How packets from this node's pods are recognised (S-204).
    pub local_detection: LocalDetection,
    /// Source address translation.
    pub masquerade: MasqueradeSettings,
    /// How packets to Services are routed to IPVS.
    pub capture: CaptureSettings,
    /// Whether the host's firewall applies to connections to Services on the node's own addresses (S-213).
    pub host_firewall: HostFirewall,
    /// The external IPs that Services may use.
    #[serde(rename = "externalIPs")]
    pub external_ips: ExternalIpSettings,
    /// Ranges of virtual servers that belong to other programs and are left alone.
    #[serde(rename = "excludeCIDRs")]
    pub exclude_cidrs: Vec<IpNet>,
    /// Connection timeouts of IPVS (S-105).
    pub timeouts: TimeoutSettings,
    /// Connection tracking limits (S-178, S-179).
    pub conntrack: ConntrackSettings,
    /// The intervals of comparing the kernel with the plan.
    pub sync: SyncSettings,
    /// How backends that left the cluster are drained.
    pub drain: DrainSettings,
    /// The reaction to kernel state that another program changed.
    pub drift: Drift,
    /// Whether to drop packets from backends that connection tracking classifies as invalid (S-173).
    pub drop_invalid: bool,
    /// The dummy device of the routes to service ranges. It has no address.
    pub device: Arc<str>,
    /// The plan saved on disk.
    pub disk: DiskSettings,
    /// The address and port of the node's health endpoint.
    pub healthz: ListenSettings,
    /// The address and port of the metrics endpoint.
    pub metrics: ListenSettings,
    /// The value of the label `service.kubernetes.io/service-proxy-name` that selects the Services to serve; empty
    /// selects Services without the label (S-2).
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

/// How packets from this node's pods are recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", deny_unknown_fields)]
pub enum LocalDetection {
    /// By a source address in the node's pod ranges.
    #[default]
    #[serde(rename = "NodeCIDR")]
    NodeCidr,
    /// By a source address in these cluster-wide ranges.
    #[serde(rename = "ClusterCIDR")]
    ClusterCidr {
        /// The ranges of all pods' addresses.
        #[serde(rename = "clusterCIDRs")]
        cluster_cidrs: Vec<IpNet>,
    },
    /// By this bridge as the input interface.
    BridgeInterface {
        /// The bridge's name, at most 15 bytes.
        bridge: String,
    },
    /// By an input interface with this name prefix.
    InterfaceNamePrefix {
        /// The prefix of the names, at most 14 bytes.
        prefix: String,
    },
}

/// Source address translation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MasqueradeSettings {
    /// The bit of the packet mark that requests masquerading, 0 to 31 (S-72).
    pub bit: u8,
    /// Whether to masquerade all connections to cluster IPs, including those from pods (S-75).
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
    /// The bit as a mark value, which is also its mask.
    pub fn mark(&self) -> u32 {
        mark(self.bit)
    }
}

/// The mark value with only this bit set.
fn mark(bit: u8) -> u32 {
    1u32.checked_shl(bit.into()).unwrap_or_default()
}

/// How packets to Services are routed to IPVS: by a mark, policy routing rules and a routing table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaptureSettings {
    /// The bit of the packet mark that selects packets for IPVS, 0 to 31.
    pub bit: u8,
    /// The priority of the first of three policy routing rules, 1 to 32763.
    pub rule_priority: u32,
    /// The number of the routing table, at least 256.
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
    /// The bit as a mark value, which is also its mask.
    pub fn mark(&self) -> u32 {
        mark(self.bit)
    }
}

/// Whether the host's firewall applies to connections to Services on the node's own addresses, such as node ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostFirewall {
    /// They are accepted, regardless of the host's INPUT chain.
    #[default]
    Open,
    /// The host's INPUT chain decides.
    Respect,
}

/// The external IPs that Services may use (CVE-2020-8554).
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

/// Timeouts of IPVS connections; 0 keeps the kernel's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeoutSettings {
    /// The timeout of idle established TCP connections. The kernel's default of 15 minutes would reset connections
    /// that connection tracking keeps for a day (S-221).
    pub tcp: Period,
    /// The timeout of TCP connections after a FIN.
    pub tcp_fin: Period,
    /// The timeout of UDP flows.
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

/// Connection tracking limits; 0 keeps the kernel's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConntrackSettings {
    /// The maximum number of entries per core.
    pub max_per_core: u32,
    /// The lower bound of the maximum number of entries, regardless of the number of cores.
    pub min: u32,
    /// The timeout of an idle established TCP connection.
    pub tcp_established: Period,
    /// The timeout of a TCP connection in CLOSE_WAIT.
    pub tcp_close_wait: Period,
    /// The timeout of a UDP flow without a reply yet.
    pub udp_timeout: Period,
    /// The timeout of a UDP flow with replies.
    pub udp_stream_timeout: Period,
    /// Whether to accept out-of-window packets instead of classifying them as invalid.
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

/// The intervals of comparing the kernel with the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncSettings {
    /// The interval of full comparisons, also when nothing changed (S-184).
    pub period: Period,
    /// The minimum time between two applied batches.
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

/// How backends that left the cluster are drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainSettings {
    /// How long they may keep their connections.
    pub deadline: Period,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            deadline: Period::seconds(60),
        }
    }
}

/// The reaction to kernel state that another program changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drift {
    /// Correct it and report it.
    #[default]
    Repair,
    /// Only report it.
    Report,
}

/// The plan saved on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskSettings {
    /// After a reboot, a saved plan older than this is used only for boot-critical Services …
    pub max_age: Period,
    /// … until this time has passed without a connection to a controller.
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

/// The listen address of one of the agent's servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenSettings {
    /// The address; an unspecified one means both families (S-146).
    pub bind_address: IpAddr,
    /// The port; 0 disables the server.
    pub port: u16,
}

impl ListenSettings {
    /// Whether the server is enabled.
    pub fn is_on(&self) -> bool {
        self.port != 0
    }
}
