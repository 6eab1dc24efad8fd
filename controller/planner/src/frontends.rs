//! Which Services are proxied, and where they answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{
    Family, Frontend, FrontendKind, LocalDetection, Protocol, ServiceId, Settings,
};

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
    let (claimant, reasons) = Claimant::new(model, settings, service);
    let mut found = claimant.frontends(port);
    found.reasons.splice(0..0, reasons);
    found
}

/// A Service among all that claim the same places.
pub(crate) struct Claimant<'a> {
    model: &'a ClusterModel,
    settings: &'a Settings,
    service: &'a Service,
    /// Where it may answer as long as nobody else does, each address once.
    addresses: Vec<(FrontendKind, IpAddr)>,
}

/// Who comes first at a place: cluster IPs, because the API server gave them to nobody else; then the
/// oldest Service, then the first by namespace and name (S-14).
type Rank<'a> = (bool, i64, &'a ServiceId);

fn rank(service: &Service, kind: FrontendKind) -> Rank<'_> {
    let created = service.created.unwrap_or(i64::MAX);
    (kind != FrontendKind::ClusterIp, created, &service.id)
}

impl<'a> Claimant<'a> {
    /// A Service, and why it may not answer on some of its addresses whatever others do.
    pub(crate) fn new(
        model: &'a ClusterModel,
        settings: &'a Settings,
        service: &'a Service,
    ) -> (Self, Vec<Reason>) {
        let (mut addresses, mut reasons) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (kind, address) in named(service) {
            // One address is one frontend, whatever it is called.
            if seen.insert(address) {
                match refusal(model, settings, service, kind, address) {
                    None => addresses.push((kind, address)),
                    Some(reason) => reasons.push(reason),
                }
            }
        }
        let claimant = Self {
            model,
            settings,
            service,
            addresses,
        };
        (claimant, reasons)
    }

    /// The frontends of one of its ports, and why others are not its own.
    pub(crate) fn frontends(&self, port: &ServicePort) -> Frontends {
        let mut found = Frontends::default();
        for (kind, address) in &self.addresses {
            self.settle(port, *kind, *address, &mut found);
        }
        if let Some(number) = port.node_port {
            self.settle_node_port(port, number, &mut found);
        }
        found
    }

    fn settle(
        &self,
        port: &ServicePort,
        kind: FrontendKind,
        address: IpAddr,
        found: &mut Frontends,
    ) {
        let is_external = kind != FrontendKind::ClusterIp;
        if is_external && !found.has_cluster_ip(Family::of(address)) {
            // Without its cluster IP, which was said, nothing of the family is served.
            return;
        }
        if is_external && self.model.is_api_server(address, port.protocol, port.port) {
            found.reasons.push(Reason::NeverCaptured {
                kind,
                address,
                owner: AddressOwner::ApiServer,
            });
            return;
        }
        if let Some(winner) = self.elder(port, kind, address) {
            let reason = conflict(kind, Some(address), port.protocol, port.port, winner);
            found.reasons.push(reason);
            return;
        }
        let frontend = Frontend {
            kind,
            address: Some(address),
            port: port.port,
        };
        let mut nodes = self.model.nodes_at(address).peekable();
        if !is_external || nodes.peek().is_none() {
            found.everywhere.push(frontend);
            return;
        }
        if let Some(winner) = self.node_port_at(port, address) {
            found.reasons.push(Reason::NodePortFirst {
                kind,
                address,
                protocol: port.protocol,
                port: port.port,
                winner: winner.id.clone(),
            });
            return;
        }
        found
            .on_nodes
            .extend(nodes.map(|node| (node.clone(), frontend)));
    }

    fn settle_node_port(&self, port: &ServicePort, number: u16, found: &mut Frontends) {
        match owner_of_node_port(self.model, self.settings, port.protocol, number) {
            Some(winner) if winner.id != self.service.id => {
                let kind = FrontendKind::NodePort;
                let reason = conflict(kind, None, port.protocol, number, winner);
                found.reasons.push(reason);
            }
            _ => found.everywhere.push(Frontend {
                kind: FrontendKind::NodePort,
                address: None,
                port: number,
            }),
        }
    }

