//! The base of scenarios on a real API server: a control plane with the CRDs and RBAC rules, the
//! controller under its own account with minimal permissions, and light agents.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::super::Stage;
use super::audit::Audit;
use crate::control_plane::kubelet::Kubelet;
use crate::control_plane::{ControlPlane, Options, Reach};
use crate::harness::Environment;
use crate::installation;
use crate::light_agents::LightAgents;
use crate::logs;
use crate::program::{Program, Running};
use crate::work_folder::WorkFolder;

/// How long the controller may need to list everything and plan it, on hardware.
const FIRST_PLAN: Duration = Duration::from_secs(30);
/// The kinds of objects that a plan depends on, on every release.
const EVERYTHING: &str = "nodes,services,endpointslices,proxyconfigs";
/// The minor version of Kubernetes that has first another kind.
const SERVICE_CIDRS_SINCE: u32 = 33;

/// Everything that runs; dropping it ends everything.
pub(super) struct Rig<'a> {
    // Fields are dropped in this order: dependents first.
    agents: Option<LightAgents>,
    controller: Option<Running>,
    pub(super) kubelet: Kubelet,
    pub(super) plane: ControlPlane,
    /// The minor version of Kubernetes.
    pub(super) minor: u32,
    folder: WorkFolder,
    pub(super) stage: &'a Stage,
}

impl<'a> Rig<'a> {
    /// Starts everything but the controller and the agents: `nodes` nodes of the lab's kubelet, with room for
    /// `pods_a_node` pods each.
    pub(super) fn start(
        stage: &'a Stage,
        mut options: Options,
        nodes: u8,
        pods_a_node: u32,
    ) -> Result<Self> {
        let folder = WorkFolder::private()?;
        Audit::keep(&folder.path, &mut options)?;
        let plane = ControlPlane::start(stage.waits, options)?;
        installation::install(|words, input| plane.kubectl_with_input(words, input))?;
        let kubeconfig = plane.kubeconfig(Reach::Here);
        let kubelet = Kubelet::start_with_nodes(&kubeconfig, nodes, pods_a_node)?;
        Ok(Self {
            agents: None,
            controller: None,
            kubelet,
            minor: plane.minor()?,
            plane,
            folder,
            stage,
        })
    }

    /// Starts the controller with the permissions of its own user.
    pub(super) fn start_controller(&mut self) -> Result<()> {
        let listen = format!("unix:{}", self.socket().display());
        self.start_controller_with(&["--listen", &listen, "--insecure"])
    }

    /// The same, with more arguments.
    pub(super) fn start_controller_also(&mut self, more: &[&str]) -> Result<()> {
        let listen = format!("unix:{}", self.socket().display());
        self.start_controller_with(&[&["--listen", &listen, "--insecure"], more].concat())
    }

