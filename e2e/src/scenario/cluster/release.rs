//! The chart installed with the real helm on a fresh control plane, and the arguments and account of its controller.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::audit::Audit;
use crate::control_plane::{ControlPlane, Options, Reach};
use crate::program::Program;
use crate::stage::Stage;
use crate::work_folder::WorkFolder;

/// Not the namespace of the README, to detect a hard-coded one.
pub(super) const NAMESPACE: &str = "proxy";
pub(super) const RELEASE: &str = "portolan";
/// Pods of controllers.
pub(super) const PODS: &str = "app.kubernetes.io/component=controller";

/// A control plane and a release in it; dropping it ends the control plane.
pub(super) struct Release {
    pub(super) plane: ControlPlane,
    folder: WorkFolder,
    pub(super) chart: PathBuf,
    /// For agents, and for health.
    pub(super) ports: [u16; 2],
}

impl Release {
    /// Starts the control plane with an audit log.
    pub(super) fn start(stage: &Stage, chart: PathBuf, mut options: Options) -> Result<Self> {
        let folder = WorkFolder::private()?;
        Audit::keep(&folder.path, &mut options)?;
        let plane = ControlPlane::start(stage.waits, options)?;
        let ports = plane.free_ports()?;
        Ok(Self {
            plane,
            folder,
            chart,
            ports,
        })
    }

    /// Path of a file in the folder of this run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }

    /// Runs helm as administrator.
    pub(super) fn helm(&self, words: &[&str]) -> Result<String> {
        let config = self.plane.kubeconfig(Reach::Here).display().to_string();
        let own = ["--kubeconfig", &config, "--namespace", NAMESPACE];
        Program::Helm.run(&[words, &own].concat())
    }

    /// Installs with the required values and ports that are free here.
    pub(super) fn install(&self, more: &[&str]) -> Result<String> {
        self.install_as(RELEASE, more)
    }

    /// The same as a release of another name.
    pub(super) fn install_as(&self, release: &str, more: &[&str]) -> Result<String> {
        let more = [&["--create-namespace"], more].concat();
        self.with_values(&["install", release], &more)
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

    /// An object of the release, as JSON.
    pub(super) fn object(&self, name: &str) -> Result<Value> {
        let words = ["get", name, "-n", NAMESPACE, "-o", "json"];
        Ok(serde_json::from_str(&self.plane.kubectl(&words)?)?)
    }

    /// A condition of the ProxyConfig.
    pub(super) fn condition(&self, kind: &str) -> Result<Value> {
        let config = self.object("proxyconfig/default")?;
        let conditions = config["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|condition| condition["type"] == kind);
        let found = found.with_context(|| format!("there is no condition {kind}"))?;
        Ok(found.clone())
    }

    /// Pods of controllers, by name.
    pub(super) fn pods(&self) -> Result<Vec<String>> {
        let pods = ["get", "pods", "-n", NAMESPACE, "-l", PODS, "-o", "name"];
        Ok(self
            .plane
            .kubectl(&pods)?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// A kubeconfig for a service account, in place of the files that the kubelet mounts.
    pub(super) fn account(&self, name: &str) -> Result<PathBuf> {
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

    pub(super) fn audit(&self) -> Result<Audit> {
        Audit::read(&self.folder.path)
    }
}

/// The arguments of a pod's container as the kubelet passes them: `$(NAME)` is replaced by the pod field of the
/// variable.
pub(super) fn arguments(pod: &Value) -> Result<Vec<String>> {
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
    fn arguments_are_expanded_as_by_the_kubelet() {
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
