//! Which Services are proxied, and where they answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, Frontend, FrontendKind, Protocol, Settings};

use crate::model::{Claim, ClusterModel, Service, ServicePort};
use crate::proxied::not_proxied;
use crate::{AddressOwner, Reason};

/// Whether a Service is ours to serve.
pub(crate) fn is_proxied(service: &Service, proxy_name: &str) -> bool {
    not_proxied(service, proxy_name).is_none()
}

/// Where one port of a Service answers.
#[derive(Debug, Default)]
pub(crate) struct Frontends {
    /// On every node, in the Service's order.
    pub(crate) everywhere: Vec<Frontend>,
    /// On one node only, because the address is that node's own (S-25). Others reach it there.
    pub(crate) on_nodes: Vec<(Arc<str>, Frontend)>,
    /// Why it does not answer elsewhere.
    pub(crate) reasons: Vec<Reason>,
}

impl Frontends {
    /// Those on every node and those on one.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Frontend> {
        let on_nodes = self.on_nodes.iter().map(|(_, frontend)| frontend);
        self.everywhere.iter().chain(on_nodes)
    }

    /// Whether it answers elsewhere than on cluster IPs, on some node at least.
    pub(crate) fn has_external(&self) -> bool {
        self.all()
            .any(|frontend| frontend.kind != FrontendKind::ClusterIp)
    }
}

/// The frontends of a port that are really its own (S-14 to S-19), and why others are not.
pub(crate) fn frontends(
    model: &ClusterModel,
    settings: &Settings,
    service: &Service,
    port: &ServicePort,
) -> Frontends {
    let rivals = Rivals {
        model,
        settings,
        service,
        port,
    };
    let mut found = Frontends::default();
    for address in &service.cluster_ips {
        rivals.settle(FrontendKind::ClusterIp, *address, &mut found);
    }
    let mut taken: BTreeSet<IpAddr> = service.cluster_ips.iter().copied().collect();
    for (kind, address) in service.external_addresses() {
        // One address is one frontend, whatever it is called.
        if taken.insert(address) {
            rivals.settle(kind, address, &mut found);
        }
    }
    if let Some(number) = port.node_port {
        rivals.settle_node_port(number, &mut found);
    }
    found
}

/// A port of a Service among all that claim the same places.
struct Rivals<'a> {
    model: &'a ClusterModel,
    settings: &'a Settings,
    service: &'a Service,
    port: &'a ServicePort,
}

impl<'a> Rivals<'a> {
    fn settle(&self, kind: FrontendKind, address: IpAddr, found: &mut Frontends) {
        if let Some(reason) = refusal(self.model, self.settings, self.service, kind, address) {
            found.reasons.push(reason);
            return;
        }
        let (protocol, number) = (self.port.protocol, self.port.port);
        let own = || self.model.nodes_at(address).next();
        let is_external = kind != FrontendKind::ClusterIp;
        let node = if is_external { own() } else { None };
        let winner = self.elder(Claim::Address(address), |rival| {
            let has_port = rival
                .ports
                .iter()
                .any(|p| (p.protocol, p.port) == (protocol, number));
            has_port && holds(self.model, self.settings, rival, address)
        });
        // On a node's own address its node ports come first: they are on all of its addresses.
        let winner = winner.or_else(|| node.and_then(|_| self.elder_at_node_port(number)));
        if let Some(winner) = winner {
            found
                .reasons
                .push(self.conflict(kind, Some(address), number, winner));
            return;
        }
        let frontend = Frontend {
            kind,
            address: Some(address),
            port: number,
        };
        if node.is_none() {
            found.everywhere.push(frontend);
            return;
        }
        let nodes = self.model.nodes_at(address);
        found
            .on_nodes
            .extend(nodes.map(|node| (node.clone(), frontend)));
    }

    fn settle_node_port(&self, number: u16, found: &mut Frontends) {
        match self.elder_at_node_port(number) {
            None => found.everywhere.push(Frontend {
                kind: FrontendKind::NodePort,
                address: None,
                port: number,
            }),
            Some(winner) => {
                let reason = self.conflict(FrontendKind::NodePort, None, number, winner);
                found.reasons.push(reason);
            }
        }
    }

