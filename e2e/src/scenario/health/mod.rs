//! What balancers and scrapers are told of a node by its real agent: health checks of Services,
//! `/healthz`, `/livez` and metrics, through node addresses and balancers' addresses, over both families.

mod node;
mod ports;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::{CLUSTER, HEALTH};
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::http::{self, Response};
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "health",
    shows: "balancers and scrapers learn what the node has in force, and nothing else disturbs that",
    run,
};

/// The node that is asked.
const NODE: Node = Node::A;
/// The health check port of `shop/counted`.
const PORT: u16 = 32_110;
const HEALTHZ: u16 = 10_256;
const METRICS: u16 = 10_249;
/// A node is late after twice this.
const PERIOD: Duration = Duration::from_secs(5);
/// From a change of readiness to the answer of the port.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The same for everything that is not measured.
const SOON: Duration = Duration::from_secs(10);

/// The lab with what runs in it.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let texts = [
        ("nodes.yaml".to_owned(), stage.files.text(CLUSTER[0])?),
        ("services.yaml".to_owned(), stage.files.text(HEALTH)?),
        ("settings.yaml".to_owned(), settings(HEALTHZ, METRICS)),
        ("endpoints.yaml".to_owned(), endpoints(&[1, 2])),
        ("other.yaml".to_owned(), other(0)),
    ];
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
    };
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    let parts: [fn(&mut Scene<'_>, &mut Checks) -> Result<()>; 9] = [
        ports::answered,
        ports::readiness,
        ports::undisturbed,
        ports::firewall,
        ports::taken,
        node::metrics,
        node::tainted,
        node::without_controller,
        node::late,
    ];
    for part in parts {
        part(&mut scene, checks).map_err(|error| scene.cluster.with_logs(&error))?;
        scene.cluster.check_running()?;
    }
    // Last, because they take away what the others ask.
    for part in [node::moved, ports::moved] {
        part(&mut scene, checks).map_err(|error| scene.cluster.with_logs(&error))?;
    }
    Ok(())
}

fn settings(healthz: u16, metrics: u16) -> String {
    let period = PERIOD.as_secs();
    format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec:\n  settings:\n    sync: {{period: {period}s}}\n    healthz: {{port: {healthz}}}\n    \
         metrics: {{port: {metrics}}}\n"
    )
}

/// Slices of `shop/counted`: all pods of the node and one of the other; of ours these are ready over
/// IPv4, and over IPv6 the first of them.
fn endpoints(ready: &[u8]) -> String {
    let mut text = String::new();
    for family in Family::ALL {
        let count = match family {
            Family::IPv4 => ready.len(),
            Family::IPv6 => ready.len().min(1),
        };
        let ready = &ready[..count];
        let _: std::fmt::Result = write!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  {{name: \
             counted-{name}, namespace: shop, labels: {{kubernetes.io/service-name: counted}}}}\n\
             addressType: {family}\nports:\n- {{name: http, protocol: TCP, port: 8080}}\nendpoints:\n",
            name = family.to_string().to_lowercase(),
        );
        for pod in Pod::all().filter(|pod| pod.node == NODE || pod.number == 1) {
            let (address, node) = (pod.address(family), pod.node.name());
            let ready = pod.node != NODE || ready.contains(&pod.number);
            text += &format!(
                "- {{addresses: [\"{address}\"], nodeName: {node}, conditions: {{ready: {ready}}}}}\n"
            );
        }
    }
    text
}

/// Another Service, which has nothing to do with `shop/counted`.
fn other(round: usize) -> String {
    let pod = 11 + round % 3;
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: other, namespace: shop}}\nspec:\n  \
         clusterIP: 10.96.4.2\n  clusterIPs: [10.96.4.2]\n  ports:\n  - {{name: http, protocol: TCP, \
         port: 80, targetPort: 8080}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata:\n  {{name: other, namespace: shop, labels: {{kubernetes.io/service-name: other}}}}\n\
         addressType: IPv4\nports:\n- {{name: http, protocol: TCP, port: 8080}}\nendpoints:\n\
         - {{addresses: [\"10.244.1.{pod}\"], nodeName: node-a, conditions: {{ready: true}}}}\n"
    )
}

/// The balancer's address of `shop/counted`.
fn balancer(family: Family) -> IpAddr {
    match family {
        Family::IPv4 => [203, 0, 113, 71].into(),
        Family::IPv6 => [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 0x71].into(),
    }
}

/// What a port has to say.
#[derive(Debug, Clone, Copy)]
struct Says {
    status: u16,
    count: u32,
    healthy: bool,
}

/// Whether a response is that of the health check port of `shop/counted`, whole (S-137, S-138).
fn says(response: &Response, says: Says) -> Result<()> {
    let Says {
        status,
        count,
        healthy,
    } = says;
    let body = format!(
        "{{\"service\":{{\"namespace\":\"shop\",\"name\":\"counted\"}},\"localEndpoints\":{count},\
         \"serviceProxyHealthy\":{healthy}}}"
    );
    let weight = format!("x-load-balancing-endpoint-weight: {count}\r\n");
    let right = response.status == status && response.body == body;
    ensure!(
        right && response.head.contains(&weight),
        "{} {} {}",
        response.status,
        response.head,
        response.body
    );
    Ok(())
}

impl Scene<'_> {
    fn get(&self, from: Resident, target: SocketAddr, path: &str) -> Result<Response> {
        let deadline = self.stage.waits.limit(Duration::from_secs(3));
        let from = self.topology.of(from)?;
        from.inside(|| http::get(target, path, deadline))
    }

    /// What the node says of itself at this path.
    fn node_says(&self, path: &str) -> Result<Response> {
        let target = (NODE.address(Family::IPv4), HEALTHZ).into();
        self.get(Resident::Outside, target, path)
    }

    /// What the health check port of `shop/counted` says over a family.
    fn port_says(&self, family: Family) -> Result<Response> {
        let target = (NODE.address(family), PORT).into();
        self.get(Resident::Outside, target, "/")
    }

    fn tool(&self, program: Program, line: &str) -> Result<String> {
        let words: Vec<_> = line.split(' ').collect();
        self.topology.node(NODE)?.inside(|| program.run(&words))
    }

    /// How much the agent has said until now.
    fn mark(&self) -> Result<usize> {
        Ok(self.cluster.said(NODE)?.len())
    }

    /// What it said behind a mark.
    fn said(&self, mark: usize) -> Result<String> {
        let said = self.cluster.said(NODE)?;
        Ok(said.get(mark..).unwrap_or_default().to_owned())
    }

    /// Waits until this succeeds; its last error is told.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Self) -> Result<()>,
    ) -> Result<()> {
        let mut last = String::new();
        let waits = self.stage.waits;
        let ask = || {
            self.cluster.check_running()?;
            match holds(self) {
                Ok(()) => Ok(Some(())),
                Err(error) => {
                    last = format!("{error:#}");
                    Ok(None)
                }
            }
        };
        let step = Duration::from_millis(20);
        let waited = waits.until(what, limit, step, ask, || "see below".to_owned());
        waited.map_err(|error| error.context(last))
    }
}

/// Names and types of all metrics in a text.
fn types(text: &str) -> BTreeSet<&str> {
    let types = text.lines().map(|line| line.strip_prefix("# TYPE "));
    types.flatten().collect()
}
