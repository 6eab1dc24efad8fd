//! `spec.settings`. All fields are optional, and durations are strings such as `1m30s`.
//!
//! The controller enforces the rules below too when it reads manifests.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::schema;

/// Settings of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::settings_rules()))]
pub struct SettingsSpec {
    /// What the agent programs in the kernel to serve Services. ipvs: IPVS, ipset and iptables. nftables: only
    /// nftables, which chooses endpoints at random unless the scheduler is sh or mh. Nodes may differ: set it for some
    /// of them in `spec.overrides`. Existing connections continue when it changes. Default: `ipvs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<DataplaneMode>")]
    pub dataplane: Option<DataplaneMode>,
    /// The IPVS scheduler of Services that do not name one with the annotation `proxy.portolan.dev/scheduler`: rr, wrr,
    /// lc, wlc, lblc, lblcr, sh, dh, sed, nq, mh, fo, ovf or twos. The kernel of each node must have it. Default: `rr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub scheduler: Option<String>,
    /// The addresses for node ports, in any combination: `primary`, the first address of the node in each family;
    /// `all`, all of its addresses except loopback, which is also the meaning of an empty list; CIDR ranges, which
    /// select the addresses of the node in them; `localhost`, 127.0.0.1 and ::1 for TCP clients on the node itself,
    /// whose connections the agent forwards. Default: `[primary]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_port_addresses")]
    pub node_port_addresses: Option<Vec<String>>,
    /// How a node recognizes packets of its own pods. Default: mode NodeCIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_detection: Option<LocalDetectionSpec>,
    /// Source address translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<MasqueradeSpec>,
    /// The range from which the API server allocates node ports (`--service-node-port-range`). Nodes do not use these
    /// ports for their own connections, unless fewer than 8192 other ports would stay for these; then only the node
    /// ports in use are kept free. Default: `30000-32767`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::port_range")]
    pub node_port_range: Option<String>,
    /// How packets to Services are directed to IPVS. Change it only if another program uses the same values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureSpec>,
    /// How connections to Services on a node's own addresses, such as node ports, are filtered. Open: they are
    /// accepted regardless of the INPUT chain of iptables; nftables tables of other programs, such as firewalld, still
    /// apply. Respect: the INPUT chain decides. Default: Open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<HostFirewallMode>")]
    pub host_firewall: Option<HostFirewallMode>,
    /// Which external IPs are served.
    #[serde(
        rename = "externalIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub external_ips: Option<ExternalIpsSpec>,
    /// Addresses that Portolan leaves to other programs, for example to NodeLocal DNSCache: Services are not served at
    /// addresses in these ranges, and virtual servers there are never modified. Default: none.
    #[serde(
        rename = "excludeCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cidrs")]
    pub exclude_cidrs: Option<Vec<String>>,
    /// Connection timeouts of IPVS, `0s` to `2147483s`. `0s` keeps the value that the kernel has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<TimeoutsSpec>,
    /// Size and timeouts of connection tracking. 0 or `0s` keeps the value that the kernel has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<ConntrackSpec>,
    /// How often the agent applies changes, and how often it compares the kernel with the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncSpec>,
    /// How connections to removed endpoints end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
    /// The reaction to kernel state that other programs changed. Repair: it is restored. Report: it is only reported.
    /// Default: Repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<DriftMode>")]
    pub drift: Option<DriftMode>,
    /// Drop packets from endpoints that connection tracking classifies as invalid. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_invalid: Option<bool>,
    /// The dummy device of the routes to service ranges; it has no address. If the name changes, the former device is
    /// removed. Default: `kube-ipvs0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub device: Option<String>,
    /// Use of the plan that the agent saves on the node's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSpec>,
    /// Where the agent serves the health of the node. Default: 0.0.0.0, port 10256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "healthz")]
    pub healthz: Option<ListenSpec>,
    /// Where the agent serves metrics. Default: 127.0.0.1, port 10249.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "metrics")]
    pub metrics: Option<ListenSpec>,
    /// Serve Services whose label `service.kubernetes.io/service-proxy-name` has this value; empty means
    /// those without the label. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_value")]
    pub service_proxy_name: Option<String>,
}

/// What the agent programs in the kernel to serve Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DataplaneMode {
    /// IPVS, ipset and iptables.
    Ipvs,
    /// Only nftables.
    Nftables,
}

/// How a node recognizes packets of its own pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule(
        "(has(self.mode) && self.mode == 'ClusterCIDR') == has(self.clusterCIDRs)",
        "clusterCIDRs and mode ClusterCIDR belong together: set both or neither",
    ),
    schema::rule(
        "!has(self.clusterCIDRs) || size(self.clusterCIDRs) > 0",
        "clusterCIDRs is empty; write the address ranges of pods",
    ),
    schema::rule(
        "(has(self.mode) && self.mode == 'BridgeInterface') == has(self.bridge)",
        "bridge and mode BridgeInterface belong together: set both or neither",
    ),
    schema::rule(
        "(has(self.mode) && self.mode == 'InterfaceNamePrefix') == has(self.prefix)",
        "prefix and mode InterfaceNamePrefix belong together: set both or neither",
    ),
]))]
pub struct LocalDetectionSpec {
    /// The detection mode. NodeCIDR: the source address is in a pod range of the node. ClusterCIDR: it is in
    /// `clusterCIDRs`. BridgeInterface: the packet arrived on `bridge`. InterfaceNamePrefix: it arrived on an
    /// interface whose name begins with `prefix`. Default: NodeCIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<DetectionMode>")]
    pub mode: Option<DetectionMode>,
    /// The address ranges of all pods; required by mode ClusterCIDR.
    #[serde(
        rename = "clusterCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cidrs")]
    pub cluster_cidrs: Option<Vec<String>>,
    /// The bridge that pods are attached to; required by mode BridgeInterface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kernel_name")]
    pub bridge: Option<String>,
    /// The prefix of the interface names of pods; required by mode InterfaceNamePrefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::interface_prefix")]
    pub prefix: Option<String>,
}

