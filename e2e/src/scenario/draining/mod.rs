//! Connections outlive what happens to their endpoint's place in the cluster: it stops being ready,
//! leaves the slices and comes back, loses all others, while agents are killed; they end when their
//! endpoint is gone for good, or their Service.

mod endings;
mod rolling;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::{CLUSTER, DRAINING};
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::line::{self, Line};
use crate::traffic::server::Server;
use crate::witness::{self, VirtualServer};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "draining",
    shows: "connections that live through all that happens to endpoints and agents, and how others end",
    run,
};

/// Who calls.
const CLIENTS: [Resident; 3] = [
    Resident::Pod(Pod {
        node: Node::A,
        number: 3,
    }),
    Resident::Node(Node::A),
    Resident::Outside,
];
/// Who answers.
const BACKENDS: [Pod; 4] = [
    pod(Node::A, 1),
    pod(Node::A, 2),
    pod(Node::B, 1),
    pod(Node::B, 2),
];
/// Where pods keep connections open.
const LINES: u16 = 7070;
/// How long the Service's connections may go on when their endpoint is gone; in the manifest.
const LONG: &str = "10m";

const fn pod(node: Node, number: u8) -> Pod {
    Pod { node, number }
}

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

/// The lab with its programs and what the manifests say.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    service: String,
    endpoints: BTreeMap<Pod, State>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    for pod in BACKENDS {
        line::serve(topology.of(Resident::Pod(pod))?, &pod.name(), LINES)?;
    }
    let service = stage.files.text(DRAINING)?;
    let endpoints = BACKENDS.map(|pod| (pod, State::Ready)).into();
    let manifests = [
        ("nodes.yaml".to_owned(), stage.files.text(CLUSTER[0])?),
        (SERVICE.to_owned(), service.clone()),
        (SLICES.to_owned(), slices(&endpoints)?),
    ];
    let mut scene = Scene {
        stage,
        topology: &topology,
        service,
        endpoints,
        cluster: Cluster::new(&topology, stage.waits, manifests)?,
    };
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    let mut calls = scene.call_all()?;
    rolling::run(&mut scene, checks, &mut calls)?;
    endings::run(&mut scene, checks, calls)
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

impl Scene<'_> {
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
        let before = taken(&self.endpoints);
        for pod in pods {
            self.endpoints.insert(*pod, state);
        }
        let text = slices(&self.endpoints)?;
        // No node hears of endpoints that change without being used before or after.
        let follows = before != taken(&self.endpoints);
        self.write(SLICES, &text, follows)
    }

    fn write(&mut self, name: &str, text: &str, follows: bool) -> Result<()> {
        let mut before = BTreeMap::new();
        for node in Node::ALL {
            before.insert(node, self.cluster.applied(node)?.len());
        }
        self.cluster.write_manifest(name, text)?;
        if follows {
            for (node, batches) in before {
                self.cluster.wait_applied(node, batches)?;
            }
        }
        Ok(())
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
        let deadline = self.stage.waits.limit(Duration::from_secs(3));
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
        let servers = witness::virtual_servers(self.topology.node(node)?)?;
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
