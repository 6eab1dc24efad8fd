//! With a paused clock and a reviewer that counts its calls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use serde_json::{Value, json};

use super::super::claims::tests::token;
use super::super::lanes::MAX_REVIEW_WAIT;
use super::super::reviewer::Reviewed;
use super::super::signature::Keys;
use super::super::signature::tests::Signer;
use super::*;

/// A client that is not on a node.
pub(in crate::auth) const SOURCE: Source = Source {
    address: None,
    is_node: false,
};
/// The issuer of all tokens.
const ISSUER: &str = "https://kubernetes.default.svc";

/// Accepts tokens that were issued for nodes; takes 100 ms for each.
#[derive(Debug, Default)]
pub(in crate::auth) struct Knowing {
    asked: AtomicUsize,
    /// Nodes whose pod was deleted.
    pub(in crate::auth) deleted: Mutex<Vec<String>>,
    pub(in crate::auth) unreachable: AtomicBool,
    /// The start of 1970 by the clock of the API server. Without it, no token expires.
    pub(in crate::auth) start: Mutex<Option<Instant>>,
}

impl Knowing {
    pub(in crate::auth) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn has_expired(&self, claims: &Claims) -> bool {
        let start = *self.start.lock().unwrap();
        let now = start.map(|start| SystemTime::UNIX_EPOCH + start.elapsed());
        let end = claims.expires;
        now.zip(end).is_some_and(|(now, end)| end <= now)
    }
}

impl Reviewer for Knowing {
    fn review<'a>(
        &'a self,
        token: &'a Token,
        audience: Option<&'a str>,
    ) -> BoxFuture<'a, Reviewed<TokenReviewStatus>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            if self.unreachable.load(Ordering::SeqCst) {
                return Err("connection refused".into());
            }
            let claims = Claims::read(token).unwrap();
            let [first, node, pod] = &*claims.audiences else {
                panic!("{claims:?}");
            };
            let deleted = self.deleted.lock().unwrap().contains(node);
            let matches = audience == Some(first.as_str());
            let status = if matches && !deleted && !self.has_expired(&claims) {
                json!({
                    "authenticated": true, "audiences": [audience],
                    "user": {
                        "username": claims.subject,
                        "extra": {
                            "authentication.kubernetes.io/node-name": [node],
                            "authentication.kubernetes.io/pod-name": [pod],
                        },
                    },
                })
            } else {
                json!({"error": "[invalid bearer token, service account token has been invalidated]"})
            };
            Ok(serde_json::from_value(status).unwrap())
        })
    }

    fn may_get<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> BoxFuture<'a, Reviewed<bool>> {
        Box::pin(async { Ok(false) })
    }
}

fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// The claims of a token for a node, which expires at this number of seconds since 1970.
pub(in crate::auth) fn claims(node: &str, pod: &str, expires: u64) -> Value {
    json!({
        "aud": ["portolan-controller", node, pod],
        "sub": "system:serviceaccount:portolan:agent",
        "iss": ISSUER, "exp": expires,
        "kubernetes.io": {"namespace": "portolan", "node": {"name": node, "uid": "1"}},
    })
}

/// The claims of a token that is valid for an hour.
fn valid(node: &str) -> Value {
    let end = SystemTime::now() + Duration::from_secs(3600);
    claims(node, "agent", since_1970(end))
}

/// A token whose signature cannot be verified.
pub(in crate::auth) fn of_node(node: &str) -> Token {
    token(&valid(node))
}

pub(in crate::auth) fn tokens() -> (Arc<Knowing>, Arc<Tokens>) {
    tokens_of(Arc::default())
}

fn tokens_of(issuer: Arc<Issuer>) -> (Arc<Knowing>, Arc<Tokens>) {
    let options = TokenOptions {
        audience: "portolan-controller".into(),
        account: "portolan/agent".parse().unwrap(),
        review_period: Duration::from_secs(600),
    };
    let knowing = Arc::new(Knowing::default());
    let tokens = Tokens::new(options, knowing.clone(), issuer, Arc::default());
    (knowing, tokens)
}

fn keys(signer: &Signer) -> Keys {
    let set = json!({"keys": [signer.jwk("one")]});
    Keys::read(&set.to_string()).unwrap()
}

/// Tokens of an API server with this key, whose clock has this time.
pub(in crate::auth) fn verified(signer: &Signer, time: SystemTime) -> (Arc<Knowing>, Arc<Tokens>) {
    tokens_of(Issuer::of_test(keys(signer), Some(ISSUER), time))
}