    /// The Service that has this place instead.
    fn elder(
        &self,
        port: &ServicePort,
        kind: FrontendKind,
        address: IpAddr,
    ) -> Option<&'a Service> {
        let own = rank(self.service, kind);
        let claim = Claim::Place(address, port.protocol, port.port);
        let rivals = self.model.claims(claim).map(AsRef::as_ref);
        let ranked = rivals.filter_map(|rival| {
            let kind = holds(self.model, self.settings, rival, address)?;
            Some((rank(rival, kind), rival))
        });
        let older = ranked.filter(|(rank, rival)| rival.id != self.service.id && *rank < own);
        older.min_by_key(|(rank, _)| *rank).map(|(_, rival)| rival)
    }

    /// Whose node port, or health check port, comes first on an address of a node: those are on all
    /// of its addresses (S-31).
    fn node_port_at(&self, port: &ServicePort, address: IpAddr) -> Option<&'a Service> {
        let (protocol, number) = (port.protocol, port.port);
        let owner = owner_of_node_port(self.model, self.settings, protocol, number)?;
        let has_family = owner.cluster_ip(Family::of(address)).is_some();
        // Its own port with the same number leads to the same endpoints.
        let same_port = owner.id == self.service.id && port.node_port == Some(number);
        (has_family && !same_port).then_some(owner)
    }
}

impl Frontends {
    /// Whether the port has a cluster IP of the family.
    fn has_cluster_ip(&self, family: Family) -> bool {
        self.everywhere.iter().any(|frontend| {
            let of_family = frontend.address.is_some_and(|a| Family::of(a) == family);
            frontend.kind == FrontendKind::ClusterIp && of_family
        })
    }
}

fn conflict(
    kind: FrontendKind,
    address: Option<IpAddr>,
    protocol: Protocol,
    port: u16,
    winner: &Service,
) -> Reason {
    Reason::Conflict {
        kind,
        address,
        protocol,
        port,
        winner: winner.id.clone(),
    }
}

/// Every address that a Service names, cluster IPs first.
fn named(service: &Service) -> impl Iterator<Item = (FrontendKind, IpAddr)> {
    let own = service.cluster_ips.iter();
    let own = own.map(|address| (FrontendKind::ClusterIp, *address));
    own.chain(service.external_addresses())
}

/// The Service that has a port of the nodes: the oldest of all that claim it (S-14).
pub(crate) fn owner_of_node_port<'a>(
    model: &'a ClusterModel,
    settings: &Settings,
    protocol: Protocol,
    number: u16,
) -> Option<&'a Service> {
    let claims = model.claims(Claim::NodePort(number)).map(AsRef::as_ref);
    let rivals = claims.filter(|rival| {
        has_node_port(rival, protocol, number) && is_proxied(rival, &settings.service_proxy_name)
    });
    rivals.min_by_key(|rival| rank(rival, FrontendKind::NodePort))
}

/// Health checks are asked over TCP, so such a port is taken too.
fn has_node_port(service: &Service, protocol: Protocol, number: u16) -> bool {
    let own = |port: &ServicePort| (port.protocol, port.node_port) == (protocol, Some(number));
    let health = protocol == Protocol::Tcp && service.health_port() == Some(number);
    health || service.ports.iter().any(own)
}

/// As what a Service may answer on an address that it names; what it may not, it takes from nobody.
fn holds(
    model: &ClusterModel,
    settings: &Settings,
    service: &Service,
    address: IpAddr,
) -> Option<FrontendKind> {
    if !is_proxied(service, &settings.service_proxy_name) {
        return None;
    }
    let (kind, _) = named(service).find(|(_, other)| *other == address)?;
    refusal(model, settings, service, kind, address)
        .is_none()
        .then_some(kind)
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
    if let Some(owner) = pods_at(model, settings, address) {
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

/// Which pods may have the address: those of a node, or of the cluster where only its range is known.
fn pods_at(model: &ClusterModel, settings: &Settings, address: IpAddr) -> Option<AddressOwner> {
    if let Some((range, node)) = model.pod_range(address) {
        let node = node.clone();
        return Some(AddressOwner::Pods { range, node });
    }
    let LocalDetection::ClusterCidr { cluster_cidrs } = &settings.local_detection else {
        return None;
    };
    let range = cluster_cidrs.iter().find(|range| range.contains(&address));
    range.map(|range| AddressOwner::PodsOfCluster { range: *range })
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
