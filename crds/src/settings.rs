//! `spec.settings`: every field may be left out, and every length of time is a text like `1m30s`.
//!
//! What the rules below refuse, the controller refuses too where it reads manifests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What nodes do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::settings_rules()))]
pub struct SettingsSpec {
    /// The IPVS scheduler of Services that name none: any that the kernel has. Default: `rr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub scheduler: Option<String>,
    /// Where node ports answer, in any combination: `primary`, the node's first address of each family; `all`, all of
    /// its addresses but loopback, as an empty list means; address ranges, of which the node's addresses are meant;
    /// `localhost`, 127.0.0.1 and ::1 for TCP and clients on the node itself, whose connections the agent passes on.
    /// Default: `[primary]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_port_addresses")]
    pub node_port_addresses: Option<Vec<String>>,
    /// How packets of a node's own pods are told from others. Default: mode NodeCIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_detection: Option<LocalDetectionSpec>,
    /// Source address translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<MasqueradeSpec>,
    /// The ports that the API server takes node ports from (`--service-node-port-range`). Nodes use none of them for
    /// connections of their own. Default: `30000-32767`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::port_range")]
    pub node_port_range: Option<String>,
    /// How packets to Services are led to IPVS. Change it only where another program uses the same values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureSpec>,
    /// Who decides about connections to Services on a node's own addresses, such as node ports. Open: they are let
    /// in, whatever the host's chain INPUT says. Respect: that chain decides. Default: Open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<HostFirewallMode>")]
    pub host_firewall: Option<HostFirewallMode>,
    /// Which external IPs may be captured.
    #[serde(
        rename = "externalIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub external_ips: Option<ExternalIpsSpec>,
    /// Virtual servers in these ranges are never touched. Default: none.
    #[serde(
        rename = "excludeCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cidrs")]
    pub exclude_cidrs: Option<Vec<String>>,
    /// Connection timeouts of IPVS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<TimeoutsSpec>,
    /// Connection tracking limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<ConntrackSpec>,
    /// How often the kernel is compared with the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncSpec>,
    /// How backends that left the cluster are let go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
    /// What is done about kernel state that somebody else changed: Repair puts it right, Report
    /// only tells it. Default: Repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<DriftMode>")]
    pub drift: Option<DriftMode>,
    /// Drop packets from backends that connection tracking calls invalid. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_invalid: Option<bool>,
    /// The dummy device that routes to service ranges lead to; it has no address. The one of another name before is
    /// removed.
    /// Default: `kube-ipvs0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub device: Option<String>,
    /// The plan kept on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSpec>,
    /// The node's health port. Default: 0.0.0.0, port 10256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthz: Option<ListenSpec>,
    /// The metrics port. Default: 127.0.0.1, port 10249.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<ListenSpec>,
    /// Serve Services whose label `service.kubernetes.io/service-proxy-name` has this value; empty means
    /// those without the label. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_value")]
    pub service_proxy_name: Option<String>,
}

/// How packets of a node's own pods are told from others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule(
        "(has(self.mode) && self.mode == 'ClusterCIDR') == has(self.clusterCIDRs)",
        "mode ClusterCIDR needs clusterCIDRs, and only that mode reads them",
    ),
    schema::rule(
        "!has(self.clusterCIDRs) || size(self.clusterCIDRs) > 0",
        "clusterCIDRs is empty; write the ranges that pods have their addresses from",
    ),
    schema::rule(
        "(has(self.mode) && self.mode == 'BridgeInterface') == has(self.bridge)",
        "mode BridgeInterface needs bridge, and only that mode reads it",
    ),
    schema::rule(
        "(has(self.mode) && self.mode == 'InterfaceNamePrefix') == has(self.prefix)",
        "mode InterfaceNamePrefix needs prefix, and only that mode reads it",
    ),
]))]
pub struct LocalDetectionSpec {
    /// The way. NodeCIDR: the source lies in one of the node's pod ranges. ClusterCIDR: it lies in
    /// one of `clusterCIDRs`. BridgeInterface: the packet came in by `bridge`.
    /// InterfaceNamePrefix: it came in by an interface whose name begins with `prefix`.
    /// Default: NodeCIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<DetectionMode>")]
    pub mode: Option<DetectionMode>,
    /// The ranges all pods have their addresses from; mode ClusterCIDR needs it.
    #[serde(
        rename = "clusterCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cidrs")]
    pub cluster_cidrs: Option<Vec<String>>,
    /// The bridge that pods are attached to; mode BridgeInterface needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub bridge: Option<String>,
    /// How the names of pods' interfaces begin; mode InterfaceNamePrefix needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub prefix: Option<String>,
}

