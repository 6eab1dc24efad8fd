//! Conditions of the ProxyConfig about agents: whether the controller can manage them, and whether another service
//! proxy runs on their nodes. The conditions are computed by pure functions; [`ConditionWriter`] writes them.
//!
//! Accesses: the API server (the status of the ProxyConfig).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use portolan_crds::{ProxyConfig, condition as kind};
use serde_json::json;

use super::AgentsError;
use super::kube_proxies::KubeProxies;
use super::watched::Watched;
use crate::events::{About, Event, Events, Severity};
use crate::publish::{Judged, Verdict, condition, since};

/// The field manager. Other managers own the rest of the status.
const MANAGER: &str = "portolan-agents";
/// The conditions that this module writes.
const KINDS: [&str; 2] = [kind::AGENTS_MANAGED, kind::ONLY_SERVICE_PROXY];

/// Why agents are not all managed although no call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lack {
    /// The rollout has not decided which agents nodes get, or this controller has not read everything yet.
    Decision,
    /// No DaemonSet was created, because agents would find no controller.
    Controllers,
    /// A DaemonSet has fewer pods than desired.
    Pods {
        /// The DaemonSet.
        set: String,
        missing: i32,
        wanted: i32,
    },
}

impl Lack {
    /// The pods that a DaemonSet lacks according to its status. `None` while the status is not observed yet.
    pub(super) fn of(set: &DaemonSet) -> Option<Self> {
        let status = set.status.as_ref().filter(|_| is_observed(set))?;
        let missing = status.desired_number_scheduled - status.current_number_scheduled;
        (missing > 0).then(|| Self::Pods {
            set: format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any()),
            missing,
            wanted: status.desired_number_scheduled,
        })
    }

    fn judge(&self) -> JudgedMessage {
        let (verdict, reason, words) = match self {
            Self::Decision => (
                Verdict::Unknown,
                "NotDecided",
                "no settings are accepted yet, so agents cannot be assigned to nodes; see the condition Accepted"
                    .to_owned(),
            ),
            Self::Controllers => (
                Verdict::False,
                "NoControllerReady",
                "no DaemonSet of agents is created while no pod of the controller is Ready, because agents could \
                 not connect; `kubectl describe` of these pods shows the cause"
                    .to_owned(),
            ),
            Self::Pods { set, missing, wanted } => (
                Verdict::False,
                "PodsNotCreated",
                format!(
                    "{missing} of {wanted} pods of DaemonSet {set} are not created; its events (`kubectl describe`) name \
                     the admission plugin that refuses them. A namespace that enforces Pod Security needs the label \
                     pod-security.kubernetes.io/enforce=privileged; where critical priority classes are limited, it needs \
                     a ResourceQuota for them (value namespace.criticalPods of the chart)"
                ),
            ),
        };
        (Judged { verdict, reason }, words)
    }
}

/// Whether the status refers to the current generation of the DaemonSet.
pub(super) fn is_observed(set: &DaemonSet) -> bool {
    let status = set.status.as_ref();
    status.and_then(|status| status.observed_generation) >= set.metadata.generation
}

/// A verdict with its reason, and the message of the condition.
pub(super) type JudgedMessage = (Judged, String);

/// The condition on whether the controller manages agents as configured.
pub(super) fn managed(error: Option<&AgentsError>, lack: Option<&Lack>) -> JudgedMessage {
    let (verdict, reason, words) = match (error, lack) {
        (Some(error), _) => (Verdict::False, error.reason(), error.to_string()),
        (None, Some(lack)) => return lack.judge(),
        (None, None) => (
            Verdict::True,
            "Managed",
            "the DaemonSets of agents are up to date".to_owned(),
        ),
    };
    (Judged { verdict, reason }, words)
}

/// The condition on whether agents are the only service proxy on their nodes. Only pods of kube-proxy are detected.
pub(super) fn only_service_proxy<'n>(
    agents_on: impl Iterator<Item = &'n str>,
    kube_proxies: &KubeProxies,
) -> JudgedMessage {
    let Some(kube_proxies) = kube_proxies else {
        let words = "pods of kube-system cannot be listed; check that the controller has the chart's Role there";
        let (verdict, reason) = (Verdict::Unknown, "CannotListPods");
        return (Judged { verdict, reason }, words.to_owned());
    };
    let shared: BTreeSet<&str> = agents_on
        .filter(|node| kube_proxies.contains(*node))
        .collect();
    let Some(first) = shared.first() else {
        let words = "no node with an agent has a pod of kube-proxy".to_owned();
        let (verdict, reason) = (Verdict::True, "NoKubeProxy");
        return (Judged { verdict, reason }, words);
    };
    let nodes = match shared.len() {
        1 => format!("node {first} has"),
        more => format!("{more} nodes, the first {first}, have"),
    };
    let words = format!(
        "{nodes} a pod of kube-proxy beside an agent: two service proxies on a node conflict. Keep kube-proxy away \
         from nodes with agents (a node affinity of its DaemonSet), or delete it; `portolan-agent doctor` lists what \
         it left on a node"
    );
    let (verdict, reason) = (Verdict::False, "KubeProxy");
    (Judged { verdict, reason }, words)
}

