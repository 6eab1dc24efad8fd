//! Objects of one kind in memory, kept current by a watch of kube-runtime: a reflector that keeps only the fields that
//! are used, and that knows the result of a write before the watch delivers it.
//!
//! Reads from the API server. A failed watch is retried with the default back-off of kube-runtime, from 0.8 s to 30 s,
//! and after three failures in a row it begins with a new list.
//!
//! The planner's own watches ([`crate::watch`]) are not built on this: they need the resource version of each list, and
//! they handle objects that cannot be parsed (ADR 0021).

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// Number of consecutive failures after which the objects count as outdated. Single failures are ordinary: API
/// servers are restarted.
const MAX_CONSECUTIVE_FAILURES: u32 = 3;
/// Delay before a new list after [`MAX_CONSECUTIVE_FAILURES`].
const RELIST_DELAY: Duration = Duration::from_secs(5);
/// Time for which a failure counts. It is longer than the backoff, so the failures of a watch that keeps failing
/// never expire.
const FAILURE_TTL: Duration = Duration::from_secs(60);

/// Objects by name, with the fields of `V`.
pub struct Mirror<V> {
    /// The objects in words, for messages.
    what: Arc<str>,
    state: Arc<Mutex<State<V>>>,
    changed: watch::Sender<()>,
}

struct State<V> {
    objects: BTreeMap<String, Held<V>>,
    /// The list while it is being read.
    list: Option<BTreeMap<String, Held<V>>>,
    listed: bool,
    failure: Option<Failure>,
}

struct Held<V> {
    version: u64,
    value: Arc<V>,
}

struct Failure {
    count: u32,
    last: Instant,
    text: String,
}

/// Objects could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot list and watch {what}: {error}")]
pub struct Unavailable {
    /// The objects in words.
    pub what: Arc<str>,
    /// The error of the API server.
    pub error: String,
}

impl<V> Clone for Mirror<V> {
    fn clone(&self) -> Self {
        Self {
            what: self.what.clone(),
            state: self.state.clone(),
            changed: self.changed.clone(),
        }
    }
}

impl<V> fmt::Debug for Mirror<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

impl<V> Default for State<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            list: None,
            listed: false,
            failure: None,
        }
    }
}

impl<V> State<V> {
    fn put(&mut self, name: String, held: Held<V>) {
        let newer = |old: &Held<V>| old.version <= held.version;
        if self.objects.get(&name).is_none_or(newer) {
            self.objects.insert(name, held);
        }
    }
}

impl<V: Send + Sync + 'static> Mirror<V> {
    /// An empty one. `what` names the objects in messages; `changed` gets a tick for each change.
    pub fn new(what: &str, changed: watch::Sender<()>) -> Self {
        Self {
            what: what.into(),
            state: Arc::default(),
            changed,
        }
    }

    /// Watches until it is dropped, and forgets everything then. `keep` takes what is needed of an object; `None` leaves
    /// the object out.
    pub async fn follow<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        keep: impl Fn(&K) -> Option<V>,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let _forgets = Forgets(self);
        loop {
            let mut events = pin!(watcher(api.clone(), config.clone()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => self.take(event, &keep),
                    // kube-runtime opens a watch again and again with the version that it knows, also when the server
                    // refuses that version: after its store was restored from a backup, for example.
                    Err(error) if self.failed(&error).is_multiple_of(MAX_CONSECUTIVE_FAILURES) => {
                        break;
                    }
                    Err(_) => {}
                }
            }
            sleep(RELIST_DELAY).await;
        }
    }

    /// An object that the API server returned for a write. The watch may deliver it later.
    pub fn wrote<K: Resource>(&self, object: &K, keep: impl Fn(&K) -> Option<V>) {
        if let Some(value) = keep(object) {
            self.lock().put(object.name_any(), held(object, value));
            self.changed.send_replace(());
        }
    }

    /// All objects, in the order of their names.
    ///
    /// # Errors
    /// They were not listed yet, or the watch keeps failing.
    pub fn values(&self) -> Result<Vec<Arc<V>>, Unavailable> {
        let state = self.lock();
        match state.problem() {
            Some(error) => Err(self.unavailable(error)),
            None => Ok(state
                .objects
                .values()
                .map(|held| held.value.clone())
                .collect()),
        }
    }

    /// One object by name.
    ///
    /// # Errors
    /// As [`Mirror::values`].
    pub fn get(&self, name: &str) -> Result<Option<Arc<V>>, Unavailable> {
        let state = self.lock();
        match state.problem() {
            Some(error) => Err(self.unavailable(error)),
            None => Ok(state.objects.get(name).map(|held| held.value.clone())),
        }
    }

    /// Waits for the first list.
    ///
    /// # Errors
    /// The list failed; the watch goes on trying.
    pub async fn ready(&self) -> Result<(), Unavailable> {
        let mut changed = self.changed.subscribe();
        loop {
            let state = match &*self.lock() {
                State { listed: true, .. } => Some(Ok(())),
                State {
                    failure: Some(failure),
                    ..
                } => Some(Err(self.unavailable(failure.text.clone()))),
                _ => None,
            };
            match state {
                Some(state) => return state,
                None => drop(changed.changed().await),
            }
        }
    }

    fn take<K: Resource>(&self, event: Event<K>, keep: impl Fn(&K) -> Option<V>) {
        let mut state = self.lock();
        let failed = state.failure.take();
        match event {
            Event::Init => state.list = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                if let Some(value) = keep(&object) {
                    let held = held(&object, value);
                    let list = state.list.get_or_insert_default();
                    list.insert(object.name_any(), held);
                }
            }
            Event::InitDone => {
                state.objects = state.list.take().unwrap_or_default();
                state.listed = true;
            }
            Event::Apply(object) => match keep(&object) {
                Some(value) => state.put(object.name_any(), held(&object, value)),
                None => drop(state.objects.remove(&object.name_any())),
            },
            Event::Delete(object) => drop(state.objects.remove(&object.name_any())),
        }
        let listed = state.listed;
        drop(state);
        if failed.is_some_and(|failure| failure.count >= MAX_CONSECUTIVE_FAILURES) {
            info!("watching {} again", self.what);
        }
        if listed {
            self.changed.send_replace(());
        }
    }

    /// Takes in a failure, and returns how many there were in a row.
    fn failed(&self, error: &watcher::Error) -> u32 {
        let mut state = self.lock();
        let count = state.failure.as_ref().map_or(0, |failure| failure.count) + 1;
        let text = error.to_string();
        state.failure = Some(Failure {
            count,
            last: Instant::now(),
            text: text.clone(),
        });
        drop(state);
        if count == MAX_CONSECUTIVE_FAILURES {
            warn!("cannot watch {}: {text}; trying again", self.what);
        }
        self.changed.send_replace(());
        count
    }

    fn unavailable(&self, error: String) -> Unavailable {
        Unavailable {
            what: self.what.clone(),
            error,
        }
    }
}

