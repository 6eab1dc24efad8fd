//! Flags of `run` for the DaemonSet of agents that the controller manages.

use clap::Args;

use crate::agents::Agents;
use crate::trust::Named;

#[derive(Debug, Args)]
pub(super) struct AgentsArguments {
    /// ConfigMap with the agents' DaemonSet as daemonset.yaml. The leading controller creates the DaemonSet, reverts
    /// changes made by others and follows the ConfigMap.
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
    /// Label selector of the controller pods in the namespace of that ConfigMap, like app=portolan-controller.
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
