//! Two controllers, one with a wrong clock, and an API server that tells its time.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use http::header::DATE;
use http::{Method, Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::keyring::tests::{NAME, believes};
use super::*;

const QUARTER: Duration = Duration::from_secs(90 * 24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
struct State {
    /// Like `secrets/tls`.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Like `PUT secrets/tls`.
    writes: Vec<String>,
    /// How often its time was requested.
    compared: u32,
}

/// Like the real one it has a `Date` in each response, and rejects a write of another version.
#[derive(Debug, Clone, Default)]
struct Server(Arc<Mutex<State>>);

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    /// Starts a controller with this clock.
    fn keep(&self, wall: fn() -> SystemTime) -> (Arc<Presented>, JoinHandle<()>) {
        let kept = Kept {
            secret: "portolan/tls".parse().unwrap(),
            bundle: "portolan/ca".parse().unwrap(),
            name: NAME.to_owned(),
        };
        let presented = Presented::none();
        let keeper = Keeper::with_clock(self.client(), kept, wall);
        let task = tokio::spawn(keeper.follow(presented.clone()));
        (presented, task)
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let (code, answer) = match parts.uri.path() {
            "/version" => {
                self.state().compared += 1;
                (200, json!({"major": "1"}))
            }
            path => {
                let path = path.strip_prefix("/api/v1/namespaces/portolan/").unwrap();
                let object = serde_json::from_slice(&body).unwrap_or_default();
                self.state().answer(&parts.method, path, object)
            }
        };
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now());
        let response = Response::builder().status(code).header(DATE, date.unwrap());
        let body = Full::new(Bytes::from(answer.to_string()));
        Ok(response.body(body).unwrap())
    }

    /// Whether an agent with the published CAs accepts this certificate now.
    fn believed(&self, presented: &Presented) -> Result<(), rustls::Error> {
        let map = self.state().objects["configmaps/ca"].clone();
        let bundle = map["data"]["ca.crt"].as_str().unwrap();
        believes(
            bundle,
            &presented.pair_for_tests(),
            seconds(SystemTime::now()),
        )
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, object: Value) -> (u16, Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key = match *method {
            Method::POST => format!("{path}/{name}"),
            _ => path.to_owned(),
        };
        let present = self.objects.get(&key).cloned();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        match (method.as_str(), present) {
            ("GET", Some(object)) => (200, object),
            ("POST", None) => (201, self.write(method, key, object)),
            ("PUT", Some(present)) if version(&present) == version(&object) => {
                (200, self.write(method, key, object))
            }
            ("POST" | "PUT", Some(_)) => refusal(409, "Conflict"),
            _ => refusal(404, "NotFound"),
        }
    }

    fn write(&mut self, method: &Method, key: String, object: Value) -> Value {
        self.writes.push(format!("{method} {key}"));
        self.put(key, object)
    }

    fn put(&mut self, key: String, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(key, object.clone());
        object
    }
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "message": reason, "reason": reason,
    });
    (code, status)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

fn ahead() -> SystemTime {
    SystemTime::now() + QUARTER
}

fn behind() -> SystemTime {
    SystemTime::now() - QUARTER
}

#[tokio::test(start_paused = true)]
async fn a_controller_with_a_wrong_clock_issues_nothing_and_shows_what_the_others_issue() {
    let clocks: [fn() -> SystemTime; 2] = [ahead, behind];
    for wrong in clocks {
        let server = Server::default();
        let (first, wrong) = server.keep(wrong);
        sleep(HOUR).await;
        assert_eq!(server.state().writes, [""; 0], "nothing is there to show");
        let (second, right) = server.keep(SystemTime::now);
        sleep(HOUR).await;
        let created = ["POST secrets/tls", "POST configmaps/ca"];
        assert_eq!(server.state().writes, created);
        for presented in [&first, &second] {
            assert_eq!(server.believed(presented), Ok(()));
        }
        wrong.abort();
        right.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyring_from_the_future_is_corrected_by_a_controller_whose_clock_is_right() {
    let server = Server::default();
    let left = Keyring::new(NAME, seconds(ahead())).unwrap();
    let text = ByteString(serde_json::to_vec(&left).unwrap());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("tls".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEYRING.to_owned(), text)])),
        ..Secret::default()
    };
    let secret = serde_json::to_value(secret).unwrap();
    server.state().put("secrets/tls".to_owned(), secret);
    let (first, wrong) = server.keep(ahead);
    sleep(HOUR).await;
    assert_eq!(server.state().writes, ["POST configmaps/ca"]);
    assert!(server.believed(&first).is_err(), "it is not valid yet");
    let (second, right) = server.keep(SystemTime::now);
    sleep(HOUR).await;
    // Each of the two would renew the certificate of the other for ever.
    let corrected = ["POST configmaps/ca", "PUT secrets/tls", "PUT configmaps/ca"];
    assert_eq!(server.state().writes, corrected);
    for presented in [&first, &second] {
        assert_eq!(server.believed(presented), Ok(()));
    }
    wrong.abort();
    right.abort();
}

#[tokio::test(start_paused = true)]
async fn the_clock_is_compared_only_before_a_certificate_is_issued() {
    let server = Server::default();
    let (_, right) = server.keep(SystemTime::now);
    sleep(HOUR).await;
    right.abort();
    // A certificate is renewed after 54 days.
    let (presented, late) = server.keep(|| SystemTime::now() + QUARTER / 2);
    sleep(HOUR).await;
    assert_eq!(server.believed(&presented), Ok(()));
    assert_eq!(server.state().compared, 1);
    late.abort();
}

#[test]
fn the_same_difference_is_one_problem_and_another_direction_is_a_new_one() {
    let differs = |seconds, direction| KeptError::Clock(ClockError::Differs { seconds, direction });
    let one = differs(70, "behind");
    assert!(one.is_same(&differs(71, "behind")));
    assert!(!one.is_same(&differs(70, "ahead of")));
    assert!(!one.is_same(&KeptError::Silent));
    assert!(KeptError::Silent.is_same(&KeptError::Silent));
}
