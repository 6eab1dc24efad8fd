//! Clients outside the cluster that connect to a Service repeatedly, each time with a new
//! connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::cluster::{AGNHOST, Cluster, image};
use super::network::addresses;
use crate::stage::Stage;

const NAMESPACE: &str = "load";
/// The port of the Service on each node.
const NODE_PORT: u16 = 30080;
/// Until a new Service answers on a node.
const NEW_SERVICE: Duration = Duration::from_secs(30);
const STARTED: Duration = Duration::from_secs(240);
/// Between two requests to a node.
const PAUSE: Duration = Duration::from_millis(100);
/// For one request: emulated machines are slow while pods start.
const ANSWER: Duration = Duration::from_secs(10);
/// Fewer requests show nothing.
const ENOUGH: usize = 100;

/// Clients at work.
#[derive(Debug)]
pub(super) struct Load {
    end: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Result<()>>>>,
}

impl Load {
    /// Starts a server on each node, a Service before them, and a client for each node's port.
    pub(super) fn start(stage: &Stage, cluster: &Cluster) -> Result<Self> {
        cluster.make_namespace(stage, NAMESPACE)?;
        cluster.plane.apply(&servers(cluster)?)?;
        cluster.plane.apply(&service(NODE_PORT).to_string())?;
        cluster.wait_for_pods(stage, NAMESPACE, STARTED)?;
        let limit = stage.waits.limit(ANSWER);
        let nodes = u8::try_from(cluster.node_names().count())?;
        // The first answer says that the Service is programmed.
        for number in 1..=nodes {
            stage
                .waits
                .eventually("a first answer", ANSWER, || ask(number, NODE_PORT, limit))?;
        }
        let end = Arc::<AtomicBool>::default();
        let begun = Instant::now();
        let client = |number| {
            let end = Arc::clone(&end);
            std::thread::spawn(move || {
                let mut all = Vec::new();
                while !end.load(Ordering::Relaxed) {
                    let at = begun.elapsed().as_secs_f64();
                    let asked = ask(number, NODE_PORT, limit);
                    all.push(asked.with_context(|| format!("node {number} at {at:.1} s")));
                    std::thread::sleep(PAUSE);
                }
                all
            })
        };
        let clients = (1..=nodes).map(client).collect();
        Ok(Self { end, clients })
    }

    /// Ends them; an error if a request failed, or if there were only a few.
    pub(super) fn finish(self, stage: &Stage) -> Result<()> {
        self.end.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.join().map_err(|_| anyhow!("a client panicked"))?);
        }
        let total = all.len();
        let failed: Vec<_> = all.into_iter().filter_map(Result::err).collect();
        stage
            .console
            .line(&format!("{total} requests, {} failed", failed.len()));
        ensure!(total > ENOUGH, "only {total} requests were made");
        let [first, last] = [failed.first(), failed.last()]
            .map(|error| error.map_or_else(String::new, |error| format!("{error:#}")));
        ensure!(
            failed.is_empty(),
            "{} of {total} failed, the first: {first}; the last: {last}",
            failed.len()
        );
        Ok(())
    }
}

/// Whether one more Service before the same servers, with this port on each node, answers on each of them.
pub(super) fn new_service_answers(stage: &Stage, cluster: &Cluster, port: u16) -> Result<()> {
    cluster.plane.apply(&service(port).to_string())?;
    let nodes = u8::try_from(cluster.node_names().count())?;
    let limit = stage.waits.limit(ANSWER);
    (1..=nodes).try_for_each(|number| {
        let asked = || ask(number, port, limit);
        let answer = stage.waits.eventually("an answer", NEW_SERVICE, asked);
        answer.with_context(|| format!("node {number}, port {port}"))
    })
}

fn ask(number: u8, port: u16, limit: Duration) -> Result<()> {
    let started = Instant::now();
    let [node, _] = addresses(number);
    let address = format!("{node}:{port}").parse()?;
    let mut stream = TcpStream::connect_timeout(&address, limit).context("connect")?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    read.with_context(|| format!("read after {} ms", started.elapsed().as_millis()))?;
    ensure!(answer.contains("server-"), "{answer:?} is not a server");
    Ok(())
}

fn servers(cluster: &Cluster) -> Result<String> {
    let image = image(AGNHOST)?;
    let pod = |node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("server-{node}"), "namespace": NAMESPACE, "labels": {"app": "server"}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "agnhost", "image": image, "args": ["netexec", "--http-port=8080"],
                    // Without it a container is ready before its program listens.
                    "readinessProbe": {"httpGet": {"path": "/hostname", "port": 8080}, "periodSeconds": 1},
                }],
            },
        })
    };
    let items: Vec<Value> = cluster.node_names().map(pod).collect();
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
}

fn service(port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("server-{port}"), "namespace": NAMESPACE},
        "spec": {
            "type": "NodePort", "selector": {"app": "server"},
            "ports": [{"port": 80, "targetPort": 8080, "nodePort": port}],
        },
    })
}
