//! Plans one Service for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{
    BackendList, Family, FrontendKind, Head, HeadPort, ListKey, ListUse, Local, LocalEndpoint,
    LocalHealth, Protocol, ServiceId, Settings,
};

use crate::backends::{PortEndpoints, PortSlices};
use crate::frontends::{Claimant, Frontends, is_proxied, owner_of_node_port};
use crate::heads::{Heads, MadeHeads};
use crate::limits::{MAX_LOCAL_ENDPOINTS, endpoints_per_list};
use crate::model::{AddressType, ClusterModel, Service, ServicePort};
use crate::selection::{Selection, Wanted, select};
use crate::source_ranges::source_ranges;
use crate::{HintState, HintUse, PlannedService, Reason, Warning};

/// The plan of a Service; `None` if this proxy does not serve it.
pub(crate) fn plan_service(
    model: &ClusterModel,
    settings: &Settings,
    id: &ServiceId,
) -> Option<PlannedService> {
    let service = model.service(id)?;
    if !is_proxied(service, &settings.service_proxy_name) {
        return None;
    }
    let (claimant, refused) = Claimant::new(model, settings, service);
    let mut reasons = service.ignored.clone();
    reasons.extend(refused);
    // The frontends of all ports determine how many endpoints each may have.
    let ports = service.ports.iter();
    let found: Vec<_> = ports.map(|port| (port, claimant.frontends(port))).collect();
    let frontends = || found.iter().flat_map(|(_, found)| &found.all);
    let most = endpoints_per_list(frontends().count());
    let answering: BTreeSet<_> = frontends()
        .filter_map(|place| Some((place.kind, place.address?)))
        .collect();
    let mut heads = Heads::new(Head {
        boot_critical: is_boot_critical(service),
        drain_seconds: service.drain_seconds,
        scheduler: service.scheduler.clone(),
        ports: Default::default(),
        source_ranges: ranges_of(service, &answering),
    });
    let slices = PortSlices::new(model.slices_of(id).map(AsRef::as_ref));
    let mut parts = Parts {
        left_out: slices.left_out,
        ..Parts::default()
    };
    for (port, found) in found {
        let head_port = head_port(service, port, &found);
        let endpoints = PortEndpoints::merge(port, &slices, head_port.families(), most);
        let selections = selections(service, &head_port, &endpoints);
        parts.add_local(&head_port, &endpoints);
        reasons.extend(found.reasons);
        heads.push(head_port, &selections);
        for (family, selection) in selections {
            parts.add(id, port, family, selection);
        }
    }
    let (health_port, taken) = health_port(model, settings, service);
    reasons.extend(taken);
    reasons.extend(questionable(settings, &answering));
    reasons.extend(families_without_ranges(service));
    reasons.extend(other_families(model, service));
    let heads = heads.finish(|node| model.node(node)?.zone.clone());
    // First, so that other warnings do not crowd them out.
    let reasons = [parts.over_limits(most, &heads), reasons].concat();
    parts.close(&heads.left_out_nodes);
    Some(PlannedService {
        id: id.clone(),
        heads: heads.heads,
        head_of_zone: heads.of_zone,
        head_of_node: heads.of_node,
        lists: parts.lists.into_iter().collect(),
        elsewhere: health_port.map(|_| Arc::new(OnNode::default().finish(health_port))),
        locals: parts
            .on_nodes
            .into_iter()
            .map(|(node, found)| (node, Arc::new(found.finish(health_port))))
            .collect(),
        hints: parts.hints,
        warnings: warnings(id, reasons),
    })
}

/// Maximum number of warnings about one Service, so that they do not crowd out those about others.
const MAX_WARNINGS: usize = 20;

/// Removes duplicates and limits the number.
fn warnings(id: &ServiceId, reasons: Vec<Reason>) -> Vec<Warning> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<Reason> = Vec::new();
    for reason in reasons {
        if seen.insert(reason.clone()) && kept.len() < MAX_WARNINGS {
            kept.push(reason);
        }
    }
    let more = seen.len() - kept.len();
    kept.extend((more > 0).then_some(Reason::More(more)));
    kept.into_iter()
        .map(|reason| Warning::new("Service", id, reason))
        .collect()
}

