//! The frontends of a Service, and conflicts between Services that claim the same address and port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_plan::{Family, Frontend, FrontendKind, Policy, Protocol, ServiceId, Settings};

use crate::model::{Claim, ClusterModel, Service, ServicePort};
use crate::proxied::not_proxied;
use crate::{AddressOwner, Reason};

/// The default port of the kubelet.
const KUBELET_PORT: u16 = 10250;

/// Whether this proxy serves a Service.
pub(crate) fn is_proxied(service: &Service, proxy_name: &str) -> bool {
    not_proxied(service, proxy_name).is_none()
}

/// The frontends of one Service port, on every node.
#[derive(Debug, Default)]
pub(crate) struct Frontends {
    /// In the order of the Service.
    pub(crate) all: Vec<Frontend>,
    /// Why other addresses are not frontends.
    pub(crate) reasons: Vec<Reason>,
}

impl Frontends {
    /// Whether it has frontends other than cluster IPs.
    pub(crate) fn has_external(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|frontend| frontend.kind != FrontendKind::ClusterIp)
    }
}

/// The frontends that a port really gets (S-14 to S-19), and why it does not get others.
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

/// A Service that competes with others for frontends.
pub(crate) struct Claimant<'a> {
    model: &'a ClusterModel,
    settings: &'a Settings,
    service: &'a Service,
    /// The addresses that it may use unless another Service has precedence, each once.
    addresses: Vec<(FrontendKind, IpAddr)>,
}

/// Precedence for a frontend, lowest first: cluster IPs, because the API server allocates them uniquely; then load
/// balancer addresses, which a controller assigns, before external IPs, which any user can set; then the oldest
/// Service; then the first by namespace and name (S-14, S-215).
type Rank<'a> = (u8, i64, &'a ServiceId);

fn rank(service: &Service, kind: FrontendKind) -> Rank<'_> {
    let created = service.created.unwrap_or(i64::MAX);
    let class = match kind {
        FrontendKind::ClusterIp => 0,
        FrontendKind::LoadBalancer => 1,
        FrontendKind::ExternalIp | FrontendKind::NodePort => 2,
    };
    (class, created, &service.id)
}

