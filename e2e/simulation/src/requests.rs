//! Requests of controllers to the simulated API server: lists, watches, and Leases with optimistic concurrency.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use portolan_planner::model::Kind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::ApiServer;
use crate::link::Passage;
use crate::watching::{WatchSender, kind_at};

/// Time of a request to the server, and of its answer.
const LATENCY: Duration = Duration::from_millis(2);
/// The collection of Leases.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/portolan/leases";

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A client of a run of the controller in a slot.
pub(crate) fn client(api: &Arc<ApiServer>, slot: usize, run: u64) -> Client {
    let api = api.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let requests = Requests {
            api: api.clone(),
            slot,
            run,
        };
        requests.answer(request)
    });
    Client::new(service, "portolan")
}

/// The requests of a run of a controller.
struct Requests {
    api: Arc<ApiServer>,
    slot: usize,
    run: u64,
}

impl Requests {
    async fn answer(self, request: Request<Body>) -> Result<Answer, io::Error> {
        let generation = self.passes(None).await?;
        sleep(LATENCY).await;
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let answer = match kind_at(path) {
            Some(kind) => {
                let lag = self.api.content().lag(self.slot, kind);
                sleep(lag).await;
                self.read(kind, parts.uri.query().unwrap_or_default())
            }
            None if path.starts_with(LEASES) => {
                let body = body.collect_bytes().await.map_err(io::Error::other)?;
                self.lease(&parts.method, path, &body)
            }
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        };
        sleep(LATENCY).await;
        // The answer is lost if the connection has broken.
        self.passes(Some(generation)).await?;
        answer
    }

    /// Waits until the connection carries data. Returns its generation.
    async fn passes(&self, generation: Option<u64>) -> Result<u64, io::Error> {
        let mut changes = self.api.changes();
        loop {
            changes.mark_unchanged();
            let link = self.api.content().links.get(self.slot).cloned();
            let link = link.unwrap_or_default();
            let is_broken = generation.is_some_and(|generation| generation != link.generation);
            if is_broken || link.passage == Passage::Cut {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            if link.passage == Passage::Up {
                return Ok(link.generation);
            }
            changes.changed().await.map_err(io::Error::other)?;
        }
    }

    /// A list, or a watch.
    fn read(&self, kind: Kind, query: &str) -> Result<Answer, io::Error> {
        let value = |name| parameter(query, name);
        if value("watch") != Some("true") {
            return self.list(kind);
        }
        if value("sendInitialEvents") == Some("true") {
            self.api.content().begins_list(self.run, kind);
            return Ok(self.watch(kind, None));
        }
        let version = value("resourceVersion").and_then(|text| text.parse().ok());
        let after: u64 = version.unwrap_or(0);
        let content = self.api.content();
        let is_known = (content.compacted..=content.revision).contains(&after);
        drop(content);
        match is_known {
            true => Ok(self.watch(kind, Some(after))),
            false => failure(StatusCode::GONE, "Expired"),
        }
    }

    fn watch(&self, kind: Kind, after: Option<u64>) -> Answer {
        let watch = WatchSender::new(&self.api, (self.slot, self.run), kind, after);
        Response::new(StreamBody::new(watch.into_frames()).boxed_unsync())
    }

    fn list(&self, kind: Kind) -> Result<Answer, io::Error> {
        let mut content = self.api.content();
        content.begins_list(self.run, kind);
        let items: Vec<Value> = content.objects(kind).cloned().collect();
        content.listed(self.run, kind);
        let metadata = json!({"resourceVersion": content.revision.to_string()});
        let list =
            json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
        whole(StatusCode::OK, &list)
    }

    /// Reads, creates or replaces a Lease.
    fn lease(&self, method: &Method, path: &str, body: &[u8]) -> Result<Answer, io::Error> {
        let mut content = self.api.content();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = match path
            .strip_prefix(LEASES)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(name) => name.to_owned(),
            None => sent["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
        let stored = content.leases.get(&name);
        if *method == Method::GET {
            return match stored {
                Some((_, lease)) => whole(StatusCode::OK, lease),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            };
        }
        let held = stored.map(|(revision, _)| revision.to_string());
        if held.as_deref() != sent["metadata"]["resourceVersion"].as_str() {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        content.revision += 1;
        let revision = content.revision;
        let mut lease = sent;
        lease["metadata"]["resourceVersion"] = json!(revision.to_string());
        let answer = whole(StatusCode::OK, &lease);
        content.leases.insert(name, (revision, lease));
        answer
    }
}

/// A parameter of a query.
fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

fn whole(status: StatusCode, content: &Value) -> Result<Answer, io::Error> {
    let body = Full::new(Bytes::from(content.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder().status(status).body(body);
    answer.map_err(io::Error::other)
}

fn failure(code: StatusCode, reason: &str) -> Result<Answer, io::Error> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code.as_u16(),
        "message": reason,
        "reason": reason,
    });
    whole(code, &status)
}
