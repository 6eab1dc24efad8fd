//! Nodes simulated by kwok in three zones, with the real scheduler and DaemonSet controller. The chart is installed,
//! and two controllers run with its arguments and RBAC permissions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use portolan_agent::receive::{Address, Addresses};
use serde_json::{Value, json};

use super::super::release::{NAMESPACE, Release, arguments};
use super::fleet::{Fleet, Ways};
use super::{STEP, TRACK, WAVE};
use crate::control_plane::kubelet::LabNode;
use crate::control_plane::{Options, Reach};
use crate::harness::Environment;
use crate::logs;
use crate::program::{Program, Running};
use crate::stage::Stage;

/// Number of nodes in the long and in the short form.
const NODES: [u8; 2] = [60, 30];
/// Maximum number of nodes without an agent at one time.
pub(super) const MAX_UNAVAILABLE: usize = 6;
/// A soak time that does not end while the scenario waits.
const WATCHED: [&str; 2] = ["--set", "config.spec.rollout.soak=10m"];
/// Until pods of controllers run.
const RUNNING: Duration = Duration::from_secs(60);
/// Until the certificate is there.
const CERTIFIED: Duration = Duration::from_secs(60);

/// Everything that runs; dropping it ends everything.
pub(super) struct Lab<'a> {
    // Fields are dropped in this order: dependents first.
    pub(super) fleet: Fleet,
    controllers: BTreeMap<String, Running>,
    _nodes: [Running; 2],
    pub(super) release: Release,
    pub(super) stage: &'a Stage,
    /// Number of nodes at the start.
    pub(super) size: u8,
}

/// A pod of an agent.
#[derive(Debug, Clone)]
pub(super) struct AgentPod {
    pub(super) name: String,
    pub(super) node: String,
    /// The tag of its image.
    pub(super) tag: String,
    pub(super) track: String,
    pub(super) ready: bool,
}

/// State of a rollout, and the agent pods.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: Value,
    pub(super) pods: Vec<AgentPod>,
}

impl Seen {
    pub(super) fn text(&self, field: &str) -> &str {
        self.status[field].as_str().unwrap_or_default()
    }

    /// Nodes with an agent of this image that is ready.
    pub(super) fn with(&self, tag: &str) -> BTreeSet<&str> {
        let with = self.pods.iter().filter(|pod| pod.ready && pod.tag == tag);
        with.map(|pod| pod.node.as_str()).collect()
    }

    /// The image of each node's agent.
    pub(super) fn tags(&self) -> BTreeMap<String, String> {
        let ready = self.pods.iter().filter(|pod| pod.ready);
        let tags = ready.map(|pod| (pod.node.clone(), pod.tag.clone()));
        tags.collect()
    }

    pub(super) fn pod(&self, node: &str) -> Option<&AgentPod> {
        self.pods.iter().find(|pod| pod.ready && pod.node == node)
    }
}