/// Warnings about served addresses: those in `excludeCIDRs`, and external IPs, which Kubernetes deprecates.
fn questionable(
    settings: &Settings,
    answering: &BTreeSet<(FrontendKind, IpAddr)>,
) -> impl Iterator<Item = Reason> {
    let is_excluded = |address: &IpAddr| {
        let mut ranges = settings.exclude_cidrs.iter();
        ranges.any(|range| range.contains(address))
    };
    let (excluded, served): (Vec<_>, Vec<_>) = answering
        .iter()
        .copied()
        .partition(|(_, address)| is_excluded(address));
    let external = served
        .iter()
        .filter(|(kind, _)| *kind == FrontendKind::ExternalIp);
    let mut external = external.map(|(_, address)| *address);
    let first = external.next();
    let more = external.count();
    let excluded = excluded
        .into_iter()
        .map(|(kind, address)| Reason::Excluded { kind, address });
    excluded.chain(first.map(|first| Reason::ExternalIps { first, more }))
}

/// A port without its lists.
fn head_port(service: &Service, port: &ServicePort, found: &Frontends) -> HeadPort {
    let external = service.external.as_ref();
    HeadPort {
        name: port.name.clone(),
        protocol: port.protocol,
        frontends: found.all.iter().copied().collect(),
        internal: ListUse {
            policy: service.internal_policy,
            ..ListUse::default()
        },
        external: found.has_external().then(|| ListUse {
            policy: external.map(|external| external.policy).unwrap_or_default(),
            ..ListUse::default()
        }),
        affinity_seconds: service.affinity_seconds,
    }
}

/// The source ranges of a Service that answers at these addresses.
fn ranges_of(service: &Service, answering: &BTreeSet<(FrontendKind, IpAddr)>) -> Vec<IpNet> {
    let external = service.external.as_ref();
    let ranges = external.and_then(|external| external.source_ranges.as_deref());
    let balancers = answering
        .iter()
        .filter(|(kind, _)| *kind == FrontendKind::LoadBalancer);
    let addresses = balancers.map(|(_, address)| *address);
    ranges.map_or_else(Vec::new, |ranges| source_ranges(ranges, addresses))
}

/// The selection for each family of a port. A family without a frontend is not planned (S-6). A family without
/// endpoints has an empty list, so that its addresses reject connections (S-7, S-21).
fn selections(
    service: &Service,
    port: &HeadPort,
    endpoints: &PortEndpoints<'_>,
) -> Vec<(Family, Selection)> {
    let wanted = Wanted {
        internal: service.internal_policy,
        external: port.external.map(|external| external.policy),
    };
    let served = Family::BOTH.into_iter().filter(|f| port.has_family(*f));
    served
        .map(|family| {
            let (all, of_other_nodes) = (endpoints.of(family), endpoints.of_other_nodes(family));
            (family, select(wanted, &all, &of_other_nodes))
        })
        .collect()
}

/// The parts of the plan from all ports of a Service.
#[derive(Default)]
struct Parts {
    /// Converted to a map at the end: thousands of single inserts need many comparisons.
    lists: Vec<(ListKey, Arc<BackendList>)>,
    on_nodes: BTreeMap<Arc<str>, OnNode>,
    hints: Vec<HintUse>,
    /// Number of endpoints, counted for each port, that the limits leave out.
    left_out: usize,
    /// Nodes with more endpoints than [`MAX_LOCAL_ENDPOINTS`].
    crowded: BTreeSet<Arc<str>>,
}

impl Parts {
    fn add(&mut self, id: &ServiceId, port: &ServicePort, family: Family, selection: Selection) {
        for (scope, list) in selection.lists {
            let key = ListKey {
                service: id.clone(),
                port: port.name.clone(),
                family,
                scope,
            };
            self.lists.push((key, Arc::new(list)));
        }
        let (nodes, zones) = (selection.nodes, selection.zones);
        if (&nodes, &zones) != (&HintState::Absent, &HintState::Absent) {
            self.hints.push(HintUse {
                port: port.name.clone(),
                family,
                nodes,
                zones,
            });
        }
    }

    /// Adds all of a node's own endpoints, whether a list uses them or not: they may still have connections (S-74).
    fn add_local(&mut self, port: &HeadPort, endpoints: &PortEndpoints<'_>) {
        self.left_out += endpoints.left_out;
        for (node, endpoint, is_ready) in endpoints.on_nodes(port.protocol) {
            if port.has_family(Family::of(endpoint.address)) {
                let found = self.on_nodes.entry(node.clone()).or_default();
                if !found.insert(endpoint) {
                    self.crowded.insert(node.clone());
                }
                if is_ready {
                    found.ready.insert(endpoint.address);
                }
            }
        }
    }

