//! Plans one Service for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{
    BackendList, Family, Head, HeadPort, ListKey, ListUse, Local, LocalEndpoint, ServiceId,
};

use crate::backends::PortEndpoints;
use crate::frontends::{cluster_ip_frontends, is_proxied, is_usable_address};
use crate::heads::Heads;
use crate::model::{AddressType, ClusterModel, Service, ServicePort};
use crate::selection::{Selection, select};
use crate::{HintState, HintUse, PlannedService, Reason, Warning};

/// The plan of a Service; `None` when there is nothing to serve.
pub(crate) fn plan_service(
    model: &ClusterModel,
    id: &ServiceId,
    proxy_name: &str,
) -> Option<PlannedService> {
    let service = model.service(id)?;
    if !is_proxied(service, proxy_name) {
        return None;
    }
    let mut reasons = own_reasons(service);
    reasons.extend(other_families(model, service));
    let mut heads = Heads::new(Head {
        boot_critical: is_boot_critical(service),
        drain_seconds: service.drain_seconds,
        scheduler: service.scheduler.clone(),
        ports: Default::default(),
    });
    let mut parts = Parts::default();
    for port in &service.ports {
        let (head_port, lost) = head_port(model, proxy_name, service, port);
        reasons.extend(lost);
        let slices = model.slices_of(id).map(AsRef::as_ref);
        let endpoints = PortEndpoints::merge(port, slices);
        let selections = selections(service, &head_port, &endpoints);
        parts.add_local(&head_port, &endpoints);
        heads.push(head_port, &selections);
        for (family, selection) in selections {
            parts.add(id, port, family, selection);
        }
    }
    let heads = heads.finish(|node| model.node(node)?.zone.clone());
    let warning = |reason| Warning::new("Service", id, reason);
    Some(PlannedService {
        id: id.clone(),
        heads: heads.heads,
        head_of_zone: heads.of_zone,
        head_of_node: heads.of_node,
        lists: parts.lists.into_iter().collect(),
        locals: parts
            .locals
            .into_iter()
            .map(|(node, found)| (node, Arc::new(local(found))))
            .collect(),
        hints: parts.hints,
        warnings: reasons.into_iter().map(warning).collect(),
    })
}

/// A port without its lists, and why some of its frontends are not its own.
fn head_port(
    model: &ClusterModel,
    proxy_name: &str,
    service: &Service,
    port: &ServicePort,
) -> (HeadPort, Vec<Reason>) {
    let (frontends, lost) = cluster_ip_frontends(model, proxy_name, service, port);
    let head_port = HeadPort {
        name: port.name.clone(),
        protocol: port.protocol,
        frontends: frontends.into_iter().collect(),
        internal: ListUse {
            policy: service.internal_policy,
            ..ListUse::default()
        },
        external: None,
        affinity_seconds: service.affinity_seconds,
        source_ranges: Vec::new(),
    };
    (head_port, lost)
}

/// What serves a port, by family. A family without a frontend is served nowhere, so nothing of it
/// is planned (S-6). One without endpoints has an empty list: its address refuses (S-7, S-21).
fn selections(
    service: &Service,
    port: &HeadPort,
    endpoints: &PortEndpoints<'_>,
) -> Vec<(Family, Selection)> {
    let served = Family::BOTH.into_iter().filter(|f| port.has_family(*f));
    served
        .map(|family| {
            (
                family,
                select(service.internal_policy, &endpoints.of(family)),
            )
        })
        .collect()
}

/// What the ports of a Service bring together.
#[derive(Default)]
struct Parts {
    /// Made a map once they are all here: putting thousands in one by one costs many comparisons.
    lists: Vec<(ListKey, Arc<BackendList>)>,
    locals: BTreeMap<Arc<str>, BTreeSet<LocalEndpoint>>,
    hints: Vec<HintUse>,
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

    /// All of a node's own endpoints, whoever uses them: connections may still stand (S-74).
    fn add_local(&mut self, port: &HeadPort, endpoints: &PortEndpoints<'_>) {
        for (node, endpoint) in endpoints.on_nodes(port.protocol) {
            if port.has_family(Family::of(endpoint.address)) {
                self.locals
                    .entry(node.clone())
                    .or_default()
                    .insert(endpoint);
            }
        }
    }
}

fn local(found: BTreeSet<LocalEndpoint>) -> Local {
    // There is nearly always one, and collecting would make room for four.
    let mut endpoints = Vec::with_capacity(found.len());
    endpoints.extend(found);
    Local {
        endpoints,
        health: None,
    }
}

/// What the Service itself tells, without looking at others.
fn own_reasons(service: &Service) -> Vec<Reason> {
    let unusable = service
        .cluster_ips
        .iter()
        .filter(|address| !is_usable_address(**address));
    let unusable = unusable.map(|address| Reason::UnusableAddress(*address));
    let not_planned = Some(&service.not_planned).filter(|fields| !fields.is_empty());
    let not_planned = not_planned.cloned().map(Reason::NotPlanned);
    service
        .ignored
        .iter()
        .cloned()
        .chain(unusable)
        .chain(not_planned)
        .collect()
}

/// Endpoints of families in which the Service has no cluster IP serve nobody, and nothing else
/// would show it (S-7).
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

/// Services without which a node cannot come up: the API server, the cluster's DNS, and those
/// that say so themselves.
fn is_boot_critical(service: &Service) -> bool {
    let name = (&*service.id.namespace, &*service.id.name);
    let dns = name.0 == "kube-system" && service.app.as_deref() == Some("kube-dns");
    service.boot_critical || dns || name == ("default", "kubernetes")
}
