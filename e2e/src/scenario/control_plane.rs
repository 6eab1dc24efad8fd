//! A real control plane creates EndpointSlices for pods, and recovers after each of its programs
//! was killed and restarted.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Checks, Scenario, Stage};
use crate::control_plane::kubelet::Kubelet;
use crate::control_plane::{ControlPlane, Options, Part, Reach};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "control-plane",
    shows: "a real API server and its controllers create slices for pods, and survive restarts",
    run,
};

const NODES: u8 = 2;
/// From a pod's creation until its address is in a slice, on hardware; measured: below a second.
const SLICE: Duration = Duration::from_secs(20);
const POD_ROOM: u32 = 200;
/// Pods of the Deployment below.
const CROWD: usize = 300;

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd}
spec:
  replicas: 300
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      containers: [{name: crowd, image: none}]
";

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut plane = ControlPlane::start(stage.waits, Options::default())?;
    checks.passed("etcd, the API server and the controllers serve");
    let kubeconfig = plane.kubeconfig(Reach::Here);
    let kubelet = Kubelet::start_with_nodes(&kubeconfig, NODES, POD_ROOM)?;
    plane.apply(SERVICE)?;
    for name in ["web-1", "web-2", "web-3"] {
        plane.apply(&pod(name))?;
    }
    checks.check(
        "three pods run and are in the slices of both families",
        slices_hold_pods(stage, &plane, &kubelet, 3),
    );
    let mut count = 3;
    for part in Part::ALL {
        plane.restart(part)?;
        plane.wait_ready()?;
        count += 1;
        plane.apply(&pod(&format!("web-{count}")))?;
        checks.check(
            &format!(
                "after {} was killed and started, one more pod joins",
                part.name()
            ),
            slices_hold_pods(stage, &plane, &kubelet, count),
        );
    }
    checks.check(
        "a deleted pod terminates, serves until it ends, and leaves",
        leaving(stage, &plane, &kubelet, count),
    );
    checks.check(
        "many pods start while every program is killed and started",
        crowd(stage, &mut plane, &kubelet, count - 1),
    );
    plane.check_running()
}

fn pod(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  containers: [{{name: web, image: none, ports: [{{containerPort: 8080}}]}}]
"
    )
}

/// Waits until all pods run and the slices of both families have exactly their addresses, ready.
fn slices_hold_pods(
    stage: &Stage,
    plane: &ControlPlane,
    kubelet: &Kubelet,
    count: usize,
) -> Result<()> {
    kubelet.wait_running(stage.waits, count, SLICE)?;
    let wanted: BTreeSet<String> = plane
        .kubectl(&[
            "get",
            "pods",
            "-o",
            "jsonpath={.items[*].status.podIPs[*].ip}",
        ])?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    ensure!(
        wanted.len() == 2 * count,
        "{count} pods have the addresses {wanted:?}"
    );
    let what = "the slices to have the addresses of all pods";
    let held = stage.waits.eventually(what, SLICE, || {
        let seen = endpoints(plane)?;
        let ready = seen.iter().filter(|endpoint| endpoint.ready);
        let ready: BTreeSet<String> = ready.map(|endpoint| endpoint.address.clone()).collect();
        ensure!(
            ready == wanted && seen.len() == wanted.len(),
            "they hold {seen:?}, not {wanted:?}"
        );
        Ok(())
    });
    held.map_err(|error| plane.with_logs(error))
}

/// Deletes a pod and observes its endpoints until they are gone.
fn leaving(stage: &Stage, plane: &ControlPlane, kubelet: &Kubelet, count: usize) -> Result<()> {
    kubelet.set_grace(stage.waits.limit(Duration::from_secs(2)));
    plane.kubectl(&["delete", "pod", "web-1", "--wait=false"])?;
    let what = "endpoints of both families that terminate and serve";
    stage.waits.eventually(what, SLICE, || {
        let seen = endpoints(plane)?;
        let leaving = seen
            .iter()
            .filter(|endpoint| endpoint.terminating && endpoint.serving);
        ensure!(leaving.count() == 2, "the slices have {seen:?}");
        Ok(())
    })?;
    slices_hold_pods(stage, plane, kubelet, count - 1)
}

/// Kubernetes' controllers create pods of a Deployment and the kubelet runs them; neither loses one
/// while their servers restart.
fn crowd(stage: &Stage, plane: &mut ControlPlane, kubelet: &Kubelet, others: usize) -> Result<()> {
    plane.apply(DEPLOYMENT)?;
    for part in [Part::ApiServer, Part::Etcd, Part::ControllerManager] {
        plane.restart(part)?;
        plane.wait_ready()?;
    }
    kubelet
        .wait_running(stage.waits, others + CROWD, SLICE * 3)
        .map_err(|error| plane.with_logs(error))?;
    plane.kubectl(&["scale", "deployment", "crowd", "--replicas=0"])?;
    kubelet.wait_running(stage.waits, others, SLICE * 3)
}

#[derive(Debug)]
struct Endpoint {
    address: String,
    ready: bool,
    serving: bool,
    terminating: bool,
}

fn endpoints(plane: &ControlPlane) -> Result<Vec<Endpoint>> {
    let label = "kubernetes.io/service-name=web";
    let text = plane.kubectl(&["get", "endpointslices", "-l", label, "-o", "json"])?;
    let list: Value = serde_json::from_str(&text).context("read kubectl's JSON")?;
    let slices = list["items"]
        .as_array()
        .context("kubectl printed no list")?;
    let all = slices
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array());
    let endpoints = all.flatten().map(|endpoint| {
        let condition = |name: &str| endpoint["conditions"][name].as_bool() == Some(true);
        Endpoint {
            address: endpoint["addresses"][0]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            ready: condition("ready"),
            serving: condition("serving"),
            terminating: condition("terminating"),
        }
    });
    Ok(endpoints.collect())
}