    /// The limits that the Service exceeds.
    fn over_limits(&self, most: usize, heads: &MadeHeads) -> Vec<Reason> {
        let left_out = self.left_out;
        let heads = heads.left_out_zones + heads.left_out_nodes.len();
        let endpoints = (left_out > 0).then_some(Reason::TooManyEndpoints { left_out, most });
        let local = self
            .crowded
            .first()
            .map(|node| Reason::TooManyLocalEndpoints {
                node: node.clone(),
                more: self.crowded.len().saturating_sub(1),
            });
        let heads = (heads > 0).then_some(Reason::TooManyHeads { left_out: heads });
        endpoints.into_iter().chain(local).chain(heads).collect()
    }

    /// The health checks of these nodes fail: their head may lead to no endpoint of theirs, so a balancer should not
    /// choose them.
    fn close(&mut self, nodes: &BTreeSet<Arc<str>>) {
        for node in nodes {
            if let Some(found) = self.on_nodes.get_mut(node) {
                found.ready.clear();
            }
        }
    }
}

/// The endpoints on one node.
#[derive(Default)]
struct OnNode {
    endpoints: BTreeSet<LocalEndpoint>,
    /// Addresses that are ready on some port, which health checks count (S-135, S-136).
    ready: BTreeSet<IpAddr>,
}

impl OnNode {
    /// Adds an endpoint, unless the node has too many.
    fn insert(&mut self, endpoint: LocalEndpoint) -> bool {
        let fits = self.endpoints.len() < MAX_LOCAL_ENDPOINTS || self.endpoints.contains(&endpoint);
        if fits {
            self.endpoints.insert(endpoint);
        }
        fits
    }

    fn finish(self, health_port: Option<u16>) -> Local {
        let count = |family| {
            let ready = self.ready.iter();
            let ready = ready.filter(|address| Family::of(**address) == family);
            u32::try_from(ready.count()).unwrap_or(u32::MAX)
        };
        Local {
            endpoints: self.endpoints.into_iter().collect(),
            health: health_port.map(|port| LocalHealth {
                port,
                ipv4: count(Family::Ipv4),
                ipv6: count(Family::Ipv6),
            }),
        }
    }
}

/// The health check port, if the Service owns it (S-134).
fn health_port(
    model: &ClusterModel,
    settings: &Settings,
    service: &Service,
) -> (Option<u16>, Option<Reason>) {
    let Some(port) = service.health_port() else {
        return (None, None);
    };
    match owner_of_node_port(model, settings, Protocol::Tcp, port) {
        Some(winner) if winner.id != service.id => {
            let winner = winner.id.clone();
            (None, Some(Reason::HealthPortTaken { port, winner }))
        }
        _ => (Some(port), None),
    }
}

/// Families in which the load balancer has an address but no source range allows connections (S-88).
fn families_without_ranges(service: &Service) -> impl Iterator<Item = Reason> {
    let external = service.external.as_deref();
    let ranges = external.and_then(|external| external.source_ranges.as_deref());
    Family::BOTH.into_iter().filter_map(move |family| {
        let of_family = |address: &IpAddr| Family::of(*address) == family;
        let has_address = external?.balancer_ips.iter().any(of_family);
        let has_range = ranges?.iter().any(|range| of_family(&range.addr()));
        (has_address && !has_range).then_some(Reason::NoSourceRange { family })
    })
}

/// Warnings about endpoints of families in which the Service has no cluster IP: they serve no clients, and nothing
/// else reports it (S-7).
fn other_families(model: &ClusterModel, service: &Service) -> impl Iterator<Item = Reason> {
    let of_type = |family| match family {
        Family::Ipv4 => AddressType::Ipv4,
        Family::Ipv6 => AddressType::Ipv6,
    };
    let lacking = Family::BOTH
        .into_iter()
        .filter(|family| service.cluster_ip(*family).is_none());
    lacking.filter_map(move |family| {
        let mut slices = model
            .slices_of(&service.id)
            .filter(|slice| slice.address_type == of_type(family) && !slice.endpoints.is_empty());
        Some(Reason::OtherFamily {
            family,
            slice: slices.next()?.id.clone(),
            more: slices.count(),
        })
    })
}

/// Services that a node needs at boot: the API server, the cluster DNS, and those with the annotation.
fn is_boot_critical(service: &Service) -> bool {
    let dns = &*service.id.namespace == "kube-system" && service.app.as_deref() == Some("kube-dns");
    service.boot_critical || dns || service.id == ServiceId::api_server()
}
