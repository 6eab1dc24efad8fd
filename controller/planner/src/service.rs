//! Plans one Service for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{
    BackendList, Family, Head, HeadPort, ListKey, ListUse, Local, LocalEndpoint, Scope, ServiceId,
};

use crate::backends::PortEndpoints;
use crate::frontends::{cluster_ip_frontends, is_proxied, is_usable};
use crate::model::{ClusterModel, Service};
use crate::{PlannedService, Reason, Warning};

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
    let mut parts = Parts::default();
    let mut reasons = own_reasons(service);
    let mut head = Head {
        boot_critical: is_boot_critical(service),
        drain_seconds: service.drain_seconds,
        scheduler: service.scheduler.clone(),
        ports: Default::default(),
    };
    for port in &service.ports {
        let (frontends, lost) = cluster_ip_frontends(model, proxy_name, service, port);
        reasons.extend(lost);
        let head_port = HeadPort {
            name: port.name.clone(),
            protocol: port.protocol,
            frontends: frontends.into_iter().collect(),
            internal: ListUse::default(),
            external: None,
            affinity_seconds: service.affinity_seconds,
            source_ranges: Vec::new(),
        };
        let slices = model.slices_of(id).map(AsRef::as_ref);
        parts.add(id, &head_port, &PortEndpoints::merge(port, slices));
        head.ports.push(head_port);
    }
    Some(PlannedService {
        id: id.clone(),
        heads: vec![Arc::new(head)],
        head_of_zone: BTreeMap::new(),
        head_of_node: BTreeMap::new(),
        lists: parts.lists,
        locals: parts
            .locals
            .into_iter()
            .map(|(node, found)| (node, Arc::new(local(found))))
            .collect(),
        warnings: reasons
            .into_iter()
            .map(|reason| Warning::new("Service", id, reason))
            .collect(),
    })
}

/// What the ports of a Service bring together.
#[derive(Default)]
struct Parts {
    lists: BTreeMap<ListKey, Arc<BackendList>>,
    locals: BTreeMap<Arc<str>, BTreeSet<LocalEndpoint>>,
}

impl Parts {
    /// A family without a frontend is served nowhere, so nothing of it is planned (S-6). One
    /// without endpoints has an empty list: its address refuses (S-7, S-21).
    fn add(&mut self, id: &ServiceId, port: &HeadPort, endpoints: &PortEndpoints<'_>) {
        for family in Family::BOTH
            .into_iter()
            .filter(|family| port.has_family(*family))
        {
            let key = ListKey {
                service: id.clone(),
                port: port.name.clone(),
                family,
                scope: Scope::Cluster,
            };
            self.lists.insert(key, Arc::new(endpoints.cluster(family)));
        }
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

fn local(endpoints: BTreeSet<LocalEndpoint>) -> Local {
    Local {
        endpoints: endpoints.into_iter().collect(),
        health: None,
    }
}

/// What the Service itself tells, without looking at others.
fn own_reasons(service: &Service) -> Vec<Reason> {
    let unusable = service
        .cluster_ips
        .iter()
        .filter(|address| !is_usable(**address));
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

/// Services without which a node cannot come up: the API server, the cluster's DNS, and those
/// that say so themselves.
fn is_boot_critical(service: &Service) -> bool {
    let name = (&*service.id.namespace, &*service.id.name);
    let dns = name.0 == "kube-system" && service.app.as_deref() == Some("kube-dns");
    service.boot_critical || dns || name == ("default", "kubernetes")
}
