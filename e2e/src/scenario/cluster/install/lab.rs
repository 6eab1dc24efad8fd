//! A fresh control plane, the chart in it, and the controller that the chart describes.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use portolan_agent::receive::{Access, Address, Tls, Trust};
use serde_json::{Value, json};

use super::super::audit::Audit;
use super::{LOOK, WRITTEN};
use crate::control_plane::kubelet::{AddressPool, Kubelet, LabNode};
use crate::control_plane::{ControlPlane, Options, Reach};
use crate::light_agents::LightAgents;
use crate::program::{Program, Running};
use crate::scenario::Stage;
use crate::work_folder::WorkFolder;

/// Not the namespace of the README, so that none is built in.
pub(super) const NAMESPACE: &str = "proxy";
pub(super) const RELEASE: &str = "portolan";
pub(super) const SET: &str = "daemonset/portolan-agent";
pub(super) const NODES: u8 = 3;
const PODS: &str = "app.kubernetes.io/component=controller";
const AUDIT: &str = include_str!("../../../../api/audit.yaml");
/// Until pods that a Deployment asks for run.
const RUNNING: Duration = Duration::from_secs(30);

/// Everything that runs; dropping it ends everything.
pub(super) struct Lab<'a> {
    controller: Option<Running>,
    kubelet: Kubelet,
    pub(super) plane: ControlPlane,
    folder: WorkFolder,
    pub(super) chart: PathBuf,
    pub(super) stage: &'a Stage,
    /// For agents, and for health.
    ports: [u16; 2],
}

impl<'a> Lab<'a> {
    pub(super) fn start(stage: &'a Stage, chart: PathBuf) -> Result<Self> {
        let folder = WorkFolder::private()?;
        let file = |name: &str| folder.path.join(name).display().to_string();
        std::fs::write(file("audit.yaml"), AUDIT)?;
        let mut options = Options::default();
        options.api_server.extend([
            format!("--audit-policy-file={}", file("audit.yaml")),
            format!("--audit-log-path={}", file("audit.log")),
        ]);
        let plane = ControlPlane::start(stage.waits, options)?;
        let mut pool = AddressPool::new();
        for number in 1..=NODES {
            pool.add_range(&format!("node-{number}"), &LabNode::first_pod(number), 8)?;
        }
        let kubelet = Kubelet::start(&plane.kubeconfig(Reach::Here), pool)?;
        for number in 1..=NODES {
            kubelet.register(&LabNode::numbered(number).object())?;
        }
        let ports = plane.free_ports()?;
        Ok(Self {
            controller: None,
            kubelet,
            plane,
            folder,
            chart,
            stage,
            ports,
        })
    }

    /// Runs helm as administrator.
    pub(super) fn helm(&self, words: &[&str]) -> Result<String> {
        let config = self.plane.kubeconfig(Reach::Here).display().to_string();
        let own = ["--kubeconfig", &config, "--namespace", NAMESPACE];
        Program::Helm.run(&[words, &own].concat())
    }

    /// Installs with what is required, and the ports that are free here.
    pub(super) fn install(&self) -> Result<String> {
        self.with_values(&["install", RELEASE], &["--create-namespace"])
    }

    pub(super) fn upgrade(&self, more: &[&str]) -> Result<String> {
        self.with_values(&["upgrade", RELEASE], more)
    }

    fn with_values(&self, what: &[&str], more: &[&str]) -> Result<String> {
        let chart = self.chart.display().to_string();
        let port = format!("apiServer.port={}", self.server()?.1);
        let [agents, admin] = self.ports;
        let (agents, admin) = (
            format!("controller.port={agents}"),
            format!("controller.adminPort={admin}"),
        );
        let values = [
            "image.repository=registry.example.com/portolan",
            "apiServer.host=127.0.0.1",
            &port,
            &agents,
            &admin,
        ];
        let values = values.iter().flat_map(|value| ["--set", *value]);
        let values: Vec<_> = values.collect();
        self.helm(&[what, &[chart.as_str()][..], &values, more].concat())
    }

    /// The API server's address and port.
    fn server(&self) -> Result<(String, u16)> {
        let path = "jsonpath={.clusters[0].cluster.server}";
        let url = self.plane.kubectl(&["config", "view", "-o", path])?;
        let port = url.rsplit_once(':').context("it has no port")?.1.parse()?;
        Ok((url, port))
    }