impl<'a> Lab<'a> {
    /// Starts everything, and waits for nothing but the controllers.
    pub(super) fn start(stage: &'a Stage) -> Result<Self> {
        let mut options = Options::default();
        options.controllers.push("daemonset-controller".into());
        let chart = stage.files.beside("charts/portolan")?;
        let release = Release::start(stage, chart, options)?;
        let stages = stage.files.beside("e2e/api/kwok.yaml")?;
        let stages = stages.display().to_string();
        let plane = &release.plane;
        let kwok = plane.beside(
            Program::Kwok,
            &["--config", &stages, "--manage-all-nodes=true"],
        )?;
        let scheduler = plane.beside(
            Program::KubeScheduler,
            &["--leader-elect=false", "--secure-port=0"],
        )?;
        let size = NODES[usize::from(!stage.long)];
        let nodes: Vec<_> = (1..=size).map(node).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes});
        plane.apply(&list.to_string())?;
        let taint = "node.kubernetes.io/not-ready:NoSchedule-";
        plane.kubectl(&["taint", "nodes", "--all", taint])?;
        release.install(&texts(&values("0.1.0")))?;
        let (controllers, addresses) = controllers(stage, &release)?;
        let ways = Ways {
            addresses: Addresses::Listed(addresses.into_iter().map(Address::Tcp).collect()),
            ca: authority(stage, &release)?,
            folder: release.file("."),
        };
        let fleet = Fleet::start(&release.plane.kubeconfig(Reach::Here), ways)?;
        Ok(Self {
            fleet,
            controllers,
            _nodes: [kwok, scheduler],
            release,
            stage,
            size,
        })
    }

    /// Number of nodes at the start.
    pub(super) fn nodes(&self) -> usize {
        self.size.into()
    }

    /// Adds a node.
    pub(super) fn join(&self, number: u8) -> Result<String> {
        let node = node(number);
        self.release.plane.apply(&node.to_string())?;
        let name = node["metadata"]["name"].as_str();
        let name = name.context("it has no name")?.to_owned();
        let taint = "node.kubernetes.io/not-ready:NoSchedule-";
        self.release
            .plane
            .kubectl(&["taint", "nodes", &name, taint])?;
        Ok(name)
    }

    /// Requests another agent image with a helm upgrade, as an operator does.
    pub(super) fn change(&self, tag: &str) -> Result<()> {
        self.change_with(tag, &[])
    }

    /// As [`Self::change`], with more values.
    pub(super) fn change_with(&self, tag: &str, more: &[&str]) -> Result<()> {
        let values = values(tag);
        let words = [&texts(&values), more].concat();
        self.release.upgrade(&words).map(drop)
    }

    /// As [`Self::change_with`], and waits until the canary has the change. It is then watched for a long soak time,
    /// so what is checked cannot change meanwhile.
    pub(super) fn change_canary(&self, tag: &str, more: &[&str]) -> Result<Seen> {
        self.change_with(tag, &[more, &WATCHED].concat())?;
        self.until("the canary to be watched", STEP, |seen| {
            seen.text("wave") == "canary" && seen.text("phase") == "Soaking"
        })
    }

    /// Lets the next wave begin, and waits until all its nodes have the change, which are then watched like the
    /// canary.
    pub(super) fn next_wave(&self, now: &str, tag: &str, more: &[&str]) -> Result<Seen> {
        self.change_with(tag, more)?;
        let what = format!("the wave after {now}");
        self.until(&what, WAVE, |seen| seen.text("wave") != now)?;
        self.change_with(tag, &[more, &WATCHED].concat())?;
        self.until(&format!("{what} to be watched"), WAVE, |seen| {
            seen.text("wave") != now && seen.text("phase") == "Soaking"
        })
    }

    /// Runs `kubectl proxyplan rollout`.
    pub(super) fn rollout(&self, word: &str) -> Result<String> {
        let config = self.release.plane.kubeconfig(Reach::Here);
        let config = config.display().to_string();
        Program::ProxyPlan.run(&["rollout", word, "--kubeconfig", &config])
    }

    pub(super) fn look(&self) -> Result<Seen> {
        let get = |words: &[&str]| -> Result<Value> {
            let words = [&["get"], words, &["-o", "json"]].concat();
            Ok(serde_json::from_str(&self.release.plane.kubectl(&words)?)?)
        };
        // Read the status first: nodes may be ahead of it, but never behind it for long.
        let configs = get(&["proxyconfigs"])?;
        let pods = get(&["pods", "-n", NAMESPACE, "-l", TRACK])?;
        let pods = pods["items"].as_array().context("there is no list")?;
        Ok(Seen {
            status: configs["items"][0]["status"]["rollout"].clone(),
            pods: pods.iter().map(pod).collect(),
        })
    }

    /// The version of each node's agent, as `kubectl proxyplan top` lists it.
    pub(super) fn versions(&self) -> Result<BTreeMap<String, String>> {
        let config = self.release.plane.kubeconfig(Reach::Here);
        let config = config.display().to_string();
        let words = ["top", "-o", "json", "--kubeconfig", &config];
        let rows: Value = serde_json::from_str(&Program::ProxyPlan.run(&words)?)?;
        let rows = rows.as_array().context("there is no list")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |row: &Value| (text(&row["node"]), text(&row["agentVersion"]));
        Ok(rows.iter().map(one).collect())
    }

    /// The labelled nodes and their track labels.
    pub(super) fn labelled(&self) -> Result<BTreeMap<String, String>> {
        let words = ["get", "nodes", "-l", TRACK, "-o", "json"];
        let nodes: Value = serde_json::from_str(&self.release.plane.kubectl(&words)?)?;
        let nodes = nodes["items"].as_array().context("there is no list")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |node: &Value| {
            let metadata = &node["metadata"];
            (text(&metadata["name"]), text(&metadata["labels"][TRACK]))
        };
        Ok(nodes.iter().map(one).collect())
    }

    /// Waits until `is` holds.
    pub(super) fn until(
        &self,
        what: &str,
        limit: Duration,
        is: impl Fn(&Seen) -> bool,
    ) -> Result<Seen> {
        let waits = self.stage.waits;
        let seen = waits.eventually(what, limit, || {
            let seen = self.look()?;
            ensure!(is(&seen), "it is not so");
            Ok(seen)
        });
        seen.map_err(|error| self.with_logs(error))
    }

    /// Details for a failure message.
    fn summary(&self) -> String {
        let mut text = match self.look() {
            Err(error) => format!("{error:#}\n"),
            Ok(seen) => {
                let mut tags: BTreeMap<_, usize> = BTreeMap::new();
                for pod in &seen.pods {
                    *tags.entry((&pod.tag, &pod.track, pod.ready)).or_default() += 1;
                }
                let mut status = seen.status.clone();
                status["history"] = Value::Null;
                format!("{status}\n  pods by image, DaemonSet, readiness: {tags:?}\n")
            }
        };
        let planned = self.fleet.planned();
        text += &format!("  {planned} have a plan; {:?}", self.fleet.trouble());
        for name in self.controllers.keys() {
            let said = std::fs::read_to_string(self.release.file(name)).unwrap_or_default();
            text += &logs::tail(name, &said, 8);
        }
        text
    }

    /// Kills the leader.
    pub(super) fn kill_leader(&mut self) -> Result<()> {
        let leader = self.release.plane.kubectl_line(&format!(
            "get lease portolan-controller -n {NAMESPACE} -o jsonpath={{.spec.holderIdentity}}"
        ))?;
        let running = self.controllers.remove(&leader);
        running
            .with_context(|| format!("{leader} leads and does not run here"))?
            .kill()
    }
}

