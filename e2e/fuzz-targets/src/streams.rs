//! Both ends of the stream, and the plan on disk, which is made of the same messages.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use portolan_agent::plan_watch::PlanWatch;
use portolan_agent::receive::{Session, Step};
use portolan_agent::saved::SavedPlan;
use portolan_controller::store::Store;
use portolan_controller::stream::in_process;
use portolan_plan::{Entry, EntryKey, NodePlan};
use portolan_proto::item::HeldList;
use portolan_proto::wire;
use prost::Message as _;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tower::Service as _;
use xxhash_rust::xxh3::xxh3_64;

use crate::objects;

/// Maximum number of messages that are processed of one input.
const MAX_MESSAGES: usize = 64;

/// Messages of a controller, each with its length before it. The plan changes only at a commit with the right hash.
pub(crate) fn agent(bytes: &[u8]) {
    let plans = PlanWatch::default();
    let mut session = Session::new("node-a".into());
    let mut rest = bytes;
    for _ in 0..MAX_MESSAGES {
        let Ok(message) = wire::PlanMessage::decode_length_delimited(&mut rest) else {
            return;
        };
        let before = plans.peek(NodePlan::hash);
        let held = |key: &EntryKey| plans.peek(|plan| held_list(plan, key));
        match session.take(message, held) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                // The next stream begins with a new session.
                session = Session::new("node-a".into());
            }
            Ok(Step::More | Step::Gone(_) | Step::Age(_)) => {}
            Ok(Step::Commit(commit)) => {
                take(&plans, *commit);
                continue;
            }
        }
        assert_eq!(plans.peek(NodePlan::hash), before);
    }
}

fn held_list(plan: &NodePlan, key: &EntryKey) -> Option<HeldList> {
    match plan.held(key)? {
        (hash, Some(Entry::List(list))) => Some((hash, list.clone())),
        _ => None,
    }
}

/// A batch with a wrong hash changes nothing. With the right one, the hash of the plan is the sum of its entries.
fn take(plans: &PlanWatch, commit: portolan_agent::receive::Commit) {
    let before = plans.peek(NodePlan::hash);
    let (staged, expected) = (commit.staged, commit.expected);
    if let Err(mismatch) = plans.commit(staged.clone(), expected) {
        assert_eq!(plans.peek(NodePlan::hash), before);
        assert!(plans.commit(staged, mismatch.found).is_ok());
    }
    plans.peek(|plan| assert_eq!(plan.bucket_hashes().total(), plan.hash()));
}

/// A plan for `node-a`.
static STORE: LazyLock<Arc<Store>> = LazyLock::new(|| Arc::new(objects::store(CLUSTER)));

const CLUSTER: &str = "
{apiVersion: v1, kind: Node, metadata: {name: node-a}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}
";

/// The body of an agent's request. The controller ends the stream.
pub(crate) fn controller(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let Ok(runtime) = runtime else {
        return;
    };
    let ends = runtime.block_on(async {
        let (_ending, ends) = watch::channel(false);
        let ages = watch::channel(()).1;
        let mut service = in_process(STORE.clone(), Arc::default(), (Arc::default(), ages), ends);
        let body = Full::new(Bytes::copy_from_slice(bytes));
        let mut request = Request::new(Body::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static("/portolan.plan.v1.PlanStream/Watch");
        let answer: Result<_, Infallible> = service.call(request).await;
        let Ok(answer) = answer;
        let whole = answer.into_body().collect();
        // The clock is paused, so this takes no time.
        timeout(Duration::from_secs(600), whole).await.is_ok()
    });
    assert!(ends, "the stream does not end");
}

/// A saved plan without its checksum. A plan that can be read is written so that it is read again.
pub(crate) fn saved_plan(bytes: &[u8]) {
    let Ok(folder) = TempDir::new() else {
        return;
    };
    let saved = SavedPlan::new(folder.path(), "node-a");
    let file = [bytes, &xxh3_64(bytes).to_le_bytes()].concat();
    if std::fs::write(folder.path().join("plan"), file).is_err() {
        return;
    }
    let Ok(Some((plan, _))) = saved.read_of_any_node() else {
        return;
    };
    assert!(saved.write(&plan, SystemTime::UNIX_EPOCH).is_ok());
    let again = saved.read();
    let entries = |plan: &NodePlan| {
        let entries = plan.entries();
        let entries = entries.map(|(key, entry)| (key.clone(), entry.clone()));
        entries.collect::<BTreeMap<_, _>>()
    };
    let again = again.ok().flatten().map(|(plan, _)| entries(&plan));
    assert_eq!(again, Some(entries(&plan)));
}
