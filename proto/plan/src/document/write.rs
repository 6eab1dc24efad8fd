//! Converts plans to documents.

use crate::document::{
    EndpointDocument, FamilyCounts, FrontendDocument, HealthCheckDocument, ListDocument,
    LocalEndpointDocument, PlanDocument, PortDocument, ServiceDocument, VERSION, WarningDocument,
};
use crate::{Family, Head, HeadPort, ListUse, Local, LocalHealth, NodeEntry, NodePlan, ServiceId};

impl PlanDocument {
    /// The document of a plan; `None` if the plan has no node entry.
    pub fn from_plan(plan: &NodePlan, mut warnings: Vec<WarningDocument>) -> Option<Self> {
        let node = plan.node()?;
        warnings.sort();
        warnings.dedup();
        let mut local_endpoints: Vec<_> = plan
            .locals()
            .flat_map(|(_, local)| &local.endpoints)
            .map(|e| LocalEndpointDocument {
                address: e.address,
                protocol: e.protocol,
                port: e.port,
            })
            .collect();
        local_endpoints.sort();
        local_endpoints.dedup();
        Some(Self {
            version: VERSION,
            node: node.name.clone(),
            zone: node.zone.clone(),
            hash: plan.hash().to_string(),
            node_addresses: node.addresses.clone(),
            pod_cidrs: node.pod_cidrs.clone(),
            service_cidrs: node.service_cidrs.clone(),
            eligible: node.eligible,
            settings: node.settings.clone(),
            services: plan
                .heads()
                .map(|(id, head)| service(plan, node, id, head))
                .collect(),
            local_endpoints,
            health_checks: plan
                .locals()
                .filter_map(|(id, local)| health(id, local))
                .collect(),
            warnings,
        })
    }
}

fn service(plan: &NodePlan, node: &NodeEntry, id: &ServiceId, head: &Head) -> ServiceDocument {
    ServiceDocument {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        boot_critical: head.boot_critical,
        drain_seconds: head.drain_seconds,
        ports: head
            .ports
            .iter()
            .flat_map(by_family)
            .map(|port| self::port(plan, node, id, head, &port))
            .collect(),
    }
}

/// A list of a document holds both families. If the families of a port use lists of different scopes, or treat
/// external clients differently, the port is written as two ports, one per family.
fn by_family(port: &HeadPort) -> Vec<HeadPort> {
    let alike = |list: &ListUse| list.ipv4 == list.ipv6;
    let both = Family::BOTH.iter().all(|family| port.has_family(*family));
    if !both || (alike(&port.internal) && port.external.as_ref().is_none_or(alike)) {
        return vec![port.clone()];
    }
    let of = |family| {
        let mut own = port.clone();
        own.frontends.retain(|f| {
            f.address
                .is_none_or(|address| Family::of(address) == family)
        });
        own
    };
    Family::BOTH.map(of).into()
}

fn port(
    plan: &NodePlan,
    node: &NodeEntry,
    id: &ServiceId,
    head: &Head,
    port: &HeadPort,
) -> PortDocument {
    let mut frontends: Vec<_> = port
        .frontends
        .iter()
        .map(|f| FrontendDocument {
            kind: f.kind,
            address: f.address,
            port: f.port,
        })
        .collect();
    frontends.sort();
    PortDocument {
        name: port.name.clone(),
        protocol: port.protocol,
        frontends,
        internal: list(plan, node, id, port, &port.internal),
        external: port
            .external
            .as_ref()
            .map(|external| list(plan, node, id, port, external)),
        affinity_seconds: port.affinity_seconds,
        scheduler: head
            .scheduler
            .clone()
            .unwrap_or_else(|| node.settings.scheduler.clone()),
        source_ranges: head.source_ranges_of(port).to_vec(),
    }
}

fn list(
    plan: &NodePlan,
    node: &NodeEntry,
    id: &ServiceId,
    port: &HeadPort,
    list: &ListUse,
) -> ListDocument {
    let families = port.families();
    let first = families.clone().next().unwrap_or(Family::Ipv4);
    let choice = list.choice(first);
    let endpoints = families
        .filter_map(|family| plan.backends(id, port, list, family))
        .flat_map(|backends| backends.as_slice())
        .map(|b| EndpointDocument {
            address: b.address,
            port: b.port,
            weight: b.weight,
        })
        .collect();
    ListDocument {
        policy: list.policy,
        scope: node.complete(choice.scope).shown(),
        endpoints,
        when_empty: list.when_empty,
        external_clients: choice.external_clients,
    }
}

fn health(id: &ServiceId, local: &Local) -> Option<HealthCheckDocument> {
    let LocalHealth { port, ipv4, ipv6 } = local.health?;
    Some(HealthCheckDocument {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        port,
        local_endpoints: FamilyCounts { ipv4, ipv6 },
    })
}
