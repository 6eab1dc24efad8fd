//! Agents that the controller keeps: flags of `run`.

use clap::Args;

use crate::agents::Agents;
use crate::trust::Named;

#[derive(Debug, Args)]
pub(super) struct AgentsArguments {
    /// A ConfigMap with the DaemonSet of agents as it should be (daemonset.yaml). The controller that leads
    /// makes it, puts back what others change in it, and follows the ConfigMap.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_AGENTS_TEMPLATE",
        requires = "controllers_configmap",
        conflicts_with = "manifests"
    )]
    agents_template: Option<Named>,
    /// A ConfigMap in which agents find controllers (addresses): the pods of --controller-pods that are
    /// ready, at the port of --listen.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_CONTROLLERS_CONFIGMAP",
        requires = "controller_pods"
    )]
    controllers_configmap: Option<Named>,
    /// Labels of the controllers' pods, like app=portolan-controller, in the namespace of that ConfigMap.
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
