//! Computes the desired kernel state of the IPVS dataplane from the facts of a plan: virtual servers with scheduler and
//! session affinity (`ClientIP`), sets, routes.

mod builder;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Dataplane, Family, NodePlan, Protocol, ServiceId};

use self::builder::Builder;
use crate::deadlines::DrainDeadlines;
use crate::facts::{Facts, HealthPort};
use crate::host::{HostNetwork, Ipv6Off};
use crate::route::{PolicyRule, Route};
use crate::rules::Rules;
use crate::set::DesiredSet;
use crate::{
    RealServers, SetEntry, SetId, SetRole, Timeouts, VirtualServer, VirtualServerKey, flags,
};

/// The desired kernel state for one plan. If the settings select another dataplane, it contains no virtual servers, sets,
/// routes or rules: those of before are removed once the connections of their virtual servers have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// What serves Services on this node.
    pub dataplane: Dataplane,
    /// The node's name. It determines the order of backends in each virtual server.
    pub node: Arc<str>,
    /// The name of Portolan's device.
    pub device: Arc<str>,
    /// Virtual servers with their real servers.
    pub virtual_servers: BTreeMap<VirtualServerKey, VirtualServer>,
    /// Virtual servers that are programmed first.
    pub boot_critical: BTreeSet<VirtualServerKey>,
    /// Virtual servers of Services that currently have no endpoint. They take no new connections. One that exists in
    /// the kernel stays until its connections have ended.
    pub resting: BTreeSet<VirtualServerKey>,
    /// How long real servers may keep connections after their endpoints left the cluster.
    pub deadlines: DrainDeadlines,
    /// All of Portolan's sets.
    pub sets: BTreeMap<SetId, DesiredSet>,
    /// Routes.
    pub routes: BTreeSet<Route>,
    /// Policy routing rules.
    pub policy: BTreeSet<PolicyRule>,
    /// Rules of both families.
    pub rules: Vec<Rules>,
    /// Kernel settings.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
    /// The timeouts of IPVS connections; 0 keeps the kernel's value.
    pub timeouts: Timeouts,
    /// Health check ports.
    pub health_ports: Vec<HealthPort>,
    /// The ranges of cluster IPs.
    pub service_ranges: Vec<IpNet>,
    /// Set entries that several Services may need, with the number of Services that do: this node's endpoints that
    /// connect to themselves (hairpin), health check ports, and addresses of frontends and balancers.
    pub common: BTreeMap<(SetRole, SetEntry), u32>,
    /// Frontends that more than one Service claims. The planner cannot resolve these: an external address may be one
    /// of this node's that the cluster does not know, and collide there with a node port.
    pub contested: BTreeSet<VirtualServerKey>,
    /// The node ports of all Services.
    pub node_ports: BTreeSet<(Protocol, u16)>,
    /// Ranges in which all virtual servers belong to other programs.
    pub excluded: Vec<IpNet>,
    /// Why Services are not served at their IPv6 addresses although the plan gives the node IPv6 addresses or pod
    /// ranges. Plan and node contradict each other, so one of them is wrong. `None` if the plan gives the node no
    /// IPv6 either.
    pub lacks_ipv6: Option<Ipv6Off>,
    /// Families in which the plan has no frontends and the node is not reachable. Existing rules are kept correct,
    /// but no rules are loaded if there are none.
    pub idle: BTreeSet<Family>,
    /// Services with the settings' scheduler because the kernel lacks their own one, which is the value (S-229).
    pub fallbacks: BTreeMap<ServiceId, Arc<str>>,
}

impl Desired {
    /// The desired kernel state for this plan on a node with this network; `None` if the plan has no node entry.
    pub fn new(plan: &NodePlan, host: &HostNetwork) -> Option<Self> {
        Self::without(plan, host, &BTreeSet::new())
    }

    /// As [`Desired::new`], on a kernel that lacks these schedulers. A Service that asks for one of them gets the
    /// settings' one: its other values are as valid as before, and without a virtual server no client would reach it.
    pub fn without(
        plan: &NodePlan,
        host: &HostNetwork,
        lacking: &BTreeSet<Arc<str>>,
    ) -> Option<Self> {
        let facts = Facts::new(plan, host)?;
        Some(Self::of(&facts, host, lacking))
    }

    /// The desired kernel state for these facts, which come from a node with this network. See [`Desired::without`]
    /// for `lacking`.
    pub fn of(facts: &Facts, host: &HostNetwork, lacking: &BTreeSet<Arc<str>>) -> Self {
        match facts.settings().dataplane {
            Dataplane::Ipvs => Self::of_ipvs(facts, host, lacking),
            Dataplane::Nftables => Builder::new(facts, host, lacking).absent(),
        }
    }

    /// As [`Desired::of`] with IPVS, also if the settings select another dataplane: while that one cannot serve.
    pub fn of_ipvs(facts: &Facts, host: &HostNetwork, lacking: &BTreeSet<Arc<str>>) -> Self {
        let mut builder = Builder::new(facts, host, lacking);
        builder.frontends();
        builder.local();
        builder.finish()
    }
}

/// Session affinity (`sessionAffinity: ClientIP`) is the flag PERSISTENT and its timeout.
fn virtual_server(
    scheduler: &Arc<str>,
    affinity: Option<u32>,
    real_servers: RealServers,
) -> VirtualServer {
    let mut bits = 0;
    if affinity.is_some() {
        bits |= flags::PERSISTENT;
    }
    if &**scheduler == "mh" {
        bits |= flags::MH_PORT;
    }
    VirtualServer {
        scheduler: scheduler.clone(),
        flags: bits,
        timeout: affinity.unwrap_or(0),
        real_servers,
    }
}
