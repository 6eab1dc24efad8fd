//! The settings in force on a node. Names follow KubeProxyConfiguration if the meaning is the same.

#[macro_use]
mod declare;
mod period;
mod port_range;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::period::{Period, PeriodError};
pub use self::port_range::{PortRange, PortRangeError};

declare! {
    /// What the agent programs to serve Services.
    [node] dataplane: Dataplane = Dataplane::default(),
    /// The IPVS scheduler of Services that do not name one (S-101).
    [node] scheduler: Arc<str> = "rr".into(),
    /// The node addresses that serve node ports: `primary`, or CIDR ranges; empty means all local addresses
    /// (S-32…34).
    [node] node_port_addresses: Vec<String> = vec!["primary".into()],
    /// The port range from which the API server allocates node ports (S-222).
    [node] node_port_range: PortRange = PortRange::default(),
    /// How packets from this node's pods are recognised (S-204).
    [node] local_detection: LocalDetection = LocalDetection::default(),
    /// Source address translation.
    [node] masquerade: MasqueradeSettings = MasqueradeSettings::default(),
    /// How packets to Services are routed to IPVS.
    [node] capture: CaptureSettings = CaptureSettings::default(),
    /// Whether the host's firewall applies to connections to Services on the node's own addresses (S-213).
    [node] host_firewall: HostFirewall = HostFirewall::default(),
    /// The external IPs that Services may use.
    #[serde(rename = "externalIPs")]
    [cluster] external_ips: ExternalIpSettings = ExternalIpSettings::default(),
    /// Ranges of virtual servers that belong to other programs and are left alone.
    #[serde(rename = "excludeCIDRs")]
    [node] exclude_cidrs: Vec<IpNet> = Vec::new(),
    /// Connection timeouts of IPVS (S-105).
    [node] timeouts: TimeoutSettings = TimeoutSettings::default(),
    /// Connection tracking limits (S-178, S-179).
    [node] conntrack: ConntrackSettings = ConntrackSettings::default(),
    /// The intervals of comparing the kernel with the plan.
    [node] sync: SyncSettings = SyncSettings::default(),
    /// How backends that left the cluster are drained.
    [node] drain: DrainSettings = DrainSettings::default(),
    /// The reaction to kernel state that another program changed.
    [node] drift: Drift = Drift::default(),
    /// Whether to drop packets from backends that connection tracking classifies as invalid (S-173).
    [node] drop_invalid: bool = true,
    /// The dummy device of the routes to service ranges. It has no address.
    [node] device: Arc<str> = "kube-ipvs0".into(),
    /// The plan saved on disk.
    [node] disk: DiskSettings = DiskSettings::default(),
    /// The address and port of the node's health endpoint.
    [node] healthz: ListenSettings = ListenSettings {
        bind_address: IpAddr::from([0, 0, 0, 0]),
        port: 10256,
    },
    /// The address and port of the metrics endpoint.
    [node] metrics: ListenSettings = ListenSettings {
        bind_address: IpAddr::from([127, 0, 0, 1]),
        port: 10249,
    },
    /// The value of the label `service.kubernetes.io/service-proxy-name` that selects the Services to serve; empty
    /// selects Services without the label (S-2).
    [cluster] service_proxy_name: String = String::new(),
}

impl Settings {
    /// The bits of packet marks that lead to IPVS.
    pub fn ipvs_marks(&self) -> u32 {
        self.capture.mark() | self.masquerade.mark()
    }
}

/// What the agent programs in the kernel to serve Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dataplane {
    /// IPVS, with ipset and iptables.
    #[default]
    Ipvs,
    /// nftables only.
    Nftables,
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

group! {
    /// Source address translation.
    pub struct MasqueradeSettings {
        /// The bit of the packet mark that requests masquerading, 0 to 31 (S-72).
        bit: u8 = 14,
        /// Whether to masquerade all connections to cluster IPs, including those from pods (S-75).
        all: bool = false,
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

group! {
    /// How packets to Services are routed to IPVS: by a mark, policy routing rules and a routing table.
    pub struct CaptureSettings {
        /// The bit of the packet mark that selects packets for IPVS, 0 to 31.
        bit: u8 = 12,
        /// The priority of the first of three policy routing rules, 1 to 32763.
        rule_priority: u32 = 90,
        /// The number of the routing table, at least 256.
        table: u32 = 10_270,
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

group! {
    /// Timeouts of IPVS connections; 0 keeps the kernel's value.
    pub struct TimeoutSettings {
        /// The timeout of idle established TCP connections. The kernel's default of 15 minutes would reset connections
        /// that connection tracking keeps for a day (S-221).
        tcp: Period = ConntrackSettings::default().tcp_established,
        /// The timeout of TCP connections after a FIN.
        tcp_fin: Period = Period::default(),
        /// The timeout of UDP flows.
        udp: Period = Period::default(),
    }
}

group! {
    /// Connection tracking limits; 0 keeps the kernel's value.
    pub struct ConntrackSettings {
        /// The maximum number of entries per core.
        max_per_core: u32 = 32_768,
        /// The lower bound of the maximum number of entries, regardless of the number of cores.
        min: u32 = 131_072,
        /// The timeout of an idle established TCP connection.
        tcp_established: Period = Period::seconds(86_400),
        /// The timeout of a TCP connection in CLOSE_WAIT.
        tcp_close_wait: Period = Period::seconds(3_600),
        /// The timeout of a UDP flow without a reply yet.
        udp_timeout: Period = Period::default(),
        /// The timeout of a UDP flow with replies.
        udp_stream_timeout: Period = Period::default(),
        /// Whether to accept out-of-window packets instead of classifying them as invalid.
        tcp_be_liberal: bool = false,
    }
}

group! {
    /// The intervals of comparing the kernel with the plan.
    pub struct SyncSettings {
        /// The interval of full comparisons, also when nothing changed (S-184).
        period: Period = Period::seconds(30),
        /// The minimum time between two applied batches.
        min_period: Period = Period::default(),
    }
}

group! {
    /// How backends that left the cluster are drained.
    pub struct DrainSettings {
        /// How long they may keep their connections.
        deadline: Period = Period::seconds(60),
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

group! {
    /// The plan saved on disk.
    pub struct DiskSettings {
        /// After a reboot, a saved plan older than this is used only for boot-critical Services …
        max_age: Period = Period::seconds(600),
        /// … until this time has passed without a connection to a controller.
        grace: Period = Period::seconds(60),
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
