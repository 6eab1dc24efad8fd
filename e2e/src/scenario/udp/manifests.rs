//! EndpointSlices with the current endpoint.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::topology::world::{Family, Pod};

/// Where a Service leads to: a pod, and its UDP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) pod: Pod,
    pub(super) port: u16,
}

impl Endpoint {
    pub(super) fn at(self, family: Family) -> SocketAddr {
        (self.pod.address(family), self.port).into()
    }
}

/// The slices of `talk` or `late`, or of `plain`, which has only the TCP port `http`. All endpoints have the port of the
/// first.
pub(super) fn slices(service: &str, endpoints: &[Endpoint]) -> String {
    slices_with(service, endpoints, &[])
}

/// The same, and some of the endpoints terminate, but still serve.
pub(super) fn slices_with(service: &str, endpoints: &[Endpoint], leaving: &[Endpoint]) -> String {
    let mut text = String::new();
    for family in Family::ALL {
        let name = family.to_string();
        let port = endpoints.first().map_or(5353, |endpoint| endpoint.port);
        let ports = match service {
            "plain" => "- {name: http, protocol: TCP, port: 8080}\n".to_owned(),
            _ => format!(
                "- {{name: talk, protocol: UDP, port: {port}}}\n\
                 - {{name: talk-tcp, protocol: TCP, port: 8080}}\n\
                 - {{name: talk-sctp, protocol: SCTP, port: 13868}}\n"
            ),
        };
        let line = |endpoint: &Endpoint| {
            let Endpoint { pod, .. } = endpoint;
            let leaves = leaving.contains(endpoint);
            let (address, node) = (pod.address(family), pod.node);
            let (name, zone) = (node.name(), node.zone());
            format!(
                "{{addresses: [\"{address}\"], nodeName: {name}, zone: {zone}, \
                 conditions: {{ready: {}, serving: true, terminating: {leaves}}}}}",
                !leaves
            )
        };
        let lines: Vec<_> = endpoints.iter().map(line).collect();
        let endpoints = lines.join(", ");
        let suffix = name.to_lowercase();
        let _infallible = write!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {service}-{suffix}, namespace: shop, \
             labels: {{kubernetes.io/service-name: {service}}}}}\n\
             addressType: {name}\nports:\n{ports}endpoints: [{endpoints}]\n"
        );
    }
    text
}
