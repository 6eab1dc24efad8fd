//! With a paused clock and an API server that counts the reads.

use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::super::signature::tests::Signer;
use super::*;

/// An API server that publishes these keys; without keys, it rejects reads.
#[derive(Debug, Default)]
struct Publisher {
    keys: Mutex<Option<String>>,
    /// When the keys were read.
    reads: Mutex<Vec<Instant>>,
}

impl Publisher {
    fn new(keys: &[serde_json::Value]) -> Arc<Self> {
        let publisher = Self::default();
        publisher.publish(keys);
        Arc::new(publisher)
    }

    fn publish(&self, keys: &[serde_json::Value]) {
        *self.keys.lock().unwrap() = Some(json!({ "keys": keys }).to_string());
    }

    fn forbid(&self) {
        *self.keys.lock().unwrap() = None;
    }

    fn reads(&self) -> usize {
        self.reads.lock().unwrap().len()
    }

    fn answer(&self, path: &str) -> Response<Full<bytes::Bytes>> {
        let text = match path {
            KEYS_PATH => {
                self.reads.lock().unwrap().push(Instant::now());
                self.keys.lock().unwrap().clone()
            }
            DISCOVERY_PATH => Some(r#"{"issuer":"https://kubernetes.default.svc"}"#.to_owned()),
            _ => None,
        };
        let status = if text.is_some() {
            StatusCode::OK
        } else {
            StatusCode::FORBIDDEN
        };
        let answer = Response::builder().status(status);
        let answer = answer.header("date", "Thu, 26 Nov 2026 10:00:00 GMT");
        answer.body(Full::from(text.unwrap_or_default())).unwrap()
    }

    fn follow(self: &Arc<Self>) -> Arc<Issuer> {
        let publisher = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = publisher.answer(request.uri().path());
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        Issuer::follow(Client::new(service, "default"), Arc::default())
    }
}

fn ids(known: Option<Arc<Known>>) -> usize {
    known.map_or(0, |known| known.keys.len())
}

#[tokio::test(start_paused = true)]
async fn the_first_token_waits_for_keys_name_and_clock() {
    let publisher = Publisher::new(&[Signer::new().jwk("one")]);
    let issuer = publisher.follow();
    let known = issuer.known().await.unwrap();
    assert_eq!(known.keys.len(), 1);
    assert_eq!(
        known.name.as_deref(),
        Some("https://kubernetes.default.svc")
    );
    let printed = |time: SystemTime| jiff::Timestamp::try_from(time).unwrap().to_string();
    let time = printed(issuer.time().unwrap());
    assert_eq!(time, "2026-11-26T10:00:00Z");
    tokio::time::advance(Duration::from_secs(90)).await;
    assert_eq!(
        printed(known.time(Instant::now()).unwrap()),
        "2026-11-26T10:01:30Z"
    );
    assert_eq!(known.time(Instant::now() + MAX_CLOCK_AGE), None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_is_looked_for_at_most_every_30_seconds() {
    let (one, two) = (Signer::new(), Signer::new());
    let publisher = Publisher::new(&[one.jwk("one")]);
    let issuer = publisher.follow();
    assert_eq!(ids(issuer.known().await), 1);
    publisher.publish(&[one.jwk("one"), two.jwk("two")]);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(publisher.reads(), 1, "no token asked for it");
    issuer.want();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(ids(issuer.known().await), 2);
    let before = publisher.reads();
    // A flood of tokens with invented keys.
    for _ in 0..3000 {
        issuer.want();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let reads = publisher.reads() - before;
    assert!((9..=11).contains(&reads), "{reads} in 300 s");
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_known_keys_stay_and_reads_are_repeated() {
    let publisher = Publisher::new(&[]);
    publisher.forbid();
    let issuer = publisher.follow();
    assert!(
        issuer.known().await.is_none(),
        "tokens do not wait for ever"
    );
    assert_eq!(issuer.time(), None);
    publisher.publish(&[Signer::new().jwk("one")]);
    tokio::time::sleep(2 * INITIAL_BACKOFF).await;
    assert_eq!(ids(issuer.known().await), 1);
    publisher.forbid();
    let before = publisher.reads();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(ids(issuer.known().await), 1);
    let reads = publisher.reads() - before;
    assert!((12..=20).contains(&reads), "{reads} in an hour");
    // Keys of an unknown kind are as good as none.
    publisher.publish(&[json!({"kty": "AKP", "kid": "new"})]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(ids(issuer.known().await), 1);
}
