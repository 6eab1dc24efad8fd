//! Services in the form of ProxyPlans and ProxyPlanSlices. Pure: plans in, values of the custom resources out.

use std::net::{IpAddr, SocketAddr};

use portolan_crds as crds;
use portolan_crds::limit;
use portolan_plan::{
    Backend, ExternalClients, Family, Frontend, Head, HeadPort, ListChoice, ListKey, ListUse,
    NodeEntry, Policy, Protocol, ScopeKind, ServiceId,
};
use portolan_planner::PlannedService;

use super::content::{bounded, size};

/// Maximum size of the ports of one Service in an object, in bytes. Further ports are only counted.
const MAX_PORTS_BYTES: usize = 32 * 1024;

/// The reader: one node, which has own lists, or any node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader<'a> {
    /// Scopes name the node, and its own lists are included.
    Node(&'a PlannedService, &'a NodeEntry),
    /// Scopes contain only their kind.
    Anybody,
}

/// A Service as one node sees it.
pub(super) fn planned_service(planned: &PlannedService, node: &NodeEntry) -> crds::PlannedService {
    let head = planned.head_for(node);
    let (ports, ports_omitted) = ports(head, Reader::Node(planned, node));
    crds::PlannedService {
        namespace: planned.id.namespace.to_string(),
        name: planned.id.name.to_string(),
        because: because(head),
        ports,
        ports_omitted,
    }
}

fn because(head: &Head) -> crds::Because {
    let is_local = |list: &ListUse| list.policy == Policy::Local;
    let external = |port: &HeadPort| port.external.as_ref().is_some_and(is_local);
    let internal = |port: &HeadPort| is_local(&port.internal);
    if head.ports.iter().any(external) {
        crds::Because::ExternalTrafficPolicyLocal
    } else if head.ports.iter().any(internal) {
        crds::Because::InternalTrafficPolicyLocal
    } else {
        crds::Because::NodeHints
    }
}

/// A Service as many nodes see it.
pub(super) fn slice_head(id: &ServiceId, head: &Head) -> crds::SliceHead {
    let (ports, ports_omitted) = ports(head, Reader::Anybody);
    crds::SliceHead {
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        boot_critical: head.boot_critical,
        drain_seconds: head.drain_seconds,
        scheduler: head.scheduler.as_ref().map(ToString::to_string),
        ports,
        ports_omitted,
    }
}

/// The ports that fit, and the number of those that do not.
fn ports(head: &Head, reader: Reader<'_>) -> (Vec<crds::PlannedPort>, u32) {
    let mut ports = Vec::new();
    let mut bytes = 0;
    for port in head.ports.iter().take(limit::PORTS) {
        let port = self::port(head, port, reader);
        bytes += size(&port);
        if bytes > MAX_PORTS_BYTES {
            break;
        }
        ports.push(port);
    }
    let omitted = head.ports.len() - ports.len();
    (ports, u32::try_from(omitted).unwrap_or(u32::MAX))
}

fn port(head: &Head, port: &HeadPort, reader: Reader<'_>) -> crds::PlannedPort {
    let ranges = head.source_ranges_of(port).iter().map(ToString::to_string);
    crds::PlannedPort {
        name: port.name.to_string(),
        protocol: match port.protocol {
            Protocol::Tcp => crds::Protocol::Tcp,
            Protocol::Udp => crds::Protocol::Udp,
            Protocol::Sctp => crds::Protocol::Sctp,
        },
        frontends: bounded(port.frontends.iter().map(frontend), limit::FRONTENDS),
        internal: list_use(port, &port.internal, reader),
        external: port
            .external
            .as_ref()
            .map(|external| list_use(port, external, reader)),
        affinity_seconds: port.affinity_seconds,
        source_ranges: bounded(ranges, limit::SOURCE_RANGES),
    }
}

fn frontend(frontend: &Frontend) -> String {
    let kind = frontend.kind.as_str();
    match frontend.address {
        Some(address) => format!("{kind} {}", SocketAddr::new(address, frontend.port)),
        None => format!("{kind} *:{}", frontend.port),
    }
}

fn list_use(port: &HeadPort, list: &ListUse, reader: Reader<'_>) -> crds::ListUse {
    let mut families = Family::BOTH.into_iter().filter(|f| port.has_family(*f));
    let first = family_use(list.choice(families.next().unwrap_or(Family::Ipv4)), reader);
    let second = families.next();
    let second = second.map(|family| family_use(list.choice(family), reader));
    let crds::FamilyUse {
        scope,
        external_clients,
    } = first.clone();
    crds::ListUse {
        scope,
        endpoints: own_endpoints(port, list, reader),
        external_clients,
        ipv6: second.filter(|second| *second != first),
    }
}

fn family_use(choice: ListChoice, reader: Reader<'_>) -> crds::FamilyUse {
    let scope = match (reader, choice.scope) {
        (Reader::Node(_, node), kind) => node.complete(kind).shown(),
        (Reader::Anybody, ScopeKind::Cluster) => "cluster".into(),
        (Reader::Anybody, ScopeKind::Zone) => "zone".into(),
        (Reader::Anybody, ScopeKind::Node | ScopeKind::Local) => "node".into(),
    };
    let external_clients = match choice.external_clients {
        ExternalClients::Allow => crds::ExternalClients::Allow,
        ExternalClients::Drop => crds::ExternalClients::Drop,
    };
    crds::FamilyUse {
        scope,
        external_clients,
    }
}

/// The endpoints of the node's own lists, of both families; `None` if it has none.
fn own_endpoints(port: &HeadPort, list: &ListUse, reader: Reader<'_>) -> Option<Vec<String>> {
    let Reader::Node(planned, node) = reader else {
        return None;
    };
    let own = |family: Family| {
        let scope = node.complete(list.choice(family).scope);
        (port.has_family(family) && scope.node().is_some()).then(|| ListKey {
            service: planned.id.clone(),
            port: port.name.clone(),
            family,
            scope,
        })
    };
    let keys: Vec<_> = Family::BOTH.into_iter().filter_map(own).collect();
    if keys.is_empty() {
        return None;
    }
    let lists = keys.iter().filter_map(|key| planned.lists.get(key));
    let backends = lists.flat_map(|list| list.as_slice()).map(endpoint);
    Some(bounded(backends, limit::OWN_ENDPOINTS))
}

/// A backend as text, with its weight if it is not the default.
pub(super) fn endpoint(backend: &Backend) -> String {
    let Backend {
        address,
        port,
        weight,
    } = *backend;
    let place = socket(address, port);
    match weight {
        1 => place,
        weight => format!("{place} weight {weight}"),
    }
}

fn socket(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}
