//! Makes calls to the API server. Accesses: the API server, nothing else.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, Resource};
use portolan_crds as crds;
use portolan_crds::{ProxyConfig, ProxyPlan, ProxyPlanSlice};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::content::ContentHash;
use super::plan::PlanContent;
use super::previous::Previous;
use super::write::{
    Act, Call, Failure, FailureClass, Kind, ListedPlan, ListedSlice, Outcome, Target,
};
use crate::leading::Leading;

/// The field manager. It takes back changes that others make to our fields.
const MANAGER: &str = "portolan-controller";
/// Timeout of a call, except a list.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of all pages of a list together.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Objects in one page of a list. Objects are dropped page by page.
const PAGE_SIZE: u32 = 100;
/// Maximum length of an error text in a log line, in characters.
const MAX_ERROR_CHARS: usize = 400;

/// The API clients of the three kinds.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    configs: Api<ProxyConfig>,
    plans: Api<ProxyPlan>,
    slices: Api<ProxyPlanSlice>,
}

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self {
            configs: Api::all(client.clone()),
            plans: Api::all(client.clone()),
            slices: Api::all(client),
        }
    }

    /// Makes a call and returns its outcome. What only the leader may do ends with its leadership: the next leader must
    /// not be overtaken by a write of this one.
    pub(super) async fn make(self, call: Box<Call>, mut leading: Leading) -> (Box<Call>, Outcome) {
        let for_all = call.target.is_for_all();
        let outcome = tokio::select! {
            // First: a request must not even begin after the end.
            biased;
            () = leading.ends(), if !for_all => Outcome::Abandoned,
            outcome = self.within_time(&call) => outcome,
        };
        (call, outcome)
    }

    /// The outcome of a call, at the latest after its timeout.
    async fn within_time(&self, call: &Call) -> Outcome {
        let longest = match call.act {
            Act::List => LIST_TIMEOUT,
            _ => CALL_TIMEOUT,
        };
        match tokio::time::timeout(longest, self.attempt(call)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome::Failed(failure(call, &error)),
            Err(_) => Outcome::Failed(Failure {
                class: FailureClass::Unreachable,
                text: format!("no answer within {} s", longest.as_secs()),
            }),
        }
    }

    async fn attempt(&self, call: &Call) -> kube::Result<Outcome> {
        let name = &call.name;
        match &call.act {
            Act::List => self.list(call.kind).await,
            Act::Read => self.read(call).await,
            Act::Create => {
                let config = ProxyConfig::new(name, crds::ProxyConfigSpec::default());
                let params = PostParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PostParams::default()
                };
                match self.configs.create(&params, &config).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Done),
                    created => created.map(|_| Outcome::Done),
                }
            }
            Act::ApplyPlan(spec) => {
                let plan = ProxyPlan::new(name, (**spec).clone());
                apply(&self.plans, name, &plan).await
            }
            Act::ApplySlice(spec) => {
                let mut slice = ProxyPlanSlice::new(name, (**spec).clone());
                slice.metadata.labels = Some(labels(&spec.scope));
                apply(&self.slices, name, &slice).await
            }
            Act::ApplyStatus(status) => apply_status(&self.plans, name, status).await,
            Act::ApplyConfigStatus(status) => apply_status(&self.configs, name, status).await,
            Act::Delete if call.kind == Kind::Slice => delete(&self.slices, name).await,
            Act::Delete => delete(&self.plans, name).await,
        }
    }

    async fn read(&self, call: &Call) -> kube::Result<Outcome> {
        if call.kind == Kind::Config {
            let config = self.configs.get_opt(&call.name).await?;
            return Ok(Outcome::Config(config.map(Box::new)));
        }
        let plan = self.plans.get_opt(&call.name).await?;
        let status = plan.and_then(|plan| plan.status);
        Ok(Outcome::Heartbeat(status.and_then(|s| heartbeat(&s))))
    }

    async fn list(&self, kind: Kind) -> kube::Result<Outcome> {
        Ok(match kind {
            Kind::Slice => Outcome::Slices(pages(&self.slices, listed_slice).await?),
            Kind::Plan | Kind::Config => Outcome::Plans(pages(&self.plans, listed_plan).await?),
        })
    }
}

