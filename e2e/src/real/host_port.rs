//! A pod with hostPort 443 takes no connections of the API server's Service, which has the same port: S-212. None of
//! Kubernetes' own tests covers this.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cluster::{AGNHOST, Cluster, image};
use super::network::addresses;
use crate::checks::Checks;
use crate::stage::Stage;

const NAMESPACE: &str = "host-port";
/// The Service `kubernetes`.
const API_SERVER: &str = "https://10.96.0.1/version";
/// For containers to start in emulated machines.
const STARTED: Duration = Duration::from_secs(240);
/// For one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Clients: name, node, and whether it is on the node's own network.
const CLIENTS: [(&str, u8, bool); 3] = [
    ("pod-1", 1, false),
    ("node-1", 1, true),
    ("pod-2", 2, false),
];

pub(super) fn run(stage: &Stage, cluster: &Cluster, checks: &mut Checks) -> Result<()> {
    stage.console.heading("a pod with hostPort 443");
    cluster.make_namespace(stage, NAMESPACE)?;
    cluster.plane.apply(&objects()?)?;
    cluster.wait_for_pods(stage, NAMESPACE, STARTED)?;
    checks.check(
        "from outside, port 443 of its node is the pod's",
        outside(stage),
    );
    for (client, _, _) in CLIENTS {
        let asked = api_server(stage, cluster, client);
        checks.check(
            &format!("{client} reaches the API server by its Service (S-212)"),
            asked,
        );
    }
    cluster
        .plane
        .kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"])
        .map(drop)
}

fn api_server(stage: &Stage, cluster: &Cluster, client: &str) -> Result<()> {
    stage.waits.eventually("an answer", ANSWER, || {
        let words = [
            "exec", client, "-n", NAMESPACE, "--", "curl", "-sk", "-m", "10", API_SERVER,
        ];
        let said = cluster.plane.kubectl(&words)?;
        ensure!(
            said.contains("gitVersion"),
            "{said:?} is not the API server"
        );
        Ok(())
    })
}

fn outside(stage: &Stage) -> Result<()> {
    let [node, _] = addresses(1);
    stage.waits.eventually("an answer", ANSWER, || {
        let mut stream = TcpStream::connect(format!("{node}:443")).context("connect")?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.ends_with("server"), "{answer:?} is not the pod");
        Ok(())
    })
}

fn objects() -> Result<String> {
    let image = image(AGNHOST)?;
    let pod = |name: &str, node: u8, on_node: bool, args: Value, ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "nodeName": super::node_files::name(node), "hostNetwork": on_node,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "agnhost", "image": image, "args": args, "ports": ports}],
            },
        })
    };
    let args = json!(["netexec", "--http-port=8080"]);
    let ports = json!([{"containerPort": 8080, "hostPort": 443}]);
    let mut items = vec![pod("server", 1, false, args, ports)];
    let clients = CLIENTS.iter();
    items.extend(
        clients
            .map(|(name, node, on_node)| pod(name, *node, *on_node, json!(["pause"]), json!([]))),
    );
    Ok(serde_json::to_string(
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    )?)
}