#[tokio::test(start_paused = true)]
async fn concurrent_uses_of_a_token_cost_one_review_a_minute() {
    let (knowing, tokens) = tokens();
    let token = of_node("node-a");
    let together = (0..50).map(|_| tokens.identity(&token, SOURCE));
    let verdicts = join_all(together).await;
    assert!(
        verdicts
            .iter()
            .all(|v| &*v.as_ref().unwrap().node == "node-a")
    );
    assert_eq!(knowing.asked(), 1);
    tokio::time::advance(Duration::from_secs(59)).await;
    tokens.identity(&token, SOURCE).await.unwrap();
    assert_eq!(knowing.asked(), 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    tokens.identity(&token, SOURCE).await.unwrap();
    assert_eq!(knowing.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn five_thousand_agents_that_connect_together_are_reviewed_within_the_rate() {
    let signer = Signer::new();
    let (knowing, tokens) = verified(&signer, SystemTime::now());
    let nodes = (0..5000).map(|number| valid(&format!("node-{number}")));
    let all: Vec<_> = nodes.map(|claims| signer.token("one", &claims)).collect();
    let start = Instant::now();
    // Behind one address, as by a load balancer.
    let verdicts = join_all(all.iter().map(|token| tokens.identity(token, SOURCE))).await;
    let busy = verdicts
        .iter()
        .filter(|verdict| matches!(verdict, Err(refusal) if refusal.reason == Reason::busy));
    let (busy, reviews) = (busy.count(), knowing.asked());
    assert_eq!(reviews + busy, 5000);
    // The burst, and the reviews that fit into the longest wait.
    assert_eq!(reviews, 200 + 100 * 5);
    assert!(start.elapsed() <= MAX_REVIEW_WAIT + Duration::from_millis(200));
    let message = verdicts.into_iter().find_map(Result::err).unwrap().message;
    assert!(message.contains("retry"), "{message}");
}

/// S-232.
#[tokio::test(start_paused = true)]
async fn forged_and_unknown_tokens_take_no_review_from_agents() {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let (knowing, tokens) = verified(&signer, SystemTime::now());
    for number in 0..500 {
        let forged = stranger.token("one", &valid(&format!("node-{number}")));
        let refusal = tokens.identity(&forged, SOURCE).await.unwrap_err();
        assert_eq!(refusal.reason, Reason::forged);
    }
    assert_eq!(knowing.asked(), 0, "forged tokens cost no review");
    let unknown = (0..1000).map(|number| stranger.token("two", &valid(&format!("node-{number}"))));
    let unknown: Vec<_> = unknown.collect();
    let flood = join_all(unknown.iter().map(|token| tokens.identity(token, SOURCE)));
    let nodes = (0..200).map(|number| valid(&format!("node-{number}")));
    let agents: Vec<_> = nodes.map(|claims| signer.token("one", &claims)).collect();
    let agents = join_all(agents.iter().map(|token| tokens.identity(token, SOURCE)));
    let (flood, agents) = futures::future::join(flood, agents).await;
    for verdict in agents {
        verdict.unwrap();
    }
    let reviewed = flood.iter().filter(|verdict| verdict.is_ok()).count();
    assert_eq!(reviewed, 50 + 10 * 5, "half of the lane of others");
}

/// Only the API server knows all of its issuers and keys.
#[tokio::test(start_paused = true)]
async fn a_token_of_another_issuer_or_key_is_left_to_the_api_server() {
    let signer = Signer::new();
    let issuer = Issuer::of_test(keys(&signer), Some("https://new"), SystemTime::now());
    let (knowing, tokens) = tokens_of(issuer);
    let token = signer.token("one", &valid("node-a"));
    tokens.identity(&token, SOURCE).await.unwrap();
    let other = Signer::new().token("two", &valid("node-b"));
    tokens.identity(&other, SOURCE).await.unwrap();
    assert_eq!(knowing.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_the_api_server_decides_whether_a_token_has_expired() {
    let signer = Signer::new();
    let days = Duration::from_secs(90 * 24 * 3600);
    let now = SystemTime::now();
    // The clock of this machine is months behind, right, and months ahead.
    for time in [now + days, now, now - days] {
        let (knowing, tokens) = verified(&signer, time);
        let ending = |end: SystemTime| {
            let claims = claims("node-a", "agent", since_1970(end));
            signer.token("one", &claims)
        };
        let good = ending(time + Duration::from_secs(60));
        tokens.identity(&good, SOURCE).await.unwrap();
        tokens.identity(&good, SOURCE).await.unwrap();
        assert_eq!(knowing.asked(), 1, "and it is cached");
        // Another API server may still accept it.
        let just = ending(time - Duration::from_secs(30));
        tokens.identity(&just, SOURCE).await.unwrap();
        assert_eq!(knowing.asked(), 2);
        let long_ago = ending(time - Duration::from_secs(120));
        let refusal = tokens.identity(&long_ago, SOURCE).await.unwrap_err();
        assert_eq!(refusal.reason, Reason::expired);
        assert_eq!(knowing.asked(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_cancel_the_review_of_others() {
    let (knowing, tokens) = tokens();
    let token = of_node("node-a");
    let review = tokens.identity(&token, SOURCE);
    let impatient = tokio::time::timeout(Duration::from_millis(1), review);
    assert!(impatient.await.is_err());
    tokens.identity(&token, SOURCE).await.unwrap();
    assert_eq!(knowing.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_no_new_agent_is_admitted_and_nothing_is_cached() {
    let (knowing, tokens) = tokens();
    knowing.unreachable.store(true, Ordering::SeqCst);
    let token = of_node("node-a");
    let refusal = tokens.identity(&token, SOURCE).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::api_server);
    assert!(refusal.message.contains("connection refused"));
    knowing.unreachable.store(false, Ordering::SeqCst);
    tokens.identity(&token, SOURCE).await.unwrap();
}
