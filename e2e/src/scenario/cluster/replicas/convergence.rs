//! `kubectl proxyplan wait` with several controllers: it ends when every agent has applied a change, and not before.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{MOVED, NODES, Replica, Replicas, pod, returning};
use crate::checks::Checks;
use crate::control_plane::Reach;
use crate::control_plane::kubelet::LabNode;
use crate::light_agents::FAILURE;
use crate::program::{Ended, Program};

/// A node without an agent.
const WITHOUT_AGENT: u8 = NODES + 1;

/// Service accounts with and without permission to ask.
const ACCESS: &str = include_str!("../../../../api/convergence.yaml");

/// Runs the plugin as one of these accounts.
struct Plugin<'a> {
    replicas: &'a Replicas<'a>,
    controllers: String,
    kubeconfig: String,
}

impl Plugin<'_> {
    fn token(&self, account: &str) -> Result<PathBuf> {
        let words = ["create", "token", account, "-n", "portolan"];
        let token = self.replicas.rig.plane.kubectl(&words)?;
        let path = self.replicas.rig.file(&format!("token-of-{account}"));
        std::fs::write(&path, token.trim())?;
        Ok(path)
    }

    fn wait_as(&self, account: &str, more: &[&str]) -> Result<Ended> {
        let token = self.token(account)?.display().to_string();
        let words = [
            "wait",
            "--controller",
            &self.controllers,
            "--kubeconfig",
            &self.kubeconfig,
            "--token-file",
            &token,
            "-o",
            "json",
        ];
        let web = ["--service", "default/web"];
        let named = more.contains(&"--service");
        let web = if named { &[][..] } else { &web[..] };
        Program::ProxyPlan.try_with_input(&[&words[..], web, more].concat(), "")
    }

    /// Runs `wait`; returns its exit code and output.
    fn wait(&self, more: &[&str]) -> Result<(i32, Value)> {
        let ended = self.wait_as("pipeline", more)?;
        let code = ended.status.code().context("it was killed")?;
        let verdict = serde_json::from_str(&ended.output)
            .with_context(|| format!("{}{}", ended.output, ended.errors))?;
        Ok((code, verdict))
    }

    /// Runs `wait` and expects convergence in time.
    fn converges(&self, more: &[&str]) -> Result<Value> {
        let seconds = self
            .replicas
            .rig
            .stage
            .waits
            .limit(MOVED)
            .as_secs()
            .to_string();
        let (code, verdict) = self.wait(&[&["--timeout", &seconds], more].concat())?;
        ensure!(code == 0, "it ended with {code}: {verdict}");
        ensure!(verdict["converged"] == true, "{verdict}");
        Ok(verdict)
    }
}

pub(super) fn run(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let replicas = &*replicas;
    let rig = &replicas.rig;
    rig.plane.apply(ACCESS)?;
    let pages = replicas.all.iter().map(Replica::pages);
    let pages: Option<Vec<_>> = pages.collect();
    let pages = pages.context("a controller has no pages")?;
    let urls = pages.iter().map(|address| format!("http://{address}"));
    let plugin = Plugin {
        replicas,
        controllers: urls.collect::<Vec<_>>().join(","),
        kubeconfig: rig.plane.kubeconfig(Reach::Here).display().to_string(),
    };
    checks.check("a Service is in force on every node", {
        plugin.converges(&[]).and_then(|verdict| on_all(&verdict))
    });
    checks.check(
        "a new endpoint is in every plan once it is waited for",
        arrives(&plugin),
    );
    checks.check(
        "only the node that fails to apply it is waited for, by name",
        failing(&plugin),
    );
    checks.check(
        "an endpoint that goes is in no plan once it is waited for",
        goes(&plugin),
    );
    checks.check(
        "a node that never connected is waited for, and excluded after a while",
        unseen(&plugin),
    );
    checks.check(
        "while a controller does not answer, its nodes are waited for",
        unanswered(&plugin),
    );
    checks.check(
        "a Service that no controller serves is on no node",
        headless(&plugin),
    );
    checks.check(
        "an account without permission gets no answer",
        stranger(&plugin),
    );
    Ok(())
}

fn on_all(verdict: &Value) -> Result<()> {
    ensure!(verdict["inForce"] == u64::from(NODES), "{verdict}");
    Ok(())
}

/// The address of a pod that the kubelet of the lab has started.
fn address_of(plugin: &Plugin<'_>, name: &str) -> Result<IpAddr> {
    let path = "jsonpath={.status.podIP}";
    let words = ["get", "pod", name, "-o", path];
    let rig = &plugin.replicas.rig;
    rig.eventually("the pod to have an address", MOVED, || {
        let address = rig.plane.kubectl(&words)?;
        address.trim().parse().with_context(|| name.to_owned())
    })
}

/// Number of nodes whose plans have the address for this Service. A terminating pod still serves
/// the Service of policy Local on its own node, which has no other endpoint.
fn holders(plugin: &Plugin<'_>, address: IpAddr) -> Result<usize> {
    let agents = plugin.replicas.rig.agents()?;
    let mut holders = 0;
    for node in agents.nodes() {
        let plan = serde_json::to_value(agents.plan(node))?;
        let services = plan["services"].as_array().context("no Services")?;
        let mut services = services.iter().filter(|service| service["name"] == "web");
        let address = format!("\"{address}\"");
        let has = services.any(|service| service["ports"].to_string().contains(&address));
        holders += usize::from(has);
    }
    Ok(holders)
}