    /// The same, with arguments that say how it is reached.
    pub(super) fn start_controller_with(&mut self, more: &[&str]) -> Result<()> {
        let kubeconfig = self
            .plane
            .user(installation::CONTROLLER, None, Reach::Here)?;
        let kubeconfig = kubeconfig.display().to_string();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.controller_log())?;
        let words = [&["run", "--kubeconfig", &kubeconfig], more].concat();
        self.controller = Some(Program::Controller.start(&words, &log)?);
        Ok(())
    }

    /// Kills the controller.
    pub(super) fn kill_controller(&mut self) -> Result<()> {
        let running = self.controller.take();
        running.context("the controller does not run")?.kill()
    }

    /// The controller.
    pub(super) fn controller(&self) -> Result<&Running> {
        let controller = self.controller.as_ref();
        controller.context("the controller does not run")
    }

    /// Starts light agents for the first nodes.
    pub(super) fn start_agents(&mut self, count: u8) -> Result<()> {
        let names = (1..=count).map(|number| format!("node-{number}"));
        self.agents = Some(LightAgents::start(&self.socket(), names)?);
        Ok(())
    }

    /// Replaces the agents.
    pub(super) fn set_agents(&mut self, agents: LightAgents) {
        self.agents = Some(agents);
    }

    /// Path of a file that is removed with the rig.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }

    /// The agents.
    pub(super) fn agents(&self) -> Result<&LightAgents> {
        self.agents.as_ref().context("no agents run")
    }

    /// Waits until every agent has a first plan.
    pub(super) fn wait_first_plans(&self) -> Result<()> {
        let agents = self.agents()?;
        self.eventually("every agent to have a plan", FIRST_PLAN, || {
            let without = agents.nodes().find(|node| agents.hash(node).is_none());
            without.map_or(Ok(()), |node| Err(anyhow!("{node} has no plan")))
        })
        .map_err(|error| self.with_logs(error))
    }

    /// Retries until `ask` succeeds; on timeout, returns the last error.
    pub(super) fn eventually<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.stage.waits.eventually(what, on_hardware, ask)
    }

    /// Waits until every agent's plan equals the one that `plan --manifests` computes from scratch
    /// from the output of kubectl.
    pub(super) fn wait_equal(&self, on_hardware: Duration) -> Result<()> {
        let what = "every agent's plan to equal one made from scratch";
        self.eventually(what, on_hardware, || self.plans_are_equal())
            .map_err(|error| self.with_logs(error))
    }

    /// Fails with the first agent whose plan differs from one computed from scratch, and the
    /// difference.
    fn plans_are_equal(&self) -> Result<()> {
        let mut everything = EVERYTHING.to_owned();
        if self.minor >= SERVICE_CIDRS_SINCE {
            everything += ",servicecidrs";
        }
        let yaml = self
            .plane
            .kubectl(&["get", &everything, "-A", "-o", "yaml"])?;
        let path = self.folder.path.join("everything.yaml");
        std::fs::write(&path, yaml)?;
        let path = path.display().to_string();
        for node in self.agents()?.nodes() {
            let words = ["plan", "--manifests", &path, "--node", node, "-o", "json"];
            let scratch = Program::Controller.run(&words)?;
            let mut scratch: Value = serde_json::from_str(&scratch)?;
            scratch["warnings"] = Value::Array(Vec::new());
            let plan = self.agents()?.plan(node);
            let plan = serde_json::to_value(plan)?;
            if plan != scratch {
                bail!("{node}: {}", first_difference("", &plan, &scratch));
            }
        }
        Ok(())
    }

    /// Patches the spec of the ProxyConfig.
    pub(super) fn configure(&self, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let words = [
            "patch",
            "proxyconfig",
            "default",
            "--type=merge",
            "-p",
            &patch,
        ];
        self.plane.kubectl(&words)?;
        Ok(())
    }

    /// The requests of the controller so far.
    pub(super) fn audit(&self) -> Result<Audit> {
        Audit::read(&self.folder.path)
    }

    /// The log of the controller.
    pub(super) fn controller_said(&self) -> Result<String> {
        let path = self.controller_log();
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path.join("controller.sock")
    }

    fn controller_log(&self) -> PathBuf {
        self.folder.path.join("controller.log")
    }
}

impl Rig<'_> {
    /// Whether the API server accepts the traffic distributions `PreferSameNode` and `PreferSameZone`. The older
    /// `PreferClose` is the same as the latter.
    pub(super) fn prefers_nodes(&self) -> bool {
        self.minor >= 34
    }
}

impl Environment for Rig<'_> {
    fn check_running(&self) -> Result<()> {
        self.plane.check_running()?;
        if let Some(status) = self.controller()?.ended()? {
            bail!("the controller ended with {status}");
        }
        ensure!(
            !self.controller_said()?.contains("panicked"),
            "the controller panicked"
        );
        Ok(())
    }

    fn with_logs(&self, error: Error) -> Error {
        logs::attach(error, || {
            let said = self.controller_said().unwrap_or_default();
            self.plane.last_words() + &logs::tail("controller", &said, 12)
        })
    }
}

/// Where two values begin to differ.
fn first_difference(path: &str, one: &Value, other: &Value) -> String {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys()).filter(|key| *key != "hash");
            let differs = |key: &&String| one.get(*key) != other.get(*key);
            keys.into_iter().find(differs).map_or_else(
                || format!("{path}: only the hash differs"),
                |key| {
                    let (one, other) = (&one.get(key), &other.get(key));
                    let null = Value::Null;
                    let path = format!("{path}.{key}");
                    first_difference(&path, one.unwrap_or(&null), other.unwrap_or(&null))
                },
            )
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            let differs = pairs.into_iter().find(|(_, (one, other))| one != other);
            differs.map_or_else(String::new, |(index, (one, other))| {
                first_difference(&format!("{path}[{index}]"), one, other)
            })
        }
        _ => {
            let shown = |value: &Value| value.to_string().chars().take(300).collect::<String>();
            format!(
                "{path} is {} at the agent, {} from scratch",
                shown(one),
                shown(other)
            )
        }
    }
}
