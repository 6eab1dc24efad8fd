//! Leader election with a Lease. The leader writes objects; all controllers plan and serve.
//!
//! Touches: the API server (one Lease), the clock.

mod candidate;

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

pub use candidate::{Candidate, Decision, Seen, Terms};

use crate::auth::Named;
use crate::leading::Leading;

/// How to check whether a controller leads, for messages.
pub const CHECK_LEADER: &str = "check that a controller leads (`kubectl get lease -A | grep portolan`, then the log of \
                                its holder)";

/// A unique name for this controller process: the host name, a number and the process ID.
pub fn own_name() -> String {
    let host = rustix::system::uname();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let number = since.unwrap_or_default().as_millis();
    let host = host.nodename().to_string_lossy();
    format!("{host}_{number:x}_{}", std::process::id())
}

/// The namespace and name of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A text that is not the name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not the name of a Lease; write NAMESPACE/NAME")]
pub struct LeaseNameError {
    /// The invalid text.
    pub text: String,
}

impl std::str::FromStr for LeaseName {
    type Err = LeaseNameError;

    fn from_str(text: &str) -> Result<Self, LeaseNameError> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self {
                    namespace: namespace.into(),
                    name: name.into(),
                })
            }
            _ => Err(LeaseNameError { text: text.into() }),
        }
    }
}