/// Waits until the EndpointSlice has the endpoint or lost it: `wait` does not cover changes that
/// are not stored yet.
fn wait_slice(plugin: &Plugin<'_>, address: IpAddr, there: bool) -> Result<()> {
    let of_service = "kubernetes.io/service-name=web";
    let path =
        "jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.addresses[0]} {end}";
    let words = ["get", "endpointslices", "-l", of_service, "-o", path];
    let rig = &plugin.replicas.rig;
    rig.eventually("the slice to follow", MOVED, || {
        let text = rig.plane.kubectl(&words)?;
        let wanted = address.to_string();
        let found = text.split_whitespace().any(|word| word == wanted);
        ensure!(found == there, "{address} is there: {found}");
        Ok(())
    })
}

fn arrives(plugin: &Plugin<'_>) -> Result<()> {
    plugin.replicas.rig.plane.apply(&pod(6))?;
    let address = address_of(plugin, "web-6")?;
    wait_slice(plugin, address, true)?;
    on_all(&plugin.converges(&[])?)?;
    let holders = holders(plugin, address)?;
    ensure!(holders == usize::from(NODES), "{holders} plans have it");
    Ok(())
}

fn failing(plugin: &Plugin<'_>) -> Result<()> {
    let agents = plugin.replicas.rig.agents()?;
    agents.set_failing("node-7", true);
    plugin.replicas.rig.plane.apply(&pod(7))?;
    let address = address_of(plugin, "web-7")?;
    wait_slice(plugin, address, true)?;
    let (code, verdict) = plugin.wait(&["--timeout", "3"])?;
    agents.set_failing("node-7", false);
    ensure!(code == 1, "it ended with {code}: {verdict}");
    let waiting = verdict["waiting"].as_array().context("no list")?;
    ensure!(waiting.len() == 1, "{verdict}");
    ensure!(waiting[0]["node"] == "node-7", "{verdict}");
    let reason = waiting[0]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains(FAILURE), "{verdict}");
    // No batch follows: the agent reports on its own that the retry succeeded.
    on_all(&plugin.converges(&[])?)
}

fn goes(plugin: &Plugin<'_>) -> Result<()> {
    let address = address_of(plugin, "web-7")?;
    let gone = address.to_string();
    let (code, verdict) = plugin.wait(&["--gone", &gone, "--timeout", "1"])?;
    ensure!(
        code == 1,
        "it is there, and it ended with {code}: {verdict}"
    );
    let words = ["delete", "pod", "web-7", "--wait=false"];
    plugin.replicas.rig.plane.kubectl(&words)?;
    on_all(&plugin.converges(&["--gone", &gone])?)?;
    let holders = holders(plugin, address)?;
    ensure!(holders == 0, "{holders} plans have it");
    Ok(())
}

fn unseen(plugin: &Plugin<'_>) -> Result<()> {
    let node = LabNode::numbered(WITHOUT_AGENT);
    plugin.replicas.rig.kubelet.register(&node.object())?;
    let name = format!("node-{WITHOUT_AGENT}");
    let rig = &plugin.replicas.rig;
    rig.eventually("controllers to know the node", MOVED, || {
        let (_, verdict) = plugin.wait(&["--timeout", "0", "--unseen", "3600"])?;
        let known = verdict["waiting"][0]["node"] == name.as_str();
        ensure!(known, "{name} is not in {verdict}");
        Ok(())
    })?;
    let verdict = plugin.converges(&["--unseen", "1"])?;
    on_all(&verdict)?;
    ensure!(verdict["excluded"][0]["node"] == name.as_str(), "{verdict}");
    let words = ["delete", "node", &name, "--wait=false"];
    plugin.replicas.rig.plane.kubectl(&words).map(drop)
}

/// Nodes of a controller never connected to the others.
fn unanswered(plugin: &Plugin<'_>) -> Result<()> {
    let connected = returning::connected(plugin.replicas)?;
    let serves =
        |replica: &Replica| connected.contains_key(&format!("unix:{}", replica.socket.display()));
    let away = plugin.replicas.all.iter().position(serves);
    let away = away.context("no controller has an agent")?;
    let controllers = plugin.controllers.split(',').enumerate();
    let controllers = controllers.map(|(place, address)| match place == away {
        true => "http://127.0.0.1:1",
        false => address,
    });
    let unreachable = Plugin {
        replicas: plugin.replicas,
        controllers: controllers.collect::<Vec<_>>().join(","),
        kubeconfig: plugin.kubeconfig.clone(),
    };
    let (code, verdict) = unreachable.wait(&["--timeout", "1", "--unseen", "0"])?;
    ensure!(code == 1, "it ended with {code}: {verdict}");
    let waiting = verdict["waiting"].as_array().context("no list")?;
    ensure!(!waiting.is_empty(), "{verdict}");
    ensure!(verdict["excluded"] == serde_json::json!([]), "{verdict}");
    let held_up = verdict["heldUp"].to_string();
    ensure!(held_up.contains("127.0.0.1:1"), "{verdict}");
    Ok(())
}

fn headless(plugin: &Plugin<'_>) -> Result<()> {
    let service = "
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, ports: [{port: 80}]}
";
    plugin.replicas.rig.plane.apply(service)?;
    let words = ["--service", "default/headless", "--timeout", "1"];
    let (code, verdict) = plugin.wait(&words)?;
    ensure!(code == 1, "it ended with {code}: {verdict}");
    let held_up = verdict["heldUp"].to_string();
    ensure!(held_up.contains("no controller serves it"), "{verdict}");
    Ok(())
}

fn stranger(plugin: &Plugin<'_>) -> Result<()> {
    let ended = plugin.wait_as("stranger", &[])?;
    let said = &ended.errors;
    ensure!(ended.status.code() == Some(2), "{said}");
    ensure!(
        said.contains("403") && said.contains("stranger may not get /convergence"),
        "{said}"
    );
    ensure!(ended.output.is_empty(), "{}", ended.output);
    Ok(())
}