    /// The Service that has a port of the nodes instead; not one that lost it itself.
    fn elder_at_node_port(&self, number: u16) -> Option<&'a Service> {
        let (model, settings) = (self.model, self.settings);
        elder_at_node_port(model, settings, self.service, self.port.protocol, number)
    }

    /// The Service that has this place instead.
    fn elder(&self, claim: Claim, holds: impl Fn(&Service) -> bool) -> Option<&'a Service> {
        elder(self.model, self.settings, self.service, claim, holds)
    }

    fn conflict(
        &self,
        kind: FrontendKind,
        address: Option<IpAddr>,
        port: u16,
        winner: &Service,
    ) -> Reason {
        Reason::Conflict {
            kind,
            address,
            protocol: self.port.protocol,
            port,
            winner: winner.id.clone(),
        }
    }
}

/// Of all Services that hold a place, the oldest has it, then the first by namespace and name
/// (S-14). `None` when that is this one.
fn elder<'a>(
    model: &'a ClusterModel,
    settings: &Settings,
    service: &Service,
    claim: Claim,
    holds: impl Fn(&Service) -> bool,
) -> Option<&'a Service> {
    let age = |service: &Service| (service.created.unwrap_or(i64::MAX), service.id.clone());
    model
        .claims(claim)
        .map(AsRef::as_ref)
        .filter(|rival| is_proxied(rival, &settings.service_proxy_name) && holds(rival))
        .min_by_key(|rival| age(rival))
        .filter(|winner| winner.id != service.id)
}

/// The Service that has a port of the nodes instead.
pub(crate) fn elder_at_node_port<'a>(
    model: &'a ClusterModel,
    settings: &Settings,
    service: &Service,
    protocol: Protocol,
    number: u16,
) -> Option<&'a Service> {
    elder(model, settings, service, Claim::NodePort(number), |rival| {
        has_node_port(rival, protocol, number)
    })
}

/// Health checks are asked over TCP, so such a port is taken too.
fn has_node_port(service: &Service, protocol: Protocol, number: u16) -> bool {
    let own = |port: &ServicePort| (port.protocol, port.node_port) == (protocol, Some(number));
    let health = protocol == Protocol::Tcp && service.health_port() == Some(number);
    health || service.ports.iter().any(own)
}

/// Whether a Service may answer on an address that it names; what it may not, it takes from nobody.
fn holds(model: &ClusterModel, settings: &Settings, service: &Service, address: IpAddr) -> bool {
    let own = service.cluster_ips.iter();
    let own = own.map(|address| (FrontendKind::ClusterIp, *address));
    let mut all = own.chain(service.external_addresses());
    all.any(|(kind, other)| {
        other == address && refusal(model, settings, service, kind, address).is_none()
    })
}

/// Why no node may answer for a Service on one of its addresses.
fn refusal(
    model: &ClusterModel,
    settings: &Settings,
    service: &Service,
    kind: FrontendKind,
    address: IpAddr,
) -> Option<Reason> {
    if !is_usable_address(address) {
        return Some(Reason::UnusableAddress { kind, address });
    }
    if kind == FrontendKind::ClusterIp {
        return None;
    }
    if service.cluster_ip(Family::of(address)).is_none() {
        return Some(Reason::NoClusterIp { kind, address });
    }
    let owner = if model.is_api_server(address) {
        Some(AddressOwner::ApiServer)
    } else {
        let range = model.pod_range(address);
        range.map(|(range, node)| AddressOwner::Pods {
            range,
            node: node.clone(),
        })
    };
    if let Some(owner) = owner {
        return Some(Reason::NeverCaptured {
            kind,
            address,
            owner,
        });
    }
    let mut allowed = settings.external_ips.allowed_cidrs.iter();
    let is_allowed =
        kind != FrontendKind::ExternalIp || allowed.any(|range| range.contains(&address));
    (!is_allowed).then_some(Reason::NotAllowed { address })
}

/// Whether an address can be one of a Service or an endpoint at all: not loopback, link-local,
/// multicast, broadcast or unspecified (S-29).
pub fn is_usable_address(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}
