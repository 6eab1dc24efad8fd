//! Connections outlive what happens to their endpoint's place in the cluster: it stops being ready,
//! leaves the slices and comes back, loses all others, while agents are killed; they end when their
//! endpoint is gone for good, or their Service.

mod endings;
mod rolling;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::files::{CLUSTER, DRAINING};
use crate::harness::{self, clients_of};
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::line::{self, Line};
use crate::waits::ANSWER;
use crate::witness::{self, VirtualServer};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "draining",
    shows: "connections that live through all that happens to endpoints and agents, and how others end",
    run,
};

/// Who calls.
const CLIENTS: [Resident; 3] = clients_of(Node::A);
/// Who answers.
const BACKENDS: [Pod; 4] = [
    Node::A.pod(1),
    Node::A.pod(2),
    Node::B.pod(1),
    Node::B.pod(2),
];
/// Where pods keep connections open.
const LINES: u16 = 7070;
/// How long the Service's connections may go on when their endpoint is gone; in the manifest.
const LONG: &str = "10m";

/// What the slices say of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// It lives and takes nobody: a probe failed.
    Unready,
    /// It is in no slice.
    Gone,
}

/// A connection that a client holds.
struct Call {
    client: Resident,
    family: Family,
    pod: String,
    line: Line,
}

impl Call {
    fn name(&self) -> String {
        format!(
            "{} -> {} over {}",
            self.client.name(),
            self.pod,
            self.family
        )
    }
}

/// What the manifests say, and the connections that are open.
struct Open {
    service: String,
    endpoints: BTreeMap<Pod, State>,
    calls: Vec<Call>,
}

type Lab<'a> = harness::Lab<'a, Open>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let open = Open {
        service: stage.files.text(DRAINING)?,
        endpoints: BACKENDS.map(|pod| (pod, State::Ready)).into(),
        calls: Vec::new(),
    };
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(open);
    lab.serve_pods()?;
    for pod in BACKENDS {
        line::serve(lab.topology.of(Resident::Pod(pod))?, &pod.name(), LINES)?;
    }
    lab.write("nodes.yaml", &stage.files.text(CLUSTER[0])?)?;
    lab.write(SERVICE, &lab.state.service)?;
    lab.write(SLICES, &slices(&lab.state.endpoints)?)?;
    lab.start()?;
    lab.state.calls = lab.call_all()?;
    lab.run_parts(
        checks,
        &[
            ("endpoints that go and come back", rolling::run),
            ("how connections end", endings::run),
        ],
    )
}

const SERVICE: &str = "service.yaml";
const SLICES: &str = "slices.yaml";

/// Where clients reach the Service.
fn at(family: Family, port: u16) -> SocketAddr {
    match family {
        Family::IPv4 => ([10, 96, 3, 1], port).into(),
        Family::IPv6 => ([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x301], port).into(),
    }
}

/// Both slices of the Service.
fn slices(endpoints: &BTreeMap<Pod, State>) -> Result<String> {
    let mut text = String::new();
    for family in Family::ALL {
        writeln!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: calls-{}, namespace: shop, labels: {{kubernetes.io/service-name: calls}}}}\naddressType: {family}\nports:\n- {{name: http, protocol: TCP, port: 8080}}\n- {{name: lines, protocol: TCP, port: {LINES}}}\nendpoints:",
            family.to_string().to_lowercase(),
        )?;
        for (pod, state) in endpoints {
            let ready = *state == State::Ready;
            if *state != State::Gone {
                writeln!(
                    text,
                    "- {{addresses: [\"{}\"], nodeName: {}, conditions: {{ready: {ready}, serving: {ready}}}}}",
                    pod.address(family),
                    pod.node.name(),
                )?;
            }
        }
        if endpoints.values().all(|state| *state == State::Gone) {
            writeln!(text, "  []")?;
        }
    }
    Ok(text)
}

impl Lab<'_> {
    /// Lets the slices say this of an endpoint, and waits until both nodes follow.
    fn turn(&mut self, pod: Pod, state: State) -> Result<()> {
        self.turn_all(&[pod], state)
    }

    fn turn_all(&mut self, pods: &[Pod], state: State) -> Result<()> {
        let taken = |endpoints: &BTreeMap<Pod, State>| -> Vec<_> {
            let ready = endpoints
                .iter()
                .filter(|(_, state)| **state == State::Ready);
            ready.map(|(pod, _)| *pod).collect()
        };
        let endpoints = &mut self.state.endpoints;
        let before = taken(endpoints);
        for pod in pods {
            endpoints.insert(*pod, state);
        }
        let text = slices(endpoints)?;
        // No node hears of endpoints that change without being used before or after.
        if before == taken(endpoints) {
            return self.write(SLICES, &text);
        }
        self.put(SLICES, &text)
    }

    /// Connections of every client over both families to every backend.
    fn call_all(&self) -> Result<Vec<Call>> {
        let mut calls = Vec::new();
        for family in Family::ALL {
            for client in CLIENTS {
                // Round robin: as many in a row as there are backends reach each once.
                for _ in BACKENDS {
                    calls.push(self.call(client, family)?);
                }
            }
        }
        Ok(calls)
    }

    fn call(&self, client: Resident, family: Family) -> Result<Call> {
        let deadline = self.limit(ANSWER);
        let namespace = self.topology.of(client)?;
        let mut line = Line::open(namespace, at(family, 7000), deadline)?;
        let pod = line.name()?;
        Ok(Call {
            client,
            family,
            pod,
            line,
        })
    }

    /// The weight that a node's kernel gives a pod for lines; `None` when it is not there.
    fn weight(&self, node: Node, family: Family, pod: Pod) -> Result<Option<u32>> {
        let servers = witness::virtual_servers(&self.node(node)?)?;
        let key = VirtualServer {
            protocol: "TCP".to_owned(),
            address: at(family, 7000),
        };
        let address = SocketAddr::new(pod.address(family), LINES);
        Ok(servers
            .get(&key)
            .and_then(|held| held.get(&address).copied()))
    }

    /// Whether node-a, which all clients go through, gives a pod this weight in both families.
    fn has_weight(&self, pod: Pod, wanted: Option<u32>) -> Result<()> {
        for family in Family::ALL {
            let found = self.weight(Node::A, family, pod)?;
            ensure!(
                found == wanted,
                "{} has weight {found:?} over {family}, not {wanted:?}",
                pod.name()
            );
        }
        Ok(())
    }
}

/// Whether each of these connections carries a word there and back.
fn live(calls: &mut [Call]) -> Result<()> {
    ensure!(!calls.is_empty(), "there is no connection to look at");
    for call in calls {
        let name = call.name();
        call.line.lives().context(name)?;
    }
    Ok(())
}