impl Environment for Lab<'_> {
    fn check_running(&self) -> Result<()> {
        self.release.plane.check_running()?;
        for (name, controller) in &self.controllers {
            if let Some(status) = controller.ended()? {
                bail!("controller {name} ended with {status}");
            }
            let said = std::fs::read_to_string(self.release.file(name))?;
            ensure!(!said.contains("panicked"), "controller {name} panicked");
        }
        Ok(())
    }

    fn with_logs(&self, error: Error) -> Error {
        logs::attach(error, || format!("\n{}", self.summary()))
    }
}

/// Helm values in addition to the required ones.
fn values(tag: &str) -> [String; 4] {
    let rollout = json!({
        "soak": "2s", "maxParallel": "20%", "maxUnavailable": MAX_UNAVAILABLE,
        // All of this runs on two processors; a gate on latency would only measure those.
        "gates": {"programmingP99": "10m"},
    });
    [
        "--set".into(),
        format!("agents.image=registry.example.com/portolan/portolan-agent:{tag}"),
        "--set-json".into(),
        format!("config.spec.rollout={rollout}"),
    ]
}

fn texts(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// A Node object as a cloud provider registers it; kwok does the rest.
fn node(number: u8) -> Value {
    let mut node = LabNode::numbered(number);
    node.zone = format!("zone-{}", number % 3 + 1);
    let address = node.addresses[0];
    let mut object = json!(node.object());
    object["metadata"]["labels"]["kubernetes.io/os"] = "linux".into();
    object["metadata"]["annotations"] = json!({"portolan.lab/address": address});
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".into(), "v1".into());
        object.insert("kind".into(), "Node".into());
        object.remove("status");
    }
    object
}

fn pod(pod: &Value) -> AgentPod {
    let text = |path: &str| {
        let value = pod.pointer(path).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let image = text("/spec/containers/0/image");
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.any(|one| one["type"] == "Ready" && one["status"] == "True");
    AgentPod {
        name: text("/metadata/name"),
        node: text("/spec/nodeName"),
        tag: image
            .rsplit_once(':')
            .map_or(String::new(), |(_, tag)| tag.to_owned()),
        track: pod["metadata"]["labels"][TRACK]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        ready: ready && pod["metadata"]["deletionTimestamp"].is_null(),
    }
}

/// Starts the controllers as the kubelet would, but on ports of their own, since they share this machine. Returns
/// them by pod name, and their addresses for agents.
fn controllers(
    stage: &Stage,
    release: &Release,
) -> Result<(BTreeMap<String, Running>, Vec<SocketAddr>)> {
    let waits = stage.waits;
    let pods = waits.eventually("pods of controllers", RUNNING, || {
        let names = release.pods()?;
        let pods = names.iter().map(|name| release.object(name));
        let pods = pods.collect::<Result<Vec<_>>>()?;
        let running = |pod: &Value| pod["status"]["phase"] == "Running";
        ensure!(pods.len() == 2 && pods.iter().all(running), "{names:?}");
        Ok(pods)
    })?;
    let kubeconfig = release.account("portolan-controller")?;
    let others = release.plane.free_ports()?;
    let (mut controllers, mut addresses) = (BTreeMap::new(), Vec::new());
    for (pod, ports) in pods.iter().zip([release.ports, others]) {
        let name = pod["metadata"]["name"].as_str();
        let name = name.context("a pod has no name")?.to_owned();
        let words = arguments(pod)?.into_iter().map(|word| {
            let moves = release.ports.iter().zip(ports);
            moves.fold(word, |word, (from, to)| {
                word.replace(&format!(":{from}"), &format!(":{to}"))
            })
        });
        let words: Vec<_> = words.collect();
        let words = texts(&words);
        let log = File::create(release.file(&name))?;
        let environment = [("KUBECONFIG", kubeconfig.as_path())];
        let running = Program::Controller.start_with(&words, &environment, &log)?;
        controllers.insert(name, running);
        addresses.push(([127, 0, 0, 1], ports[0]).into());
    }
    Ok((controllers, addresses))
}

/// Path of the CA file of the agents.
fn authority(stage: &Stage, release: &Release) -> Result<PathBuf> {
    let waits = stage.waits;
    let text = waits.eventually("the authority", CERTIFIED, || {
        let map = release.object("configmap/portolan-ca")?;
        let text = map["data"]["ca.crt"].as_str().unwrap_or_default();
        ensure!(!text.is_empty(), "it is empty");
        Ok(text.to_owned())
    })?;
    let path = release.file("agents-ca.crt");
    std::fs::write(&path, text)?;
    Ok(path)
}
