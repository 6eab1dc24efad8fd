//! A fresh control plane with the installed chart, and the controller that the chart describes.

use std::fs::File;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use portolan_agent::receive::{Access, Address, Tls, Trust};
use serde_json::json;

use super::super::release::{NAMESPACE, PODS, Release, arguments};
use super::WRITTEN;
use crate::control_plane::kubelet::Kubelet;
use crate::control_plane::{Options, Reach};
use crate::harness::Environment;
use crate::light_agents::LightAgents;
use crate::logs;
use crate::program::{Program, Running};
use crate::stage::Stage;

/// The DaemonSet that covers all nodes before the first rollout of agents.
pub(super) const SET: &str = "daemonset/portolan-agent-blue";
pub(super) const NODES: u8 = 3;
/// Until the pods of a Deployment run.
const RUNNING: Duration = Duration::from_secs(30);

/// Everything that runs; dropping it ends everything.
pub(super) struct Lab<'a> {
    controller: Option<Running>,
    kubelet: Kubelet,
    release: Release,
    pub(super) stage: &'a Stage,
}

impl Deref for Lab<'_> {
    type Target = Release;

    fn deref(&self) -> &Release {
        &self.release
    }
}

impl<'a> Lab<'a> {
    pub(super) fn start(stage: &'a Stage, chart: PathBuf) -> Result<Self> {
        let release = Release::start(stage, chart, Options::default())?;
        let kubeconfig = release.plane.kubeconfig(Reach::Here);
        let kubelet = Kubelet::start_with_nodes(&kubeconfig, NODES, 8)?;
        Ok(Self {
            controller: None,
            kubelet,
            release,
            stage,
        })
    }

    /// Starts the controller as the kubelet would start its container: with the arguments of the pod, and a token of
    /// its service account.
    pub(super) fn start_controller(&mut self) -> Result<()> {
        self.kubelet.wait_running(self.stage.waits, 2, RUNNING)?;
        let pods = self.pods()?;
        let pod = self.object(pods.first().context("there is no pod")?)?;
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

    /// Waits until the ConfigMap lists all pods of the Deployment with the port for agents.
    pub(super) fn wait_controllers(&self, on_hardware: Duration) -> Result<()> {
        let path = "jsonpath={range .items[*]}{.status.podIP}{\"\\n\"}{end}";
        let words = ["get", "pods", "-n", NAMESPACE, "-l", PODS, "-o", path];
        let mut wanted: Vec<_> = (self.plane.kubectl(&words)?.lines())
            .map(|ip| format!("{ip}:{}", self.ports[0]))
            .collect();
        wanted.sort();
        ensure!(wanted.len() == 2, "there are pods at {wanted:?}");
        let line = format!(
            "get configmap portolan-controllers --ignore-not-found -n {NAMESPACE} \
             -o jsonpath={{.data.addresses}}"
        );
        self.eventually("the list of controllers", on_hardware, || {
            let text = self.plane.kubectl_line(&line)?;
            let mut lines: Vec<_> = text.lines().collect();
            lines.sort_unstable();
            ensure!(lines == wanted, "it is {lines:?}");
            Ok(())
        })
    }

    /// Retries until `ask` succeeds; a failure includes the last lines of the logs.
    pub(super) fn eventually<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let waits = self.stage.waits;
        let asked = waits.eventually(what, on_hardware, ask);
        asked.map_err(|error| self.with_logs(error))
    }

    /// A field of the DaemonSet; empty if there is none.
    pub(super) fn set(&self, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        let one = ["get", SET, "--ignore-not-found"];
        let words = [&one[..], &["-n", NAMESPACE, "-o", &path]].concat();
        self.plane.kubectl(&words)
    }

    /// Waits until a field of the DaemonSet is `right`.
    pub(super) fn wait_set(
        &self,
        path: &str,
        on_hardware: Duration,
        right: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.eventually(&format!("{path} of {SET}"), on_hardware, || {
            let found = self.set(path)?;
            ensure!(right(&found), "it is {found:?}");
            Ok(())
        })
    }

    /// Connects as an agent of the DaemonSet would: with its service account and the CA of the ConfigMap. Pod
    /// addresses are not reachable here, so it uses the address of the controller process.
    pub(super) fn agent_connects(&self) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": NAMESPACE},
            "spec": {
                "nodeName": "node-1", "serviceAccountName": "portolan-agent", "hostNetwork": true,
                "containers": [{"name": "agent", "image": "none"}],
            },
        });
        self.plane.apply(&pod.to_string())?;
        let token = self.plane.kubectl_line(&format!(
            "create token portolan-agent -n {NAMESPACE} --audience portolan-controller \
             --bound-object-kind Pod --bound-object-name agent"
        ))?;
        let ca = self.object("configmap/portolan-ca")?;
        let ca = ca["data"]["ca.crt"].as_str().context("it has no ca.crt")?;
        let file = |name: &str| self.release.file(name);
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
        self.eventually("the agent's plan", WRITTEN, || {
            let planned = agents.hash("node-1");
            planned.with_context(|| format!("{:?}", agents.link("node-1").trouble))
        })?;
        let line = "wait proxyplan/node-1 --for=condition=Applied --timeout=60s";
        self.plane.kubectl_line(line).map(drop)
    }

    /// Ends the controller, as the kubelet does when its pod is deleted.
    pub(super) fn end_controller(&mut self) -> Result<()> {
        let running = self.controller.take().context("it does not run")?;
        running.ask_to_end()?;
        let ended = || running.ended()?.context("it runs on");
        self.eventually("the controller to end", WRITTEN, ended)?;
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.file("controller.log")
    }
}

impl Environment for Lab<'_> {
    fn check_running(&self) -> Result<()> {
        self.plane.check_running()?;
        let controller = self.controller.as_ref().context("it does not run")?;
        if let Some(status) = controller.ended()? {
            bail!("the controller ended with {status}");
        }
        let said = std::fs::read_to_string(self.log())?;
        ensure!(!said.contains("panicked"), "the controller panicked");
        Ok(())
    }

    fn with_logs(&self, error: Error) -> Error {
        logs::attach(error, || {
            let said = std::fs::read_to_string(self.log()).unwrap_or_default();
            self.plane.last_words() + &logs::tail("controller", &said, 12)
        })
    }
}
