//! The task that writes events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service};
use k8s_openapi::api::events::v1::Event as Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use portolan_crds::ProxyConfig;
use portolan_planner::model::ProxyConfig as Config;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::limit::{Limit, Verdict};
use super::{About, Event, Severity};

/// The reporting controller.
const CONTROLLER: &str = "proxy.portolan.dev/controller";
/// Namespace of events about cluster-scoped objects.
const NAMESPACE: &str = "default";
/// Maximum length of a note, in bytes. The API server rejects longer ones.
const MAX_NOTE_BYTES: usize = 1024;
/// Timeout of writing one event.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum interval between warnings about dropped or failed events.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Writes recorded events.
pub struct Writer {
    client: Client,
    instance: String,
    receiver: mpsc::Receiver<(SystemTime, Event)>,
    lost: Arc<AtomicU64>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(
        client: Client,
        instance: &str,
        receiver: mpsc::Receiver<(SystemTime, Event)>,
        lost: Arc<AtomicU64>,
    ) -> Self {
        Self {
            client,
            instance: shortened(instance, 128),
            receiver,
            lost,
        }
    }

    /// Writes until the last `Events` is dropped.
    pub async fn run(mut self) {
        let (start, mut limit) = (Instant::now(), Limit::new());
        let mut warned: Option<Instant> = None;
        let mut problem = None;
        while let Some((time, event)) = self.receiver.recv().await {
            match limit.judge(&event, start.elapsed()) {
                Verdict::Repeated => continue,
                Verdict::RateLimited => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
                Verdict::Write => {
                    let written = timeout(WRITE_TIMEOUT, self.write(&event, time)).await;
                    let silent = || Err("the API server does not answer".into());
                    problem = written.unwrap_or_else(|_| silent()).err().or(problem);
                }
            }
            let lost = self.lost.load(Ordering::Relaxed);
            let recently = warned.is_some_and(|last| last.elapsed() < WARN_INTERVAL);
            if recently || (problem.is_none() && lost == 0) {
                continue;
            }
            warned = Some(Instant::now());
            self.lost.fetch_sub(lost, Ordering::Relaxed);
            if let Some(problem) = problem.take() {
                warn!(
                    lost,
                    "cannot write an event: {problem}; check that this controller may create \
                     events.events.k8s.io"
                );
            } else {
                warn!(
                    "dropped {lost} events above the rate limit; statuses have the same information"
                );
            }
        }
    }

    async fn write(&self, event: &Event, time: SystemTime) -> Result<(), String> {
        let regarding = self.object(&event.about).await;
        let Some(regarding) = regarding.map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let namespace = regarding.namespace.as_deref().unwrap_or(NAMESPACE);
        let events: Api<Object> = Api::namespaced(self.client.clone(), namespace);
        let object = self.described(event, time, regarding.clone());
        let created = events.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|error| error.to_string())
    }

    fn described(&self, event: &Event, time: SystemTime, regarding: ObjectReference) -> Object {
        let name = regarding.name.clone().unwrap_or_default();
        Object {
            metadata: ObjectMeta {
                // Named like the events of other programs; generateName prefixes may not end with a dot.
                name: Some(format!(
                    "{}.{:x}",
                    shortened(&name, 200),
                    moment(time).as_nanosecond()
                )),
                namespace: regarding
                    .namespace
                    .clone()
                    .or_else(|| Some(NAMESPACE.into())),
                ..ObjectMeta::default()
            },
            action: Some(event.action.into()),
            event_time: Some(MicroTime(moment(time))),
            note: Some(shortened(&event.note, MAX_NOTE_BYTES)),
            reason: Some(shortened(&event.reason, 128)),
            regarding: Some(regarding),
            reporting_controller: Some(CONTROLLER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(
                match event.severity {
                    Severity::Normal => "Normal",
                    Severity::Warning => "Warning",
                }
                .into(),
            ),
            ..Object::default()
        }
    }

    /// `kubectl describe` finds events by the UID of their object. `None` if the object was deleted meanwhile.
    async fn object(&self, about: &About) -> kube::Result<Option<ObjectReference>> {
        let client = self.client.clone();
        match about {
            About::Node(name) => Ok(Some(node(name))),
            About::Service(id) => {
                let services = Api::<Service>::namespaced(client, &id.namespace);
                reference(&services, &id.name).await
            }
            About::ProxyConfig => {
                reference(&Api::<ProxyConfig>::all(client), Config::DEFAULT).await
            }
        }
    }
}

/// A reference to a node as kubelets write it: its name is the UID. `kubectl describe node` lists events of both UIDs,
/// and no read is necessary.
fn node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(Node::api_version(&()).into()),
        kind: Some(Node::kind(&()).into()),
        name: Some(name.into()),
        uid: Some(name.into()),
        ..ObjectReference::default()
    }
}

/// A reference to an object by name. Uses list instead of get, since the controller may list these kinds anyway.
async fn reference<K>(objects: &Api<K>, name: &str) -> kube::Result<Option<ObjectReference>>
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let of_name = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = objects.list_metadata(&of_name).await?;
    Ok(found.items.first().map(|object| ObjectReference {
        api_version: Some(K::api_version(&()).into()),
        kind: Some(K::kind(&()).into()),
        name: Some(object.name_any()),
        namespace: object.namespace(),
        uid: object.uid(),
        ..ObjectReference::default()
    }))
}

fn moment(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The beginning of a text, at most `most` bytes long.
fn shortened(text: &str, most: usize) -> String {
    match text.len() > most {
        true => text[..text.floor_char_boundary(most)].to_owned(),
        false => text.to_owned(),
    }
}
