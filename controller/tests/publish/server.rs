//! A fake API server that stores objects and follows the test's instructions. Like the real one it validates objects
//! against the installed CRDs and does not know kinds without one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use portolan_crds::definitions;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The server.
#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    start: Instant,
    schemas: BTreeMap<String, Value>,
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    made: Vec<Made>,
    away: bool,
    /// Resources without an installed CRD.
    missing: BTreeSet<String>,
    /// Rejected objects, like `proxyplans/node-a`, with the status code.
    refused: BTreeMap<String, u16>,
    /// How long writes wait in the server.
    lag: Duration,
}

/// A request received by the server.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// When, since the start.
    pub(crate) at: Duration,
    /// Like `PATCH proxyplans/node-a/status`.
    pub(crate) what: String,
    /// The status code of the response.
    pub(crate) code: u16,
}

struct Asked {
    method: Method,
    resource: String,
    name: Option<String>,
    status: bool,
    query: String,
    body: Value,
}

impl Server {
    pub(crate) fn new() -> Self {
        let schemas = definitions().unwrap().map(|definition| {
            let resource = definition.object.pointer("/spec/names/plural").unwrap();
            let schema = "/spec/versions/0/schema/openAPIV3Schema";
            let schema = definition.object.pointer(schema).unwrap();
            (resource.as_str().unwrap().to_owned(), schema.clone())
        });
        Self(Arc::new(Mutex::new(State {
            start: Instant::now(),
            schemas: schemas.into(),
            objects: BTreeMap::new(),
            version: 0,
            made: Vec::new(),
            away: false,
            missing: BTreeSet::new(),
            refused: BTreeMap::new(),
            lag: Duration::ZERO,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    /// Makes the server unreachable, or reachable again.
    pub(crate) fn away(&self, away: bool) {
        self.state().away = away;
    }

    /// Removes or installs the CRD of a resource.
    pub(crate) fn missing(&self, resource: &str, missing: bool) {
        let mut state = self.state();
        if missing {
            state.missing.insert(resource.to_owned());
        } else {
            state.missing.remove(resource);
        }
    }

    /// Rejects requests for an object with a code, or stops doing so.
    pub(crate) fn refuse(&self, object: &str, code: Option<u16>) {
        let mut state = self.state();
        match code {
            Some(code) => state.refused.insert(object.to_owned(), code),
            None => state.refused.remove(object),
        };
    }

    /// Lets new writes wait in the server for this long. They take effect even if their client does not wait.
    pub(crate) fn lag(&self, lag: Duration) {
        self.state().lag = lag;
    }

    /// Changes or deletes an object as another client.
    pub(crate) fn edit(&self, resource: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        let key = (resource.to_owned(), name.to_owned());
        let mut object = state.objects.get(&key).cloned().unwrap_or_default();
        edit(&mut object);
        if object.is_null() {
            state.objects.remove(&key);
        } else {
            state.put(key, object);
        }
    }

    /// An object.
    pub(crate) fn get(&self, resource: &str, name: &str) -> Option<Value> {
        let key = (resource.to_owned(), name.to_owned());
        self.state().objects.get(&key).cloned()
    }

    /// The names of all objects of a resource.
    pub(crate) fn names(&self, resource: &str) -> Vec<String> {
        let state = self.state();
        let keys = state.objects.keys().filter(|(r, _)| r == resource);
        keys.map(|(_, name)| name.clone()).collect()
    }

    /// Takes the requests so far.
    pub(crate) fn take_made(&self) -> Vec<Made> {
        std::mem::take(&mut self.state().made)
    }

    /// Takes the writing requests so far.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let made = self.take_made().into_iter();
        let writes = made.filter(|made| !made.what.starts_with("GET"));
        writes.map(|made| made.what).collect()
    }

    async fn answer(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let path = parts.uri.path();
        let path = path
            .strip_prefix("/apis/proxy.portolan.dev/v1alpha1/")
            .unwrap();
        let mut words = path.split('/').map(str::to_owned);
        let asked = Asked {
            method: parts.method,
            resource: words.next().unwrap(),
            name: words.next(),
            status: words.next().is_some(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        let what = format!("{} {path}", asked.method);
        let lag = self.state().lag;
        if lag.is_zero() || asked.method == Method::GET {
            return self.carry_out(&asked, what);
        }
        let server = self.clone();
        let carried_out = tokio::spawn(async move {
            tokio::time::sleep(lag).await;
            server.carry_out(&asked, what)
        });
        carried_out.await.unwrap()
    }

    fn carry_out(&self, asked: &Asked, what: String) -> std::io::Result<Response<Full<Bytes>>> {
        let mut state = self.state();
        if state.away {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        let (code, answer) = state.answer(asked);
        let at = state.start.elapsed();
        state.made.push(Made { at, what, code });
        let body = Full::new(Bytes::from(answer.to_string()));
        Ok(Response::builder().status(code).body(body).unwrap())
    }
}

impl State {
    fn answer(&mut self, asked: &Asked) -> (u16, Value) {
        let Asked { resource, name, .. } = asked;
        if self.missing.contains(resource) {
            return refusal(404, "the server could not find the requested resource");
        }
        let named = format!("{resource}/{}", name.clone().unwrap_or_default());
        if let Some(code) = self.refused.get(&named) {
            return refusal(*code, "refused by the test");
        }
        let key = (resource.clone(), name.clone().unwrap_or_default());
        match (asked.method.as_str(), name) {
            ("GET", None) => (200, self.list(resource, &asked.query)),
            ("GET", Some(_)) => match self.objects.get(&key) {
                Some(object) => (200, object.clone()),
                None => refusal(404, "not found"),
            },
            ("POST", None) => self.create(asked),
            ("PATCH", Some(_)) => self.apply(&key, asked),
            ("DELETE", Some(_)) => match self.objects.remove(&key) {
                Some(object) => (200, object),
                None => refusal(404, "not found"),
            },
            _ => refusal(405, "not allowed"),
        }
    }

    fn list(&self, resource: &str, query: &str) -> Value {
        let word = |name: &str| {
            let words = query.split('&').filter_map(|word| word.split_once('='));
            let mut values = words.filter(|(n, _)| *n == name).map(|(_, value)| value);
            values.next().map(str::to_owned)
        };
        let limit: usize = word("limit").map_or(usize::MAX, |text| text.parse().unwrap());
        let start = word("continue").unwrap_or_default();
        let all = self.objects.iter().filter(|((r, _), _)| r == resource);
        let mut rest = all.filter(|((_, name), _)| *name >= start);
        let page: Vec<_> = rest.by_ref().take(limit).map(|(_, o)| o.clone()).collect();
        let next = rest.next().map(|((_, name), _)| name.clone());
        json!({"apiVersion": "v1", "kind": "List", "items": page,
               "metadata": {"resourceVersion": "1", "continue": next}})
    }

    fn create(&mut self, asked: &Asked) -> (u16, Value) {
        let name = asked.body["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (asked.resource.clone(), name);
        if self.objects.contains_key(&key) {
            return refusal(409, "already exists");
        }
        self.put(key.clone(), asked.body.clone());
        (201, self.objects[&key].clone())
    }

    fn apply(&mut self, key: &(String, String), asked: &Asked) -> (u16, Value) {
        assert!(
            asked.query.contains("fieldManager=portolan-controller"),
            "{}",
            asked.query
        );
        assert!(asked.query.contains("force=true"), "{}", asked.query);
        assert_eq!(asked.body["metadata"]["name"].as_str(), Some(&*key.1));
        let mut object = self.objects.get(key).cloned();
        if asked.status && object.is_none() {
            return refusal(404, "not found");
        }
        let object = object.get_or_insert_with(|| asked.body.clone());
        let part = if asked.status { "status" } else { "spec" };
        object[part] = asked.body[part].clone();
        if let Err(problem) = check(&self.schemas[&key.0], object, "") {
            return refusal(422, &problem);
        }
        let object = object.clone();
        self.put(key.clone(), object);
        (200, self.objects[key].clone())
    }

    /// Stores an object; a changed spec increments its generation.
    fn put(&mut self, key: (String, String), mut object: Value) {
        let old = self.objects.get(&key);
        let generation = old.map_or(1, |old| {
            let same = old["spec"] == object["spec"];
            old["metadata"]["generation"].as_u64().unwrap() + u64::from(!same)
        });
        self.version += 1;
        object["metadata"]["name"] = json!(key.1);
        object["metadata"]["generation"] = json!(generation);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key, object);
    }
}

fn refusal(code: u16, message: &str) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        _ => "Test",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "message": message, "reason": reason,
    });
    (code, status)
}

/// Validates a value against a schema: types, limits, enums, required and unknown fields.
pub(crate) fn check(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let limit = |field: &str| schema[field].as_u64().and_then(|n| usize::try_from(n).ok());
    let over = |field: &str, count: usize| limit(field).is_some_and(|most| count > most);
    let fits = match (schema["type"].as_str().unwrap(), value) {
        ("object", Value::Object(fields)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            for field in required.filter_map(Value::as_str) {
                if !fields.contains_key(field) {
                    return Err(format!("{path}.{field}: required"));
                }
            }
            for (name, field) in fields {
                if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                let Some(schema) = schema["properties"].get(name) else {
                    return Err(format!("{path}.{name}: unknown field"));
                };
                check(schema, field, &format!("{path}.{name}"))?;
            }
            true
        }
        ("array", Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"))?;
            }
            !over("maxItems", items.len())
        }
        ("string", Value::String(text)) => {
            let words = schema["enum"].as_array();
            let is_word = words.is_none_or(|words| words.contains(value));
            is_word && !over("maxLength", text.chars().count())
        }
        ("integer", Value::Number(number)) => {
            let number = number.as_i64().unwrap();
            schema["minimum"]
                .as_i64()
                .is_none_or(|least| number >= least)
                && schema["maximum"].as_i64().is_none_or(|most| number <= most)
        }
        ("boolean", Value::Bool(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let shown: String = value.to_string().chars().take(80).collect();
    Err(format!("{path}: {shown} does not fit the schema"))
}
