//! Flags of `run` for the DaemonSet of agents that the controller manages.

use clap::Args;

use crate::auth::Named;
use crate::operator::agents::Agents;

#[derive(Debug, Args)]
pub(super) struct AgentsArguments {
    /// ConfigMap with the template of the agents' DaemonSets, as daemonset.yaml. The leading controller creates one
    /// with the suffix -blue, and for the first rollout of agents a second one with the suffix -green. It reverts
    /// changes by others and follows the ConfigMap. During a rollout of agents, one has the former template and the
    /// other the new one.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_AGENTS_TEMPLATE",
        requires = "controllers_configmap",
        conflicts_with = "manifests"
    )]
    agents_template: Option<Named>,
    /// ConfigMap in which agents find the addresses of controllers: the ready pods of --controller-pods, at the port
    /// of --listen.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_CONTROLLERS_CONFIGMAP",
        requires = "controller_pods"
    )]
    controllers_configmap: Option<Named>,
    /// Label selector of the controller pods in the namespace of that ConfigMap, such as app=portolan-controller.
    #[arg(
        long,
        value_name = "SELECTOR",
        env = "PORTOLAN_CONTROLLER_PODS",
        requires = "agents_template"
    )]
    controller_pods: Option<String>,
}

impl AgentsArguments {
    pub(super) fn agents(self) -> Option<Agents> {
        Some(Agents {
            template: self.agents_template?,
            controllers: self.controllers_configmap?,
            pods: self.controller_pods?,
        })
    }
}