/// Takes part in the election while it runs.
pub struct Elector {
    api: Api<Lease>,
    lease: LeaseName,
    /// The owner of a lease that is created here.
    owner: Option<(Api<ConfigMap>, String)>,
    name: String,
    candidate: Candidate,
    terms: Terms,
    start: Instant,
    /// Until when this controller leads.
    leads: watch::Sender<Option<Instant>>,
    /// Whether the last attempt failed and was logged.
    troubled: bool,
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector")
            .field("lease", &self.lease)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Elector {
    /// An elector with this unique name, and until when it leads. A missing lease is created; it is owned by the
    /// ConfigMap `owner` if that is in the same namespace.
    pub fn new(
        client: Client,
        lease: LeaseName,
        owner: Option<Named>,
        name: String,
    ) -> (Self, Leading) {
        let (leads, until) = watch::channel(None);
        let terms = Terms::default();
        let owner = owner.filter(|owner| owner.namespace == lease.namespace);
        let maps = Api::namespaced(client.clone(), &lease.namespace);
        let elector = Self {
            api: Api::namespaced(client, &lease.namespace),
            owner: owner.map(|owner| (maps, owner.name)),
            lease,
            candidate: Candidate::new(name.clone(), terms),
            name,
            terms,
            start: Instant::now(),
            leads,
            troubled: false,
        };
        (elector, Leading::elected(until))
    }

    /// Takes part until `end` completes, then releases the lease, so that another controller leads at once.
    pub async fn run(mut self, end: impl Future<Output = ()>) {
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = self.turn() => {}
                () = &mut end => break,
            }
            tokio::select! {
                () = sleep(self.terms.every) => {}
                () = &mut end => break,
            }
        }
        self.leads.send_replace(None);
        if self.candidate.leads(self.now()) {
            // If the release fails, the next leader waits until the lease expires.
            if let Ok(Ok(())) = timeout(self.terms.every, self.write("")).await {
                let LeaseName { namespace, name } = &self.lease;
                info!("released Lease {namespace}/{name}, so that another controller can lead");
            }
        }
    }

    async fn turn(&mut self) {
        let begun = self.now();
        let until = self.candidate.until();
        let left = until.and_then(|until| until.checked_sub(begun));
        let left = left.filter(|left| !left.is_zero());
        // An attempt may not take longer than the lease is trusted. Once that time is over, nothing depends on it.
        let limit = left.unwrap_or(self.terms.trust);
        match timeout(limit, self.attempt(begun)).await {
            Ok(Ok(())) => self.troubled = false,
            Ok(Err(error)) => self.complain(&error.to_string()),
            Err(_) => self.complain("the API server does not answer"),
        }
        self.announce(self.candidate.until().map(|until| self.start + until));
    }

    async fn attempt(&mut self, begun: Duration) -> kube::Result<()> {
        let found = self.api.get_opt(&self.lease.name).await?;
        let seen = found.as_ref().map(|lease| Seen {
            holder: holder(lease).to_owned(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        });
        if self.candidate.decide(seen, begun, self.now()) == Decision::Follow {
            return Ok(());
        }
        let name = self.name.clone();
        match self.put(found, &name).await {
            Ok(()) => self.candidate.wrote(begun),
            // Another controller was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write(&mut self, name: &str) -> kube::Result<()> {
        let found = self.api.get_opt(&self.lease.name).await?;
        let ours = found.filter(|lease| holder(lease) == self.name);
        match ours {
            Some(lease) => self.put(Some(lease), name).await,
            None => Ok(()),
        }
    }

    /// Writes a name into the lease that was read. The server rejects the write if the lease has changed since.
    async fn put(&self, found: Option<Lease>, name: &str) -> kube::Result<()> {
        let now = MicroTime(Timestamp::now());
        let params = PostParams::default();
        let exists = found.is_some();
        let mut lease = found.unwrap_or_default();
        lease.metadata.name = Some(self.lease.name.clone());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(name) {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count + 1));
        }
        spec.holder_identity = Some(name.to_owned());
        spec.lease_duration_seconds = i32::try_from(self.terms.lasts.as_secs()).ok();
        spec.renew_time = Some(now);
        if exists {
            self.api.replace(&self.lease.name, &params, &lease).await?;
        } else {
            lease.metadata.owner_references = self.owner().await?.map(|owner| vec![owner]);
            self.api.create(&params, &lease).await?;
        }
        Ok(())
    }

    /// The ConfigMap that owns the lease; `None` if it does not exist, since the election does not depend on it.
    async fn owner(&self) -> kube::Result<Option<OwnerReference>> {
        let Some((maps, name)) = &self.owner else {
            return Ok(None);
        };
        let found = maps.get_opt(name).await?;
        Ok(found.and_then(|map| map.owner_ref(&())))
    }

    /// Announces until when this controller leads, and logs a change.
    fn announce(&self, until: Option<Instant>) {
        let now = Instant::now();
        let until = until.filter(|until| now < *until);
        let before = self.leads.send_replace(until);
        let led = before.is_some_and(|before| now < before);
        if until.is_some() && !led {
            info!(
                name = self.name,
                "this controller leads: it writes objects such as ProxyPlans"
            );
        } else if until.is_none() && before.is_some() {
            let LeaseName { namespace, name } = &self.lease;
            info!(
                name = self.name,
                "this controller no longer leads; it goes on planning and serving; Lease {namespace}/{name} names \
                 the leader"
            );
        }
    }

    fn complain(&mut self, problem: &str) {
        if !std::mem::replace(&mut self.troubled, true) {
            let LeaseName { namespace, name } = &self.lease;
            warn!(
                "Lease {namespace}/{name}: {problem}; retrying, no leader can be elected meanwhile; check that \
                 this controller may get, create and update leases.coordination.k8s.io there"
            );
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use hyper::{Method, Request, Response};
    use kube::client::Body;

    use super::*;

    #[test]
    fn a_lease_is_named_by_namespace_and_name() {
        let name: LeaseName = "kube-system/portolan".parse().unwrap();
        assert_eq!((&*name.namespace, &*name.name), ("kube-system", "portolan"));
        for wrong in ["portolan", "/portolan", "a/", "a/b/c", ""] {
            assert!(wrong.parse::<LeaseName>().is_err(), "{wrong}");
        }
    }

    /// An API server with one Lease. Each request takes 20 ms.
    #[derive(Debug, Clone, Default)]
    struct Server {
        lease: Arc<Mutex<Option<Lease>>>,
        away: Arc<AtomicBool>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move { server.answer(request).await }
            });
            Client::new(service, "default")
        }

        async fn answer(&self, request: Request<Body>) -> std::io::Result<Response<Body>> {
            sleep(Duration::from_millis(20)).await;
            if self.away.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut lease = self.lease.lock().unwrap();
            if method != Method::GET {
                let mut written: Lease = serde_json::from_slice(&body).unwrap();
                let version = lease.as_ref().map_or(0, |lease| {
                    let version = lease.metadata.resource_version.as_deref();
                    version.unwrap().parse().unwrap()
                });
                let next: u64 = version + 1;
                written.metadata.resource_version = Some(next.to_string());
                *lease = Some(written);
            }
            let (code, body) = match &*lease {
                Some(lease) => (200, serde_json::to_vec(lease).unwrap()),
                None => {
                    let status = r#"{"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}"#;
                    (404, status.into())
                }
            };
            let response = Response::builder().status(code);
            Ok(response.body(Body::from(body)).unwrap())
        }
    }

    /// Otherwise no controller would lead until it is restarted: no plan would be published, and no rollout would go on.
    #[tokio::test(start_paused = true)]
    async fn the_only_controller_leads_again_after_the_api_server_was_away() {
        let server = Server::default();
        let lease = "portolan/controller".parse().unwrap();
        let (elector, leading) = Elector::new(server.client(), lease, None, "a".into());
        let run = tokio::spawn(elector.run(std::future::pending()));
        sleep(Duration::from_secs(5)).await;
        assert!(leading.now());
        for away in [5, 11, 60, 3600] {
            server.away.store(true, Ordering::Relaxed);
            sleep(Duration::from_secs(away)).await;
            assert_eq!(leading.now(), away < 8, "{away} s");
            server.away.store(false, Ordering::Relaxed);
            sleep(Duration::from_secs(5)).await;
            assert!(leading.now(), "after {away} s");
        }
        run.abort();
    }
}