/// Writes the conditions that differ from the stored ones.
pub(super) struct ConditionWriter {
    configs: Api<ProxyConfig>,
    watched: Arc<Watched>,
    events: Events,
}

impl ConditionWriter {
    pub(super) fn new(configs: Api<ProxyConfig>, watched: Arc<Watched>, events: Events) -> Self {
        Self {
            configs,
            watched,
            events,
        }
    }

    /// Writes both conditions, in the order of [`KINDS`].
    pub(super) async fn write(&self, judged: [JudgedMessage; 2]) -> Result<(), AgentsError> {
        let Some(config) = self.watched.config()? else {
            return Ok(());
        };
        let status = config.status.as_ref();
        let stored = status.map_or(&[][..], |status| &status.conditions);
        let now = SystemTime::now();
        let wanted = KINDS.iter().zip(&judged).map(|(kind, (judged, words))| {
            condition(kind, *judged, words, since(stored, kind), now)
        });
        let wanted: Vec<Condition> = wanted.collect();
        if wanted.iter().all(|wanted| stored.contains(wanted)) {
            return Ok(());
        }
        let name = config.name_any();
        let object = json!({
            "apiVersion": "proxy.portolan.dev/v1alpha1",
            "kind": "ProxyConfig",
            "metadata": {"name": name},
            "status": {"conditions": wanted},
        });
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(object);
        let patched = self.configs.patch_status(&name, &params, &patch).await;
        let patched = patched.map_err(|error| {
            AgentsError::refused("write the status of ProxyConfig", &name, error)
        })?;
        self.watched
            .config
            .wrote(&patched, |patched| Some(patched.clone()));
        for event in events(stored, &wanted) {
            self.events.record(event);
        }
        Ok(())
    }
}

/// An event for each condition that becomes False.
fn events(stored: &[Condition], wanted: &[Condition]) -> Vec<Event> {
    let denied = |conditions: &[Condition], kind: &str| {
        let mut conditions = conditions.iter();
        conditions.any(|condition| condition.type_ == kind && condition.status == "False")
    };
    let new = wanted
        .iter()
        .filter(|now| denied(wanted, &now.type_) && !denied(stored, &now.type_));
    new.map(|condition| Event {
        about: About::ProxyConfig,
        severity: Severity::Warning,
        reason: condition.reason.clone(),
        action: "Manage",
        note: condition.message.clone(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text((judged, words): JudgedMessage) -> String {
        format!("{} {}: {words}", judged.verdict.as_str(), judged.reason)
    }

    fn nodes(names: &[&str]) -> KubeProxies {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn kube_proxy_matters_on_nodes_of_agents_only() {
        let condition = |found| text(only_service_proxy(["a", "b", "c"].into_iter(), &found));
        assert!(condition(nodes(&["d"])).starts_with("True NoKubeProxy: "));
        assert!(
            condition(nodes(&["d", "b"]))
                .starts_with("False KubeProxy: node b has a pod of kube-proxy")
        );
        let more = condition(nodes(&["c", "b"]));
        assert!(
            more.starts_with("False KubeProxy: 2 nodes, the first b, have a pod"),
            "{more}"
        );
        assert!(condition(None).starts_with("Unknown CannotListPods: pods of kube-system"));
    }

    #[test]
    fn the_condition_names_why_agents_are_not_managed() {
        assert!(text(managed(None, None)).starts_with("True Managed"));
        let pods = Lack::Pods {
            set: "proxy/portolan-agent-blue".into(),
            missing: 2,
            wanted: 3,
        };
        let condition = text(managed(None, Some(&pods)));
        assert!(
            condition.contains("2 of 3 pods of DaemonSet proxy/portolan-agent-blue"),
            "{condition}"
        );
        let condition = text(managed(None, Some(&Lack::Controllers)));
        assert!(
            condition.starts_with("False NoControllerReady: no DaemonSet"),
            "{condition}"
        );
        let condition = text(managed(None, Some(&Lack::Decision)));
        assert!(condition.starts_with("Unknown NotDecided: "), "{condition}");
        let error = AgentsError::Silent;
        let condition = text(managed(Some(&error), Some(&pods)));
        assert!(
            condition
                .starts_with("False Unanswered: no answer from the API server within 30 s; check"),
            "{condition}"
        );
    }

    #[test]
    fn a_condition_that_becomes_false_is_one_event() {
        let now = SystemTime::now();
        let of = |found: &KubeProxies| {
            let (judged, words) = only_service_proxy(["a"].into_iter(), found);
            vec![condition(
                kind::ONLY_SERVICE_PROXY,
                judged,
                &words,
                None,
                now,
            )]
        };
        let (free, shared) = (of(&nodes(&[])), of(&nodes(&["a"])));
        assert!(events(&[], &free).is_empty());
        let new = events(&free, &shared);
        assert_eq!(new.len(), 1);
        assert_eq!(
            (new[0].severity, &*new[0].reason),
            (Severity::Warning, "KubeProxy")
        );
        assert!(events(&shared, &shared).is_empty());
    }
}
