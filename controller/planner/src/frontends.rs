//! Which Services are proxied, and where they answer.

use std::net::IpAddr;

use portolan_plan::{Frontend, FrontendKind};

use crate::Reason;
use crate::model::{ClusterModel, Service, ServicePort};

/// Whether a Service is ours to serve: it has a cluster IP (S-1), and its label gives it to no
/// other proxy than the one named in the settings (S-2).
pub(crate) fn is_proxied(service: &Service, proxy_name: &str) -> bool {
    let labelled = service.proxy_name.as_deref();
    let ours = match proxy_name {
        "" => labelled.is_none(),
        name => labelled == Some(name),
    };
    ours && !service.cluster_ips.is_empty() && !service.ports.is_empty()
}

/// The cluster IP frontends of a port that are really its own, in the Service's order (S-15), and
/// why others are not.
pub(crate) fn cluster_ip_frontends(
    model: &ClusterModel,
    proxy_name: &str,
    service: &Service,
    port: &ServicePort,
) -> (Vec<Frontend>, Vec<Reason>) {
    let mut frontends = Vec::new();
    let mut reasons = Vec::new();
    for address in service
        .cluster_ips
        .iter()
        .copied()
        .filter(|address| is_usable_address(*address))
    {
        match older_claim(model, proxy_name, service, port, address) {
            None => {
                let kind = FrontendKind::ClusterIp;
                frontends.push(Frontend {
                    kind,
                    address: Some(address),
                    port: port.port,
                });
            }
            Some(winner) => reasons.push(Reason::Conflict {
                address,
                protocol: port.protocol,
                port: port.port,
                winner: winner.id.clone(),
            }),
        }
    }
    (frontends, reasons)
}

/// The Service that has this address and port instead: the oldest one that claims it, then the
/// first by namespace and name (S-14).
fn older_claim<'a>(
    model: &'a ClusterModel,
    proxy_name: &str,
    service: &Service,
    port: &ServicePort,
    address: IpAddr,
) -> Option<&'a Service> {
    let age = |service: &Service| (service.created.unwrap_or(i64::MAX), service.id.clone());
    let same = |p: &ServicePort| (p.protocol, p.port) == (port.protocol, port.port);
    model
        .claims(address)
        .map(AsRef::as_ref)
        .filter(|rival| is_proxied(rival, proxy_name) && rival.ports.iter().any(same))
        .min_by_key(|rival| age(rival))
        .filter(|winner| winner.id != service.id)
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
