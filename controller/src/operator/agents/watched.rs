//! What the leader reads of the cluster to keep agents and to roll out changes, kept current by watches. At rest it
//! costs the API server nothing.
//!
//! Reads from the API server. The ProxyConfig is watched by every controller, the other objects by the leader.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::watcher;
use kube::{Api, Client};
use portolan_crds::ProxyConfig;
use portolan_planner::model::ProxyConfig as Config;
use tokio::sync::watch;

use super::Agents;
use super::daemon_set::Owner;
use super::kube_proxies::{KubeProxies, LABELS, NAMESPACE, node_of};
use super::pods::{AgentPod, AgentPods};
use super::templates::{Templates, map_of};
use super::track::Track;
use crate::leading::{Leading, while_leading};
use crate::operator::mirror::{Mirror, Unavailable};

/// Objects that the leader's tasks read.
pub struct Watched {
    client: Client,
    agents: Option<Agents>,
    changed: watch::Sender<()>,
    /// The ProxyConfig `default`.
    pub(crate) config: Mirror<ProxyConfig>,
    /// The ConfigMap with the template of the DaemonSets.
    pub(super) template: Mirror<ConfigMap>,
    /// The ConfigMap with the recorded templates, of which only the genuine ones are kept.
    pub(super) templates: Mirror<Templates>,
    /// The ConfigMap with the addresses of controllers.
    pub(super) controllers: Mirror<ConfigMap>,
    /// Pods of controllers.
    pub(super) controller_pods: Mirror<Pod>,
    /// All DaemonSets of the namespace: one with the name of ours may be someone else's.
    pub(super) sets: Mirror<DaemonSet>,
    pods: Mirror<AgentPod>,
    /// Nodes with a pod of kube-proxy, by each label.
    kube_proxies: [Mirror<String>; 2],
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Watched {
    /// Nothing is read before [`Watched::run`]. Without `agents` only the ProxyConfig is.
    pub fn new(client: Client, agents: Option<Agents>) -> Self {
        /// A mirror that reports its changes together with the others.
        fn mirror<V: Send + Sync + 'static>(changed: &watch::Sender<()>, what: &str) -> Mirror<V> {
            Mirror::new(what, changed.clone())
        }
        let changed = watch::Sender::new(());
        let named = |kind, name: Option<String>| format!("{kind} {}", name.unwrap_or_default());
        let template = agents.as_ref().map(|agents| agents.template.to_string());
        let history = agents.as_ref().map(|agents| map_of(&agents.template));
        let history = history.map(|history| history.to_string());
        let controllers = agents.as_ref().map(|agents| agents.controllers.to_string());
        Self {
            client,
            agents,
            config: mirror(&changed, "ProxyConfig default"),
            template: mirror(&changed, &named("ConfigMap", template)),
            templates: mirror(&changed, &named("ConfigMap", history)),
            controllers: mirror(&changed, &named("ConfigMap", controllers)),
            controller_pods: mirror(&changed, "pods of controllers"),
            sets: mirror(&changed, "DaemonSets in the namespace of agents"),
            pods: mirror(&changed, "pods of agents"),
            kube_proxies: LABELS.map(|_| mirror(&changed, "pods of kube-proxy")),
            changed,
        }
    }

    /// Watches. Never ends.
    pub async fn run(&self, leading: Leading) {
        let config = self.config.follow(
            Api::all(self.client.clone()),
            by_name(Config::DEFAULT),
            whole,
        );
        let agents = async {
            if let Some(agents) = &self.agents {
                while_leading!(leading, self.follow_agents(agents));
            }
        };
        tokio::join!(config, agents);
    }