/// A way to tell packets of a node's own pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DetectionMode {
    /// The source lies in one of the node's pod ranges.
    #[serde(rename = "NodeCIDR")]
    NodeCidr,
    /// The source lies in one of `clusterCIDRs`.
    #[serde(rename = "ClusterCIDR")]
    ClusterCidr,
    /// The packet came in by `bridge`.
    BridgeInterface,
    /// The packet came in by an interface whose name begins with `prefix`.
    InterfaceNamePrefix,
}

/// Source address translation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasqueradeSpec {
    /// Which bit of the packet mark is ours, 0 to 31. Default: 14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31))]
    pub bit: Option<u8>,
    /// Masquerade everything that goes to cluster IPs, pods too. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// How packets to Services are led to IPVS: rules mark them, and policy routing delivers what is marked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaptureSpec {
    /// Which bit of the packet mark is ours, 0 to 31; another one than masquerade.bit. Default: 12, which portmap (13), kube-proxy (14, 15), Calico (16 to 31) and Cilium (8 to 11) leave free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31))]
    pub bit: Option<u8>,
    /// The priority of the first of three policy routing rules, 1 to 32763. Rules with a lower number come first.
    /// Default: 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32763))]
    pub rule_priority: Option<u32>,
    /// The number of the routing table, 256 to 2147483647. Default: 10270.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 256, max = 2_147_483_647))]
    pub table: Option<u32>,
}

/// Who decides about connections to Services on a node's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostFirewallMode {
    /// They are let in, whatever the host's chain INPUT says.
    Open,
    /// The host's chain INPUT decides.
    Respect,
}

/// Which external IPs may be captured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalIpsSpec {
    /// External IPs outside these ranges are not served. Default: everything.
    #[serde(
        rename = "allowedCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cidrs")]
    pub allowed_cidrs: Option<Vec<String>>,
}

/// Timeouts of IPVS connections, at most `2147483s`; `0s` leaves the kernel's as it is at that moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeoutsSpec {
    /// Idle established TCP connections. Default: what conntrack.tcpEstablished is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp: Option<String>,
    /// TCP connections after a FIN. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp_fin: Option<String>,
    /// UDP flows. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub udp: Option<String>,
}

/// Connection tracking limits; 0 leaves the kernel's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConntrackSpec {
    /// Entries for each core. Default: 32768.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_core: Option<u32>,
    /// Entries at least. Default: 131072.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// How long an idle established TCP connection is kept. Default: `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp_established: Option<String>,
    /// How long a TCP connection in CLOSE_WAIT is kept. Default: `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp_close_wait: Option<String>,
    /// How long a UDP flow is kept that had no answer yet. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub udp_timeout: Option<String>,
    /// How long a UDP flow is kept that had answers. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub udp_stream_timeout: Option<String>,
    /// Do not call out-of-window packets invalid; false leaves what the kernel does. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_be_liberal: Option<bool>,
}

/// How often the kernel is compared with the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::sync_rules()))]
pub struct SyncSpec {
    /// A full comparison, also when nothing changed, from `1s`. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub period: Option<String>,
    /// The shortest time between two passes that changes of the plan cause, at most `period`; what changed
    /// meanwhile comes together. A pass for another reason takes all of it along. Where it is longer than `2m`,
    /// condition Applied says AnswerOverdue in the meantime. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub min_period: Option<String>,
}

/// How backends that left the cluster are let go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// How long their connections may live on. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub deadline: Option<String>,
}

/// What is done about kernel state that somebody else changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// It is put right.
    Repair,
    /// It is only reported.
    Report,
}

/// The plan kept on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskSpec {
    /// After a reboot, a plan older than this is used for boot-critical Services only. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_age: Option<String>,
    /// How long without any controller until an older plan is used whole. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub grace: Option<String>,
}

/// Where a server of the agent listens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenSpec {
    /// The address; an unspecified one means both families, an empty text that nobody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address_or_none")]
    pub bind_address: Option<String>,
    /// The port; 0 means that nobody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<u16>,
}
