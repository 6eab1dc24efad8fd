//! A fake API server with faults that a real one does not show on demand.
//!
//! Like the real one it rejects unknown resources, ends its lists with a bookmark and keeps watches open.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::Client;
use serde_json::{Value, json};

/// The response to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// An API error.
    Refusal(u16, &'static str),
    /// A page of a list.
    Page(Value),
    /// Events, after which the stream stays open.
    Stays(Vec<String>),
    /// Events, after which the server ends the stream.
    Ends(Vec<String>),
    /// No response.
    Nothing,
    /// The connection breaks.
    Broken,
}

type Script = BTreeMap<&'static str, VecDeque<Reply>>;

/// The server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// The next responses for a resource (`nodes`, `services`, …). Afterwards it is empty, and its watches stay open.
    pub(crate) fn answers(
        self,
        resource: &'static str,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        self.script
            .lock()
            .unwrap()
            .entry(resource)
            .or_default()
            .extend(replies);
        self
    }

    /// The queries for a resource so far.
    pub(crate) fn asked(&self, resource: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let of_resource = asked.iter().filter(|uri| resource_of(uri) == resource);
        of_resource.cloned().collect()
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let reply = server.reply(&request.uri().to_string());
            async move { respond(reply).await }
        });
        Client::new(service, "default")
    }

    fn reply(&self, uri: &str) -> Reply {
        self.asked.lock().unwrap().push(uri.to_owned());
        let mut script = self.script.lock().unwrap();
        let scripted = script
            .get_mut(resource_of(uri))
            .and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| {
            let streams = uri.contains("sendInitialEvents=true");
            Reply::Stays(Vec::from_iter(streams.then(|| end_of_list("1"))))
        })
    }
}

fn resource_of(uri: &str) -> &str {
    let path = uri.split('?').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

async fn respond(reply: Reply) -> Result<Response<BoxBody<Bytes, Infallible>>, std::io::Error> {
    let (status, lines, stays) = match reply {
        Reply::Refusal(code, message) => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "message": message, "reason": "Test",
            });
            (code, vec![status.to_string()], false)
        }
        Reply::Page(page) => (200, vec![page.to_string()], false),
        Reply::Stays(events) => (200, events, true),
        Reply::Ends(events) => (200, events, false),
        Reply::Nothing => std::future::pending().await,
        Reply::Broken => return Err(std::io::ErrorKind::ConnectionRefused.into()),
    };
    let frames = lines
        .into_iter()
        .map(|line| Ok(Frame::data(Bytes::from(format!("{line}\n")))));
    let frames = futures::stream::iter(frames);
    let body = if stays {
        BodyExt::boxed(StreamBody::new(frames.chain(futures::stream::pending())))
    } else {
        BodyExt::boxed(StreamBody::new(frames))
    };
    Ok(Response::builder().status(status).body(body).unwrap())
}

/// The bookmark that ends a streaming list.
pub(crate) fn end_of_list(version: &str) -> String {
    let mark = json!({"kind": "X", "apiVersion": "v1", "metadata": {
        "resourceVersion": version,
        "annotations": {"k8s.io/initial-events-end": "true"},
    }});
    event("BOOKMARK", &mark)
}

/// An event about an object, with its fields in the order of the real server.
pub(crate) fn event(what: &str, object: &Value) -> String {
    format!(r#"{{"type":"{what}","object":{object}}}"#)
}

/// A Node.
pub(crate) fn node(name: &str, version: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "resourceVersion": version, "labels": {"topology.kubernetes.io/zone": zone},
        },
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.1.1"}]},
    })
}