async fn apply<K>(api: &Api<K>, name: &str, object: &K) -> kube::Result<Outcome>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object)).await?;
    Ok(Outcome::Done)
}

async fn apply_status<K>(
    api: &Api<K>,
    name: &str,
    status: &(impl Serialize + Sync),
) -> kube::Result<Outcome>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name},
        "status": status,
    });
    let params = PatchParams::apply(MANAGER).force();
    api.patch_status(name, &params, &Patch::Apply(object))
        .await?;
    Ok(Outcome::Done)
}

async fn delete<K>(api: &Api<K>, name: &str) -> kube::Result<Outcome>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Done),
        deleted => deleted.map(|_| Outcome::Done),
    }
}

/// Lists all objects of a kind. Of each object only the result of `keep` stays in memory.
async fn pages<K, T>(api: &Api<K>, keep: impl Fn(K) -> Option<T>) -> kube::Result<Vec<T>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default().limit(PAGE_SIZE);
    let mut kept = Vec::new();
    loop {
        let page = api.list(&params).await?;
        kept.extend(page.items.into_iter().filter_map(&keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(kept),
        }
    }
}

fn listed_plan(plan: ProxyPlan) -> Option<ListedPlan> {
    let status = plan.status.unwrap_or_default();
    Some(ListedPlan {
        node: plan.metadata.name?.into(),
        content: PlanContent::of(&plan.spec),
        previous: Previous::read(&status),
        heartbeat: heartbeat(&status),
    })
}

fn listed_slice(slice: ProxyPlanSlice) -> Option<ListedSlice> {
    let scope = &slice.spec.scope;
    let owner = match scope.kind {
        crds::SliceScopeKind::Node => Target::Plan(scope.name.as_str().into()),
        // A slice without a bucket was not written by us. It counts as one of bucket 0, whose reconciler deletes it.
        _ => Target::Bucket(slice.spec.bucket.unwrap_or_default()),
    };
    Some(ListedSlice {
        owner,
        name: slice.metadata.name?,
        content: ContentHash::of(&slice.spec),
    })
}

fn heartbeat(status: &crds::ProxyPlanStatus) -> Option<std::time::SystemTime> {
    Some(status.heartbeat_time.as_ref()?.0.into())
}

/// Labels for `kubectl get proxyplanslices -l`.
fn labels(scope: &crds::SliceScope) -> std::collections::BTreeMap<String, String> {
    let kind = match scope.kind {
        crds::SliceScopeKind::Cluster => "cluster",
        crds::SliceScopeKind::Zone => "zone",
        crds::SliceScopeKind::Node => "node",
    };
    let own = ("proxy.portolan.dev/scope".to_owned(), kind.to_owned());
    // Names of nodes may be longer than the values of labels.
    let fits = !scope.name.is_empty() && scope.name.len() <= crds::limit::LABEL_CHARS;
    let name = fits.then(|| (format!("proxy.portolan.dev/{kind}"), scope.name.clone()));
    std::iter::once(own).chain(name).collect()
}

fn failure(call: &Call, error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        let class = match error {
            kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => FailureClass::Other,
            _ => FailureClass::Unreachable,
        };
        let text = super::content::shortened(&chain(error), MAX_ERROR_CHARS);
        return Failure { class, text };
    };
    let Status { code, message, .. } = &**status;
    let about_status = matches!(call.act, Act::ApplyStatus(_) | Act::ApplyConfigStatus(_));
    let class = match code {
        401 | 403 => FailureClass::Forbidden,
        // Server-side apply creates objects; only a status requires an existing one.
        404 if about_status => FailureClass::NoSuchObject,
        404 => FailureClass::NoSuchKind,
        400 | 409 | 413 | 422 => FailureClass::Refused,
        429 | 503 | 504 => FailureClass::Unreachable,
        500.. => FailureClass::Trouble,
        _ => FailureClass::Other,
    };
    let text = super::content::shortened(&format!("{code}: {message}"), MAX_ERROR_CHARS);
    Failure { class, text }
}

/// An error with its sources: the outermost one often does not name the cause.
fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}
