//! Connections survive changes of their endpoint: it becomes not ready, leaves the slices and
//! returns, or is the last one, while agents are killed. They end when their endpoint or their
//! Service is gone for good.

mod endings;
mod rolling;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::dataplane::Dataplane;
use crate::files::{CLUSTER, DRAINING};
use crate::harness::{self, clients_of};
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::line::{self, Line};
use crate::waits::ANSWER;
use crate::witness::VirtualServer;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "draining",
    shows: "connections survive changes of endpoints and restarts of agents; how the others end",
    run,
};

/// The clients.
const CLIENTS: [Resident; 3] = clients_of(Node::A);
/// The endpoints.
const BACKENDS: [Pod; 4] = [
    Node::A.pod(1),
    Node::A.pod(2),
    Node::B.pod(1),
    Node::B.pod(2),
];
/// Where pods keep connections open.
const LINES: u16 = 7070;
/// Drain deadline of the Service, as in the manifest.
const LONG: &str = "10m";

/// The state of an endpoint in the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// It runs but takes no new connections: a probe failed.
    Unready,
    /// It is in no slice.
    Gone,
}

/// An open connection of a client.
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

/// The content of the manifests, and the open connections.
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
    serve(&mut lab)?;
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

fn serve<S>(lab: &mut harness::Lab<'_, S>) -> Result<()> {
    lab.serve_pods()?;
    for pod in BACKENDS {
        line::serve(lab.topology.of(Resident::Pod(pod))?, &pod.name(), LINES)?;
    }
    Ok(())
}

/// Serves the Services of cluster.yaml, and the Service of this scenario, whose connections stay open.
pub(super) fn serve_beside_cluster<S>(lab: &mut harness::Lab<'_, S>, stage: &Stage) -> Result<()> {
    serve(lab)?;
    lab.serve_nodes()?;
    lab.add_files(CLUSTER)?;
    lab.write(SERVICE, &stage.files.text(DRAINING)?)?;
    lab.write(
        SLICES,
        &slices(&BACKENDS.map(|pod| (pod, State::Ready)).into())?,
    )
}

const SERVICE: &str = "calls.yaml";
const SLICES: &str = "calls-slices.yaml";

/// Where clients reach the Service.
pub(super) fn at(family: Family, port: u16) -> SocketAddr {
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
    /// Sets the state of an endpoint in the slices, and waits until both nodes follow.
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
        // Endpoints that are used neither before nor after a change cause no update on any node.
        if before == taken(endpoints) {
            return self.write(SLICES, &text);
        }
        self.put(SLICES, &text)
    }

    /// Connections of every client over both families to every ready endpoint.
    fn call_all(&self) -> Result<Vec<Call>> {
        let mut calls = Vec::new();
        for family in Family::ALL {
            for client in CLIENTS {
                calls.extend(self.call_each(client, family)?.into_values());
            }
        }
        Ok(calls)
    }

    /// By the name of the endpoint.
    fn call_each(&self, client: Resident, family: Family) -> Result<BTreeMap<String, Call>> {
        let states = self.state.endpoints.values();
        let ready = states.filter(|state| **state == State::Ready).count();
        let mut calls = BTreeMap::new();
        // Round robin: as many in a row as there are endpoints reach each once. Chosen at random, all of four are
        // reached within 64 but once in 25 million times.
        let most = match self.stage.dataplane {
            Dataplane::Ipvs => ready,
            Dataplane::Nftables => 16 * ready,
        };
        for _ in 0..most {
            if calls.len() == ready {
                break;
            }
            let call = self.call(client, family)?;
            calls.insert(call.pod.clone(), call);
        }
        let (name, met) = (client.name(), calls.len());
        ensure!(
            met == ready,
            "{name} reached {met} of {ready} endpoints over {family}"
        );
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

    /// The weight of a pod for the port `lines` in a node's kernel; `None` if it is missing.
    fn weight(&self, node: Node, family: Family, pod: Pod) -> Result<Option<u32>> {
        let servers = self.cluster.virtual_servers(node)?;
        let key = VirtualServer {
            protocol: "TCP".to_owned(),
            address: at(family, 7000),
        };
        let address = SocketAddr::new(pod.address(family), LINES);
        Ok(servers
            .get(&key)
            .and_then(|held| held.get(&address).copied()))
    }

    /// The weight of a backend that takes no new connections: IPVS keeps it for the existing ones, connection tracking
    /// needs none.
    fn resting(&self) -> Option<u32> {
        match self.stage.dataplane {
            Dataplane::Ipvs => Some(0),
            Dataplane::Nftables => None,
        }
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

/// Checks that each of these connections echoes.
fn live(calls: &mut [Call]) -> Result<()> {
    ensure!(!calls.is_empty(), "there is no connection to look at");
    for call in calls {
        let name = call.name();
        call.line.lives().context(name)?;
    }
    Ok(())
}