impl<V> Mirror<V> {
    fn lock(&self) -> MutexGuard<'_, State<V>> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> State<V> {
    /// Why the objects are not current.
    fn problem(&self) -> Option<String> {
        let failure = self.failure.as_ref();
        let failing = failure.filter(|failure| {
            !self.listed
                || (failure.count >= MAX_CONSECUTIVE_FAILURES
                    && failure.last.elapsed() < FAILURE_TTL)
        });
        match failing {
            Some(failure) => Some(failure.text.clone()),
            None if !self.listed => Some("the API server has not answered yet".to_owned()),
            None => None,
        }
    }
}

fn held<K: Resource, V>(object: &K, value: V) -> Held<V> {
    // Resource versions are numbers that can be compared (Kubernetes 1.35, KEP-5504); of others the last one counts.
    let version = object.resource_version();
    let version = version.and_then(|version| version.parse().ok());
    Held {
        version: version.unwrap_or(u64::MAX),
        value: Arc::new(value),
    }
}

/// Forgets all objects when the watch ends: nothing keeps them current any more.
struct Forgets<'m, V>(&'m Mirror<V>);

impl<V> Drop for Forgets<'_, V> {
    fn drop(&mut self) {
        *self.0.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn map(name: &str, version: &str, value: &str) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"name": name, "resourceVersion": version}, "data": {"key": value},
        }))
        .unwrap()
    }

    /// Name and value.
    fn line(map: &ConfigMap) -> Option<String> {
        let value = map.data.as_ref()?.get("key")?;
        Some(format!("{}={value}", map.name_any()))
    }

    fn lines(mirror: &Mirror<String>) -> Vec<String> {
        let values = mirror.values().unwrap();
        values.iter().map(|line| (**line).clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_replaces_everything_and_a_late_event_does_not_undo_a_write() {
        let mirror = Mirror::new("ConfigMaps of a test", watch::Sender::new(()));
        assert!(mirror.values().is_err(), "nothing was listed");
        let take = |event| mirror.take(event, line);
        take(Event::Init);
        take(Event::InitApply(map("a", "5", "1")));
        take(Event::InitApply(map("b", "6", "1")));
        assert!(mirror.values().is_err(), "half a list");
        take(Event::InitDone);
        assert_eq!(lines(&mirror), ["a=1", "b=1"]);
        mirror.wrote(&map("a", "9", "3"), line);
        take(Event::Apply(map("a", "8", "2")));
        assert_eq!(lines(&mirror), ["a=3", "b=1"], "8 is older than 9");
        take(Event::Apply(map("a", "10", "4")));
        take(Event::Delete(map("b", "11", "1")));
        assert_eq!(lines(&mirror), ["a=4"]);
        take(Event::Init);
        take(Event::InitApply(map("c", "12", "1")));
        assert_eq!(lines(&mirror), ["a=4"], "until the list is complete");
        take(Event::InitDone);
        assert_eq!(lines(&mirror), ["c=1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_once_is_current_and_one_that_keeps_failing_is_not() {
        let mirror = Mirror::<String>::new("ConfigMaps of a test", watch::Sender::new(()));
        mirror.take(Event::<ConfigMap>::Init, line);
        mirror.failed(&watcher::Error::NoResourceVersion);
        let error = mirror.ready().await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot list and watch ConfigMaps of a test: no metadata"),
            "{error}"
        );
        mirror.take(Event::<ConfigMap>::InitDone, line);
        assert_eq!(mirror.ready().await, Ok(()));
        mirror.failed(&watcher::Error::NoResourceVersion);
        mirror.failed(&watcher::Error::NoResourceVersion);
        assert!(mirror.values().is_ok());
        mirror.failed(&watcher::Error::NoResourceVersion);
        assert!(mirror.values().is_err());
        // A watch without events is silent: only the end of the failures shows that it works again.
        tokio::time::advance(FAILURE_TTL).await;
        assert!(mirror.values().is_ok());
    }
}
