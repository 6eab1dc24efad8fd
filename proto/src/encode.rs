//! Encodes plan entries. Equal values give equal bytes; the hash of a plan depends on this.

use std::net::IpAddr;

use bytes::Bytes;
use portolan_plan::{
    BackendList, Entry, ExternalClients, Frontend, FrontendKind, Head, HeadPort, ListChoice,
    ListUse, Local, LocalEndpoint, LocalHealth, NodeEntry, Policy, Protocol, ScopeKind, WhenEmpty,
};
use prost::Message as _;

use crate::field::{cidrs, octets};
use crate::{settings, wire};

/// Encodes an entry.
pub fn encode_entry(entry: &Entry) -> Bytes {
    match entry {
        Entry::Node(value) => node(value).encode_to_vec(),
        Entry::Head(value) => head(value).encode_to_vec(),
        Entry::List(value) => list(value).encode_to_vec(),
        Entry::Local(value) => local(value).encode_to_vec(),
    }
    .into()
}

fn node(node: &NodeEntry) -> wire::Node {
    wire::Node {
        name: node.name.to_string(),
        zone: node.zone.as_ref().map(ToString::to_string),
        addresses: node.addresses.iter().copied().map(octets).collect(),
        pod_cidrs: cidrs(&node.pod_cidrs),
        service_cidrs: cidrs(&node.service_cidrs),
        eligible: node.eligible,
        settings: Some(settings::to_wire(&node.settings)),
    }
}

fn head(head: &Head) -> wire::Head {
    wire::Head {
        boot_critical: head.boot_critical,
        drain_seconds: head.drain_seconds,
        scheduler: head.scheduler.as_ref().map(ToString::to_string),
        ports: head.ports.iter().map(port).collect(),
        source_ranges: cidrs(&head.source_ranges),
    }
}

fn port(port: &HeadPort) -> wire::HeadPort {
    wire::HeadPort {
        name: port.name.to_string(),
        protocol: protocol(port.protocol).into(),
        frontends: port.frontends.iter().map(frontend).collect(),
        internal: Some(list_use(&port.internal)),
        external: port.external.as_ref().map(list_use),
        affinity_seconds: port.affinity_seconds,
    }
}

fn frontend(frontend: &Frontend) -> wire::Frontend {
    wire::Frontend {
        kind: match frontend.kind {
            FrontendKind::ClusterIp => wire::FrontendKind::ClusterIp,
            FrontendKind::ExternalIp => wire::FrontendKind::ExternalIp,
            FrontendKind::LoadBalancer => wire::FrontendKind::LoadBalancer,
            FrontendKind::NodePort => wire::FrontendKind::NodePort,
        }
        .into(),
        address: frontend.address.map(octets).unwrap_or_default(),
        port: frontend.port.into(),
    }
}

fn list_use(list: &ListUse) -> wire::ListUse {
    wire::ListUse {
        policy: match list.policy {
            Policy::Cluster => wire::Policy::Cluster,
            Policy::Local => wire::Policy::Local,
        }
        .into(),
        ipv4: Some(choice(list.ipv4)),
        ipv6: Some(choice(list.ipv6)),
        when_empty: match list.when_empty {
            WhenEmpty::Reject => wire::WhenEmpty::Reject,
        }
        .into(),
    }
}

fn choice(choice: ListChoice) -> wire::ListChoice {
    wire::ListChoice {
        scope: match choice.scope {
            ScopeKind::Cluster => wire::ScopeKind::Cluster,
            ScopeKind::Zone => wire::ScopeKind::Zone,
            ScopeKind::Node => wire::ScopeKind::Node,
            ScopeKind::Local => wire::ScopeKind::Local,
        }
        .into(),
        external_clients: match choice.external_clients {
            ExternalClients::Allow => wire::ExternalClients::Allow,
            ExternalClients::Drop => wire::ExternalClients::Drop,
        }
        .into(),
    }
}

pub(crate) fn list(list: &BackendList) -> wire::BackendList {
    let backends = list.as_slice();
    let mut addresses = Vec::with_capacity(backends.len() * 4);
    for backend in backends {
        match backend.address {
            IpAddr::V4(address) => addresses.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => addresses.extend_from_slice(&address.octets()),
        }
    }
    let one_port = backends.windows(2).all(|pair| pair[0].port == pair[1].port);
    let ports = if one_port {
        &backends[..backends.len().min(1)]
    } else {
        backends
    };
    let weighted = backends.iter().any(|backend| backend.weight != 1);
    let weights = if weighted { backends } else { &[] };
    wire::BackendList {
        addresses,
        ports: ports.iter().map(|backend| backend.port.into()).collect(),
        weights: weights
            .iter()
            .map(|backend| backend.weight.into())
            .collect(),
    }
}

fn local(local: &Local) -> wire::Local {
    wire::Local {
        endpoints: local.endpoints.iter().map(local_endpoint).collect(),
        health: local
            .health
            .map(|LocalHealth { port, ipv4, ipv6 }| wire::LocalHealth {
                port: port.into(),
                ipv4,
                ipv6,
            }),
    }
}

fn local_endpoint(endpoint: &LocalEndpoint) -> wire::LocalEndpoint {
    wire::LocalEndpoint {
        address: octets(endpoint.address),
        protocol: protocol(endpoint.protocol).into(),
        port: endpoint.port.into(),
    }
}

fn protocol(protocol: Protocol) -> wire::Protocol {
    match protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    }
}
