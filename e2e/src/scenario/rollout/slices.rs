//! The EndpointSlices of the Services, as manifests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use std::net::IpAddr;

use crate::topology::world::{Family, Node, Pod};

/// An endpoint with its own address and port: one pod of the lab represents several endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    /// For new connections; lines have the one a thousand below.
    pub(super) port: u16,
    pub(super) pod: Pod,
}

impl Endpoint {
    /// Its address in its node's range: the pod's own for the port that all pods serve.
    pub(super) fn address(self, family: Family) -> IpAddr {
        // All pods share 8080; 8101 is .21 on the first pod of a node and .71 on the second.
        let Some(tens) = (self.port / 100).checked_sub(81) else {
            return self.pod.address(family);
        };
        let host = u8::try_from(20 + tens * 10 + self.port % 100).unwrap_or(u8::MAX);
        let host = host.saturating_add(50 * (self.pod.number - 1));
        self.pod.node.in_pod_range(family, host)
    }

    /// Where it keeps connections open.
    pub(super) fn lines(self) -> u16 {
        self.port - 1000
    }

    /// The name of its servers.
    pub(super) fn name(self) -> String {
        format!("{}-{}", self.pod.name(), self.port)
    }
}

/// The state of an endpoint in the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// A probe failed.
    Unready,
    /// It is about to end, and still answers.
    Terminating,
}

/// The zone in an endpoint's hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hints {
    None,
    Own,
    /// The other node's.
    Swapped,
}

impl Hints {
    fn text(self, node: Node) -> String {
        let zone = match self {
            Self::None => return String::new(),
            Self::Own => node.zone(),
            Self::Swapped => node.other().zone(),
        };
        format!(", hints: {{forZones: [{{name: {zone}}}]}}")
    }
}

/// The slices of one Service: one for each port and family, because all endpoints of a slice have the
/// same ports.
pub(super) fn slices(service: &str, endpoints: &BTreeMap<Endpoint, State>, hints: Hints) -> String {
    let mut text = String::new();
    let mut by_port: BTreeMap<u16, Vec<(Endpoint, State)>> = BTreeMap::new();
    for (endpoint, state) in endpoints {
        let same = by_port.entry(endpoint.port).or_default();
        same.push((*endpoint, *state));
    }
    for (port, endpoints) in by_port {
        for family in Family::ALL {
            let name = format!("{service}-{port}-{}", family.to_string().to_lowercase());
            let lines = port - 1000;
            let _infallible = write!(
                text,
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: {service}}}}}\naddressType: {family}\nports:\n- {{name: http, protocol: TCP, port: {port}}}\n- {{name: lines, protocol: TCP, port: {lines}}}\nendpoints:\n"
            );
            for (endpoint, state) in &endpoints {
                let pod = endpoint.pod;
                let (ready, serving) = (*state == State::Ready, *state != State::Unready);
                let terminating = *state == State::Terminating;
                let _infallible = writeln!(
                    text,
                    "- {{addresses: [\"{}\"], nodeName: {}, conditions: {{ready: {ready}, serving: {serving}, terminating: {terminating}}}{}}}",
                    endpoint.address(family),
                    pod.node.name(),
                    hints.text(pod.node)
                );
            }
        }
    }
    text
}