impl<'a> Claimant<'a> {
    /// A Service, and why some of its addresses are never served, independent of other Services.
    pub(crate) fn new(
        model: &'a ClusterModel,
        settings: &'a Settings,
        service: &'a Service,
    ) -> (Self, Vec<Reason>) {
        let (mut addresses, mut reasons) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (kind, address) in named(service) {
            // An address is one frontend, even if several fields contain it.
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

    /// The frontends of one of its ports, and why it does not get others.
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
        if is_external && !self.has_cluster_ip(found, Family::of(address)) {
            // Without its cluster IP the Service serves nothing in this family. The reason is already reported.
            return;
        }
        if is_external && let Some(owner) = self.owner(port, kind, address) {
            found.reasons.push(Reason::NeverCaptured {
                kind,
                address,
                owner,
            });
            return;
        }
        if let Some(winner) = self.elder(port, kind, address) {
            let reason = conflict(kind, Some(address), port.protocol, port.port, winner);
            found.reasons.push(reason);
            return;
        }
        let frontend = Frontend {
            kind: served_as(self.service, kind, address),
            address: Some(address),
            port: port.port,
        };
        // The interfaces of a node determine its addresses, and they may differ from its Node object (S-216). So
        // every node has the frontend, and the node with the address gives precedence to its node port.
        let is_of_node = is_external && self.model.nodes_at(address).next().is_some();
        if is_of_node && let Some(winner) = self.node_port_at(port, address) {
            found.reasons.push(Reason::NodePortFirst {
                kind,
                address,
                protocol: port.protocol,
                port: port.port,
                winner: winner.id.clone(),
            });
        }
        found.all.push(frontend);
    }

    /// Whether the port has a cluster IP of the family.
    fn has_cluster_ip(&self, found: &Frontends, family: Family) -> bool {
        let mut all = found.all.iter().filter_map(|frontend| frontend.address);
        all.any(|address| {
            Family::of(address) == family && self.service.cluster_ips.contains(&address)
        })
    }

    /// The listener on this address and port that must not lose it to a Service.
    fn owner(
        &self,
        port: &ServicePort,
        kind: FrontendKind,
        address: IpAddr,
    ) -> Option<AddressOwner> {
        if self.model.is_api_server(address, port.protocol, port.port) {
            return Some(AddressOwner::ApiServer);
        }
        let anybody_may_write = kind == FrontendKind::ExternalIp;
        if !(anybody_may_write && port.protocol == Protocol::Tcp) {
            return None;
        }
        let node = self.model.nodes_at(address).next()?.clone();
        let what = match port.port {
            KUBELET_PORT => "kubelet",
            number if number == self.settings.healthz.port => "health port",
            number if number == self.settings.metrics.port => "metrics port",
            _ => return None,
        };
        Some(AddressOwner::Node { node, what })
    }

    fn settle_node_port(&self, port: &ServicePort, number: u16, found: &mut Frontends) {
        match owner_of_node_port(self.model, self.settings, port.protocol, number) {
            Some(winner) if winner.id != self.service.id => {
                let kind = FrontendKind::NodePort;
                let reason = conflict(kind, None, port.protocol, number, winner);
                found.reasons.push(reason);
            }
            _ => found.all.push(Frontend {
                kind: FrontendKind::NodePort,
                address: None,
                port: number,
            }),
        }
    }

    /// The Service that has precedence on this address and port.
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

    /// The Service with a node port, or health check port, of this number. It has precedence on addresses of nodes,
    /// because node ports cover all of them (S-31).
    fn node_port_at(&self, port: &ServicePort, address: IpAddr) -> Option<&'a Service> {
        let (protocol, number) = (port.protocol, port.port);
        let owner = owner_of_node_port(self.model, self.settings, protocol, number)?;
        let has_family = owner.cluster_ip(Family::of(address)).is_some();
        // Its own node port with the same number leads to the same endpoints.
        let same_port = owner.id == self.service.id && port.node_port == Some(number);
        (has_family && !same_port).then_some(owner)
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

/// All addresses of a Service, cluster IPs first.
fn named(service: &Service) -> impl Iterator<Item = (FrontendKind, IpAddr)> {
    let own = service.cluster_ips.iter();
    let own = own.map(|address| (FrontendKind::ClusterIp, *address));
    own.chain(service.external_addresses())
}

/// The kind under which an address is served. A cluster IP that is also a load balancer address of the Service is
/// protected like one, by source ranges and the external policy. Agents always admit pods and nodes of the cluster.
fn served_as(service: &Service, kind: FrontendKind, address: IpAddr) -> FrontendKind {
    let external = service.external.as_ref();
    let guards = external
        .filter(|external| external.source_ranges.is_some() || external.policy == Policy::Local);
    let is_guarded = guards.is_some_and(|external| external.balancer_ips.contains(&address));
    match kind {
        FrontendKind::ClusterIp if is_guarded => FrontendKind::LoadBalancer,
        _ => kind,
    }
}

/// The Service that owns a node port: the oldest one that claims it (S-14).
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

/// Health checks use TCP, so a health check port conflicts with TCP node ports.
fn has_node_port(service: &Service, protocol: Protocol, number: u16) -> bool {
    let own = |port: &ServicePort| (port.protocol, port.node_port) == (protocol, Some(number));
    let health = protocol == Protocol::Tcp && service.health_port() == Some(number);
    health || service.ports.iter().any(own)
}

/// The kind under which a Service may use an address. An address that it may not use does not conflict with others.
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

/// Why no node may serve an address for a Service.
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
    if kind == FrontendKind::ExternalIp
        && let Some(slice) = model.slice_at(address)
    {
        let slice = slice.clone();
        return Some(Reason::NeverCaptured {
            kind,
            address,
            owner: AddressOwner::Endpoint { slice },
        });
    }
    let mut allowed = settings.external_ips.allowed_cidrs.iter();
    let is_allowed =
        kind != FrontendKind::ExternalIp || allowed.any(|range| range.contains(&address));
    (!is_allowed).then_some(Reason::NotAllowed { address })
}

/// Whether an address is valid for a Service or an endpoint: not loopback, link-local, multicast, broadcast or
/// unspecified (S-29).
pub fn is_usable_address(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}
