//! Explains one port of a Service: its frontends, those that it does not get, and its endpoints.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Family, Frontend, FrontendKind, HeadPort, NodeEntry, Protocol};

use super::apart::{Apart, apart};
use super::group::{Group, GroupExplanation, Seen};
use super::{SchedulerSource, Served};
use crate::backends::{PortEndpoints, PortSlices};
use crate::frontends::frontends;
use crate::limits::endpoints_per_list;
use crate::model::{ClusterModel, Service, ServicePort};
use crate::{PlannedService, Planner, Reason};

/// A port of a Service on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortExplanation {
    /// Its name; empty for a single unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
    /// The frontends on the node.
    pub frontends: Vec<Frontend>,
    /// Addresses of the Service that are not frontends.
    pub absent: Vec<Absent>,
    /// Session affinity timeout, in seconds.
    pub affinity_seconds: Option<u32>,
    /// Source ranges of load balancer addresses; empty means all (S-86).
    pub source_ranges: Vec<IpNet>,
    /// The groups of frontends, cluster IPs first, IPv4 first.
    pub groups: Vec<GroupExplanation>,
    /// Unused endpoints in slices.
    pub apart: Vec<Apart>,
}

/// An address of a Service that is not a frontend on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// No node serves it.
    Refused(Reason),
    /// Traffic must go through the load balancer: `ipMode: Proxy` (S-17).
    LeftToBalancer(IpAddr),
}

impl Absent {
    /// The reason as one word, for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(reason) => reason.code(),
            Self::LeftToBalancer(_) => "LeftToBalancer",
        }
    }
}

/// A complete message.
impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => reason.fmt(f),
            Self::LeftToBalancer(address) => write!(
                f,
                "status.loadBalancer.ingress: {address} has ipMode Proxy, so packets go to the balancer"
            ),
        }
    }
}

/// Whether a client may connect to load balancer addresses (S-86).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// All clients may.
    Unrestricted,
    /// Its address is in this range.
    In(IpNet),
    /// Its address is in no range: its packets are dropped.
    Dropped,
}

impl PortExplanation {
    /// Whether the port has a load balancer address in this family on the node.
    pub fn has_balancer(&self, family: Family) -> bool {
        self.frontends.iter().any(|frontend| {
            let of_family = frontend.address.is_some_and(|a| Family::of(a) == family);
            frontend.kind == FrontendKind::LoadBalancer && of_family
        })
    }

    /// Whether a client with this address may connect to load balancer addresses.
    pub fn admits(&self, address: IpAddr) -> Admission {
        if self.source_ranges.is_empty() {
            return Admission::Unrestricted;
        }
        let mut ranges = self.source_ranges.iter();
        let range = ranges.find(|range| range.contains(&address));
        range.map_or(Admission::Dropped, |range| Admission::In(*range))
    }
}

impl Planner {
    /// How a node serves a planned Service.
    pub(super) fn served(
        &self,
        node: &Arc<NodeEntry>,
        service: &Service,
        planned: &PlannedService,
    ) -> Served {
        let head = planned.head_for(node);
        let (scheduler, scheduler_from) = match &head.scheduler {
            Some(scheduler) => (scheduler.clone(), SchedulerSource::Annotation),
            None => (node.settings.scheduler.clone(), SchedulerSource::Settings),
        };
        let ports = service.ports.iter().zip(&head.ports).enumerate();
        let frontends = head.ports.iter().map(|port| port.frontends.len()).sum();
        let most = endpoints_per_list(frontends);
        let ports = ports.map(|(place, (port, of_head))| PortExplanation {
            source_ranges: head.source_ranges_of(of_head).to_vec(),
            ..self.port(node, planned, service, (place, port, of_head), most)
        });
        let local = planned.local_for(&node.name);
        Served {
            boot_critical: head.boot_critical,
            scheduler,
            scheduler_from,
            health: local.and_then(|local| local.health),
            slices: self.model().slices_of(&service.id).count(),
            ports: ports.collect(),
        }
    }

    fn port(
        &self,
        node: &Arc<NodeEntry>,
        planned: &PlannedService,
        service: &Service,
        (place, port, of_head): (usize, &ServicePort, &HeadPort),
        most: usize,
    ) -> PortExplanation {
        let families: Vec<_> = of_head.families().collect();
        let slices = PortSlices::new(self.model().slices_of(&service.id).map(AsRef::as_ref));
        let merged = PortEndpoints::merge(port, &slices, families.iter().copied(), most);
        let mut groups = Vec::new();
        for group in Group::BOTH {
            for family in families.iter().filter(|f| answers(of_head, group, **f)) {
                let seen = Seen {
                    planner: self,
                    planned,
                    node,
                    place,
                    port: of_head,
                    family: *family,
                    merged: &merged,
                };
                groups.extend(seen.explain(group));
            }
        }
        PortExplanation {
            name: port.name.clone(),
            protocol: port.protocol,
            number: port.port,
            frontends: of_head.frontends.to_vec(),
            absent: absent(self.model(), service, port),
            affinity_seconds: of_head.affinity_seconds,
            source_ranges: Vec::new(),
            groups,
            apart: apart(
                self.model(),
                &node.name,
                (service, port),
                &families,
                &slices,
                &merged,
            ),
        }
    }
}

/// Whether a port has a frontend of this group in a family. Node ports are in both families.
fn answers(port: &HeadPort, group: Group, family: Family) -> bool {
    port.frontends.iter().any(|frontend| {
        let internal = frontend.kind == FrontendKind::ClusterIp;
        let of_family = frontend.address.is_none_or(|a| Family::of(a) == family);
        of_family && internal == (group == Group::Internal)
    })
}

/// Addresses that are not frontends on the node.
fn absent(model: &ClusterModel, service: &Service, port: &ServicePort) -> Vec<Absent> {
    let found = frontends(model, &model.settings(), service, port);
    let refused = found.reasons.into_iter().map(Absent::Refused);
    let external = service.external.iter();
    let left = external.flat_map(|external| external.left_to_balancer.iter().copied());
    let left = left.map(Absent::LeftToBalancer);
    refused.chain(left).collect()
}
