//! With a paused clock and a reviewer that counts its calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use serde_json::json;

use super::super::claims::tests::token;
use super::super::reviewer::Reviewed;
use super::super::{Admission, Gate};
use super::*;

/// Accepts tokens that were issued for nodes; takes 100 ms for each.
#[derive(Debug, Default)]
struct Knowing {
    asked: AtomicUsize,
    /// Nodes whose pod was deleted.
    deleted: Mutex<Vec<String>>,
    unreachable: std::sync::atomic::AtomicBool,
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
            let node = claims.audiences[1].clone();
            let matches =
                audience.is_some_and(|wanted| claims.audiences.iter().any(|a| a == wanted));
            let deleted = self.deleted.lock().unwrap().contains(&node);
            let status = if matches && !deleted {
                json!({
                    "authenticated": true, "audiences": [audience],
                    "user": {
                        "username": claims.subject,
                        "extra": {"authentication.kubernetes.io/node-name": [node]},
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

fn of_node(node: &str) -> Token {
    let far = SystemTime::now() + Duration::from_secs(3600);
    let exp = far
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    token(&json!({
        "aud": ["portolan-controller", node], "sub": "system:serviceaccount:portolan:agent", "exp": exp,
    }))
}

fn tokens() -> (Arc<Knowing>, Arc<Tokens>) {
    let options = TokenOptions {
        audience: "portolan-controller".into(),
        account: "portolan/agent".parse().unwrap(),
        review_period: Duration::from_secs(600),
    };
    let knowing = Arc::new(Knowing::default());
    let tokens = Tokens::new(options, knowing.clone(), Arc::default());
    (knowing, tokens)
}

fn asked(knowing: &Knowing) -> usize {
    knowing.asked.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn concurrent_uses_of_a_token_cost_one_review_a_minute() {
    let (knowing, tokens) = tokens();
    let token = of_node("node-a");
    let together = (0..50).map(|_| tokens.identity(&token));
    let verdicts = futures::future::join_all(together).await;
    assert!(
        verdicts
            .iter()
            .all(|v| &*v.as_ref().unwrap().node == "node-a")
    );
    assert_eq!(asked(&knowing), 1);
    tokio::time::advance(Duration::from_secs(59)).await;
    tokens.identity(&token).await.unwrap();
    assert_eq!(asked(&knowing), 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    tokens.identity(&token).await.unwrap();
    assert_eq!(asked(&knowing), 2);
}

#[tokio::test(start_paused = true)]
async fn five_thousand_agents_that_connect_together_are_reviewed_within_the_rate() {
    let (knowing, tokens) = tokens();
    let all: Vec<_> = (0..5000).map(|n| of_node(&format!("node-{n}"))).collect();
    let start = Instant::now();
    let verdicts = futures::future::join_all(all.iter().map(|token| tokens.identity(token))).await;
    let busy = verdicts
        .iter()
        .filter(|verdict| matches!(verdict, Err(refusal) if refusal.reason == Reason::busy));
    let (busy, reviews) = (busy.count(), asked(&knowing));
    assert_eq!(reviews + busy, 5000);
    // The burst, and the reviews that fit into the longest wait.
    assert_eq!(reviews, (REVIEW_BURST + REVIEWS_PER_SECOND * 5) as usize);
    assert!(start.elapsed() <= MAX_REVIEW_WAIT + Duration::from_millis(200));
    let message = verdicts.into_iter().find_map(Result::err).unwrap().message;
    assert!(message.contains("retry"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_cancel_the_review_of_others() {
    let (knowing, tokens) = tokens();
    let token = of_node("node-a");
    let impatient = tokio::time::timeout(Duration::from_millis(1), tokens.identity(&token));
    assert!(impatient.await.is_err());
    tokens.identity(&token).await.unwrap();
    assert_eq!(asked(&knowing), 1);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_no_new_agent_is_admitted_and_nothing_is_cached() {
    let (knowing, tokens) = tokens();
    knowing.unreachable.store(true, Ordering::SeqCst);
    let token = of_node("node-a");
    let refusal = tokens.identity(&token).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::api_server);
    assert!(refusal.message.contains("connection refused"));
    knowing.unreachable.store(false, Ordering::SeqCst);
    tokens.identity(&token).await.unwrap();
}

async fn admitted(tokens: &Arc<Tokens>, token: &Token) -> Admission {
    let mut metadata = tonic::metadata::MetadataMap::new();
    let value = format!("Bearer {}", token.as_str()).parse().unwrap();
    metadata.insert("authorization", value);
    Gate::Tokens(tokens.clone()).admit(&metadata).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_covers_its_own_node_and_ends_when_its_pod_is_deleted_but_not_without_an_api_server()
 {
    let (knowing, tokens) = tokens();
    let admission = admitted(&tokens, &of_node("node-a")).await;
    assert_eq!(admission.covers("node-a"), Ok(()));
    let other = admission.covers("node-b").unwrap_err();
    assert_eq!(other.reason, Reason::other_node);
    assert!(other.message.contains("node-a") && other.message.contains("node-b"));
    let start = Instant::now();
    let stream = tokio::spawn(async move { admission.revoked().await });
    knowing.unreachable.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    // At most every 10 minutes, at least every 15.
    let reviews = asked(&knowing) - 1;
    assert!((4..=6).contains(&reviews), "{reviews}");
    knowing.unreachable.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!stream.is_finished());
    knowing.deleted.lock().unwrap().push("node-a".into());
    let refusal = stream.await.unwrap();
    assert_eq!(refusal.reason, Reason::not_accepted);
    assert!(
        refusal.message.contains("the stream ends"),
        "{}",
        refusal.message
    );
    assert!(start.elapsed() <= Duration::from_secs(7200 + 901));
}