/// How a node recognizes packets of its own pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DetectionMode {
    /// The source address is in a pod range of the node.
    #[serde(rename = "NodeCIDR")]
    NodeCidr,
    /// The source address is in `clusterCIDRs`.
    #[serde(rename = "ClusterCIDR")]
    ClusterCidr,
    /// The packet arrived on `bridge`.
    BridgeInterface,
    /// The packet arrived on an interface whose name begins with `prefix`.
    InterfaceNamePrefix,
}

/// Source address translation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasqueradeSpec {
    /// The bit of the packet mark for masquerading, 0 to 31; it must differ from capture.bit. Default: 14, which
    /// kube-proxy uses, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31))]
    pub bit: Option<u8>,
    /// Masquerade all traffic to cluster IPs, including that of pods. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// How packets to Services are directed to IPVS: rules mark them, and policy routing delivers marked packets locally.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaptureSpec {
    /// The bit of the packet mark for captured packets, 0 to 31; it must differ from masquerade.bit. Default: 12,
    /// which is free of portmap (13), kube-proxy (14, 15), Calico (16 to 31) and Cilium (8 to 11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31))]
    pub bit: Option<u8>,
    /// The priority of the policy routing rules, 1 to 32763. They use this number and the next two, which must be free.
    /// The kernel evaluates lower numbers first. Default: 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32763))]
    pub rule_priority: Option<u32>,
    /// The number of the routing table, 256 to 2147483647. Default: 10270.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 256, max = 2_147_483_647))]
    pub table: Option<u32>,
}

/// How connections to Services on a node's own addresses are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostFirewallMode {
    /// They are accepted regardless of the INPUT chain of the host.
    Open,
    /// The INPUT chain of the host decides.
    Respect,
}

/// Which external IPs are served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalIpsSpec {
    /// External IPs in these ranges are served, others are not. With an empty list none are served; if omitted, all
    /// are.
    #[serde(
        rename = "allowedCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cidrs")]
    pub allowed_cidrs: Option<Vec<String>>,
}

/// Timeouts of IPVS connections, `0s` to `2147483s`. `0s` keeps the value that the kernel has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeoutsSpec {
    /// Idle established TCP connections. Default: the value of conntrack.tcpEstablished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp: Option<String>,
    /// TCP connections after a FIN. `0s` keeps the kernel's value. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp_fin: Option<String>,
    /// UDP flows. `0s` keeps the kernel's value. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub udp: Option<String>,
}

/// Size and timeouts of connection tracking. 0 or `0s` keeps the value that the kernel has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConntrackSpec {
    /// Maximum number of entries per CPU core. Its product with the number of cores is limited to 1048576. 0 keeps the
    /// kernel's value. Default: 32768.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_core: Option<u32>,
    /// Lower bound of the maximum number of entries. Default: 131072.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Timeout of idle established TCP connections. Default: `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp_established: Option<String>,
    /// Timeout of TCP connections in CLOSE_WAIT. Default: `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub tcp_close_wait: Option<String>,
    /// Timeout of UDP flows without a reply. `0s` keeps the kernel's value. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub udp_timeout: Option<String>,
    /// Timeout of UDP flows with replies. `0s` keeps the kernel's value. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub udp_stream_timeout: Option<String>,
    /// Do not classify out-of-window packets as invalid; false keeps the kernel setting. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_be_liberal: Option<bool>,
}

/// How often the agent applies changes, and how often it compares the kernel with the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::sync_rules()))]
pub struct SyncSpec {
    /// Interval of full comparisons, even without changes, from `1s`. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub period: Option<String>,
    /// Shortest time between the starts of two applications of changes, at most `period`. Changes that arrive meanwhile
    /// are applied together. A full comparison applies them earlier. With more than `2m`, nodes that wait that long
    /// have the condition Applied False with the reason AnswerOverdue. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub min_period: Option<String>,
}

/// How connections to removed endpoints end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// How long TCP connections to a removed endpoint may continue after it has left the cluster. The annotation
    /// `proxy.portolan.dev/drain` of a Service overrides it. Connections of UDP and SCTP end at once. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub deadline: Option<String>,
}

/// The reaction to kernel state that other programs changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// It is restored.
    Repair,
    /// It is only reported.
    Report,
}

/// Use of the plan that the agent saves on the node's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskSpec {
    /// After a reboot, a plan older than this is used for boot-critical Services only: those with the annotation
    /// `proxy.portolan.dev/boot-critical`, default/kubernetes and the cluster DNS. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_age: Option<String>,
    /// After a reboot with a plan older than `maxAge`: how long the agent waits for a controller before it uses that
    /// plan for all Services nevertheless. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub grace: Option<String>,
}

/// The listen address of a server in the agent. The schemas of its uses add the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenSpec {
    /// The listen address. 0.0.0.0 or :: listens on all addresses of both IP families; an empty string disables the
    /// server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address_or_none")]
    pub bind_address: Option<String>,
    /// The port; 0 disables the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<u16>,
}

/// Where the agent serves the health of the node.
fn healthz(generator: &mut SchemaGenerator) -> Schema {
    schema::listen::<ListenSpec>(generator, "0.0.0.0", "10256")
}

/// Where the agent serves metrics.
fn metrics(generator: &mut SchemaGenerator) -> Schema {
    schema::listen::<ListenSpec>(generator, "127.0.0.1", "10249")
}