    async fn follow_agents(&self, agents: &Agents) {
        let (template, controllers) = (&agents.template, &agents.controllers);
        let history = map_of(template);
        let maps = |namespace: &str| Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let pods = |namespace: &str| Api::<Pod>::namespaced(self.client.clone(), namespace);
        let sets = Api::<DaemonSet>::namespaced(self.client.clone(), &template.namespace);
        let [new_proxies, old_proxies] = &self.kube_proxies;
        let kube_proxies = |mirror: &'static str| watcher::Config::default().labels(mirror);
        tokio::join!(
            self.template
                .follow(maps(&template.namespace), by_name(&template.name), whole),
            self.templates
                .follow(maps(&history.namespace), by_name(&history.name), |map| {
                    Some(Templates::read(map))
                }),
            self.controllers.follow(
                maps(&controllers.namespace),
                by_name(&controllers.name),
                whole
            ),
            self.controller_pods.follow(
                pods(&controllers.namespace),
                watcher::Config::default().labels(&agents.pods),
                whole
            ),
            self.sets.follow(sets, watcher::Config::default(), whole),
            self.pods.follow(
                pods(&template.namespace),
                watcher::Config::default().labels(Track::LABEL),
                AgentPod::read
            ),
            new_proxies.follow(pods(NAMESPACE), kube_proxies(LABELS[0]), node_of),
            old_proxies.follow(pods(NAMESPACE), kube_proxies(LABELS[1]), node_of),
        );
    }

    /// Waits until everything was listed once.
    ///
    /// # Errors
    /// Objects that cannot be listed. Pods of kube-proxy may be among them: only a condition depends on them.
    pub(super) async fn ready(&self) -> Result<(), Unavailable> {
        self.config.ready().await?;
        self.template.ready().await?;
        self.templates.ready().await?;
        self.controllers.ready().await?;
        self.controller_pods.ready().await?;
        self.sets.ready().await?;
        self.pods.ready().await?;
        for pods in &self.kube_proxies {
            drop(pods.ready().await);
        }
        Ok(())
    }

    /// The ProxyConfig `default`, if it exists.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(crate) fn config(&self) -> Result<Option<Arc<ProxyConfig>>, Unavailable> {
        self.config.get(Config::DEFAULT)
    }

    /// The data of the template's ConfigMap, with the UID of the ConfigMap, if it exists.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(crate) fn template(&self) -> Result<Option<Arc<ConfigMap>>, Unavailable> {
        match &self.agents {
            Some(agents) => self.template.get(&agents.template.name),
            None => Ok(None),
        }
    }

    /// The ConfigMap of the template, as the owner of what the controller creates, if it exists.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(super) fn owner(&self) -> Result<Option<Owner>, Unavailable> {
        let found = self.template()?;
        let owner = |(agents, found): (&Agents, Arc<ConfigMap>)| Owner {
            map: agents.template.clone(),
            uid: found.metadata.uid.clone().unwrap_or_default(),
        };
        Ok(self.agents.as_ref().zip(found).map(owner))
    }

    /// The recorded templates of agents.
    ///
    /// # Errors
    /// They cannot be watched.
    pub(crate) fn templates(&self) -> Result<Arc<Templates>, Unavailable> {
        let Some(agents) = &self.agents else {
            return Ok(Arc::default());
        };
        let recorded = self.templates.get(&map_of(&agents.template).name)?;
        Ok(recorded.unwrap_or_default())
    }

    /// Pods of agents.
    ///
    /// # Errors
    /// They cannot be watched.
    pub(crate) fn agent_pods(&self) -> Result<AgentPods, Unavailable> {
        Ok(self.pods.values()?.into_iter().collect())
    }

    /// Nodes with a pod of kube-proxy; `None` if these pods cannot be watched.
    pub(super) fn kube_proxies(&self) -> KubeProxies {
        let mut nodes = BTreeSet::new();
        for pods in &self.kube_proxies {
            nodes.extend(pods.values().ok()?.iter().map(|node| (**node).clone()));
        }
        Some(nodes)
    }

    /// Changes of any of the objects.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

fn by_name(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

fn whole<K: Clone>(object: &K) -> Option<K> {
    Some(object.clone())
}