    /// Something of an object of the release, as JSON.
    pub(super) fn object(&self, name: &str) -> Result<Value> {
        let words = ["get", name, "-n", NAMESPACE, "-o", "json"];
        Ok(serde_json::from_str(&self.plane.kubectl(&words)?)?)
    }

    /// Starts the controller as the kubelet would start the container of a pod of the Deployment: with
    /// its arguments, and a token of its service account.
    pub(super) fn start_controller(&mut self) -> Result<()> {
        self.kubelet.wait_running(self.stage.waits, 2, RUNNING)?;
        let pods = ["get", "pods", "-n", NAMESPACE, "-l", PODS, "-o", "name"];
        let pods = self.plane.kubectl(&pods)?;
        let pod = self.object(pods.lines().next().context("there is no pod")?)?;
        let words = arguments(&pod)?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let account = pod["spec"]["serviceAccountName"].as_str();
        let account = account.context("the pod has no service account")?;
        let kubeconfig = self.account(account)?;
        let log = File::create(self.log())?;
        let environment = [("KUBECONFIG", kubeconfig.as_path())];
        self.controller = Some(Program::Controller.start_with(&words, &environment, &log)?);
        Ok(())
    }

    /// A kubeconfig for a service account, in place of the files that the kubelet mounts.
    fn account(&self, name: &str) -> Result<PathBuf> {
        let token = self
            .plane
            .kubectl(&["create", "token", name, "-n", NAMESPACE])?;
        let authority = self.plane.folder().join("ca.crt");
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {
                "server": self.server()?.0, "certificate-authority": authority,
            }}],
            "users": [{"name": name, "user": {"token": token.trim()}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        });
        let path = self.folder.path.join("account.kubeconfig");
        std::fs::write(&path, file.to_string())?;
        Ok(path)
    }

    /// Waits until the ConfigMap names all pods of the Deployment, at the port that agents are given.
    pub(super) fn wait_controllers(&self, on_hardware: Duration) -> Result<()> {
        let words = [
            "get",
            "pods",
            "-n",
            NAMESPACE,
            "-l",
            PODS,
            "-o",
            "jsonpath={range .items[*]}{.status.podIP}{\"\\n\"}{end}",
        ];
        let mut wanted: Vec<_> = (self.plane.kubectl(&words)?.lines())
            .map(|ip| format!("{ip}:{}", self.ports[0]))
            .collect();
        wanted.sort();
        ensure!(wanted.len() == 2, "there are pods at {wanted:?}");
        let path = "jsonpath={.data.addresses}";
        let words = [
            "get",
            "configmap",
            "portolan-controllers",
            "--ignore-not-found",
            "-n",
            NAMESPACE,
            "-o",
            path,
        ];
        let told = || {
            let text = self.plane.kubectl(&words)?;
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            Ok((lines == wanted).then_some(()))
        };
        let what = "the list of controllers";
        self.stage
            .waits
            .until(what, on_hardware, LOOK, told, || self.said())
    }

    /// A field of the DaemonSet; empty if there is none.
    pub(super) fn set(&self, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        let words = [
            "get",
            SET,
            "--ignore-not-found",
            "-n",
            NAMESPACE,
            "-o",
            &path,
        ];
        self.plane.kubectl(&words)
    }

    /// Waits until a field of the DaemonSet is as it should be.
    pub(super) fn wait_set(
        &self,
        path: &str,
        on_hardware: Duration,
        right: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let mut last = String::new();
        let looked = self.stage.waits.until(
            &format!("{path} of {SET}"),
            on_hardware,
            LOOK,
            || {
                last = self.set(path)?;
                Ok(right(&last).then_some(()))
            },
            || self.said(),
        );
        looked.with_context(|| format!("it is {last:?}"))
    }

    /// Connects as an agent of a pod of the DaemonSet would: with its account, and whom the ConfigMap
    /// says to believe. Addresses of pods lead nowhere here, so it is the process' own.
    pub(super) fn agent_connects(&self) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": NAMESPACE},
            "spec": {
                "nodeName": "node-1", "serviceAccountName": "portolan-agent", "hostNetwork": true,
                "containers": [{"name": "agent", "image": "none"}],
            },
        });
        self.plane.apply(&pod.to_string())?;
        let token = self.plane.kubectl(&[
            "create",
            "token",
            "portolan-agent",
            "-n",
            NAMESPACE,
            "--audience",
            "portolan-controller",
            "--bound-object-kind",
            "Pod",
            "--bound-object-name",
            "agent",
        ])?;
        let ca = self.object("configmap/portolan-ca")?;
        let ca = ca["data"]["ca.crt"].as_str().context("it has no ca.crt")?;
        let file = |name: &str| self.folder.path.join(name);
        std::fs::write(file("ca.crt"), ca)?;
        std::fs::write(file("token"), token.trim())?;
        let access = Access {
            address: Address::Tcp(([127, 0, 0, 1], self.ports[0]).into()),
            trust: Trust::Tls(Tls {
                ca: file("ca.crt"),
                name: "portolan-controller".to_owned().try_into()?,
                token: Some(file("token")),
            }),
        };
        let agents = LightAgents::start_with([("node-1".to_owned(), access)])?;
        let planned = || Ok(agents.hash("node-1").map(drop));
        let trouble = || format!("{:?}\n{}", agents.link("node-1").trouble, self.said());
        self.stage
            .waits
            .until("the agent's plan", WRITTEN, LOOK, planned, trouble)?;
        self.plane
            .kubectl(&[
                "wait",
                "proxyplan/node-1",
                "--for=condition=Applied",
                "--timeout=60s",
            ])
            .map(drop)
    }

    /// Ends the controller, as the kubelet does when its pod goes.
    pub(super) fn end_controller(&mut self) -> Result<()> {
        let mut running = self.controller.take().context("it does not run")?;
        running.ask_to_end()?;
        let ended = || running.ended();
        let waits = self.stage.waits;
        waits.until("the controller to end", WRITTEN, LOOK, ended, String::new)?;
        Ok(())
    }

    pub(super) fn audit(&self) -> Result<Audit> {
        Audit::read(&self.folder.path.join("audit.log"))
    }

    /// The last words of the controller.
    pub(super) fn said(&self) -> String {
        let said = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n  ")
    }

    pub(super) fn check_running(&mut self) -> Result<()> {
        self.plane.check_running()?;
        let controller = self.controller.as_mut().context("it does not run")?;
        if let Some(status) = controller.ended()? {
            bail!("the controller ended with {status}: {}", self.said());
        }
        let said = std::fs::read_to_string(self.log())?;
        ensure!(!said.contains("panicked"), "the controller panicked");
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.path.join("controller.log")
    }
}

/// The arguments of a pod's one container as the kubelet would give them: `$(NAME)` is the field of the
/// pod that the variable stands for.
fn arguments(pod: &Value) -> Result<Vec<String>> {
    let container = &pod["spec"]["containers"][0];
    let command = container["command"][0].as_str();
    ensure!(
        command == Some(Program::Controller.name()),
        "the container runs {command:?}"
    );
    let variables = container["env"].as_array().into_iter().flatten();
    let variables = variables.map(|variable| {
        let name = variable["name"].as_str().unwrap_or_default();
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let path = field.unwrap_or_default().replace('.', "/");
        let value = pod.pointer(&format!("/{path}")).and_then(Value::as_str);
        let value = value.with_context(|| format!("{name} stands for {field:?}"))?;
        Ok((format!("$({name})"), value))
    });
    let variables: Vec<_> = variables.collect::<Result<_>>()?;
    let words = container["args"].as_array().context("it has no args")?;
    let words = words.iter().map(|word| {
        let mut word = word.as_str().context("an argument is no text")?.to_owned();
        for (name, value) in &variables {
            word = word.replace(name, value);
        }
        ensure!(!word.contains("$("), "{word} names something unknown");
        Ok(word)
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_what_the_kubelet_makes_of_them() {
        let mut pod = json!({
            "metadata": {"name": "controller-1"},
            "spec": {"containers": [{
                "command": ["portolan-controller"], "args": ["run", "--name=$(POD)"],
                "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }]},
        });
        assert_eq!(arguments(&pod).unwrap(), ["run", "--name=controller-1"]);
        pod["spec"]["containers"][0]["args"][1] = "--name=$(OTHER)".into();
        assert!(arguments(&pod).is_err());
    }
}
