//! The verdict on a token, from its claims and the API server's review.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::claims::Claims;
use super::tokens::TokenOptions;
use crate::refusal::{Reason, Refusal};

/// Extra field of the node of the token's pod (Kubernetes 1.30 and later).
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// Extra field of the name of the token's pod.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// Maximum length of the API server's error in a message, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// The identity behind a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node of its pod.
    pub node: Arc<str>,
    /// The name of its pod, if the review contains it.
    pub pod: Option<Arc<str>>,
    /// When the token expires.
    pub expires: Option<SystemTime>,
}

/// Refuses tokens that need no review by the API server.
pub(super) fn claimed(claims: Option<&Claims>, options: &TokenOptions) -> Result<(), Refusal> {
    let Some(claims) = claims else {
        return Err(Refusal::new(
            Reason::malformed,
            "this is not a service account token; check --token-file of the agent",
        ));
    };
    expected_audience(&claims.audiences, options)?;
    of_account(&claims.subject, options)
}

/// The identity of a token after its review.
pub(super) fn reviewed(
    status: &TokenReviewStatus,
    claims: &Claims,
    options: &TokenOptions,
    now: SystemTime,
) -> Result<Identity, Refusal> {
    let user = status.user.as_ref();
    let Some(user) = user.filter(|_| status.authenticated == Some(true)) else {
        return Err(not_accepted(status, claims, now));
    };
    // An API server without audience support returns none: the token may have any audience.
    expected_audience(status.audiences.as_deref().unwrap_or_default(), options)?;
    of_account(user.username.as_deref().unwrap_or_default(), options)?;
    let extra = |key| match user.extra.as_ref()?.get(key)?.as_slice() {
        [value] if !value.is_empty() => Some(Arc::from(value.as_str())),
        _ => None,
    };
    match extra(NODE_NAME) {
        Some(node) => Ok(Identity {
            node,
            pod: extra(POD_NAME),
            expires: claims.expires,
        }),
        None => Err(Refusal::new(
            Reason::no_node,
            "the token names no node; it must be a projected token, bound to the agent's pod, of \
             Kubernetes 1.30 or later",
        )),
    }
}

/// An authenticated user.
pub(crate) fn user(status: &TokenReviewStatus) -> Result<&UserInfo, String> {
    let user = status.user.as_ref();
    let user = user.filter(|_| status.authenticated == Some(true));
    user.ok_or_else(|| error_text(status))
}

fn expected_audience(audiences: &[String], options: &TokenOptions) -> Result<(), Refusal> {
    if audiences.contains(&options.audience) {
        return Ok(());
    }
    let wanted = &options.audience;
    let found = match audiences {
        [] => "no audience".into(),
        some => some.join(", "),
    };
    let message = format!(
        "the token is for {}, not for {wanted}: set `audience` of the agent's projected token and \
         --token-audience of the controller to the same value",
        short(&found)
    );
    Err(Refusal::new(Reason::audience, message))
}

fn of_account(subject: &str, options: &TokenOptions) -> Result<(), Refusal> {
    let wanted = options.username();
    if subject == wanted {
        return Ok(());
    }
    let message = format!(
        "the token is of {}, not of {wanted}: check serviceAccountName of the agent and \
         --agent-service-account of the controller",
        short(subject)
    );
    Err(Refusal::new(Reason::service_account, message))
}

fn not_accepted(status: &TokenReviewStatus, claims: &Claims, now: SystemTime) -> Refusal {
    if let Some(end) = claims.expires.filter(|end| *end <= now) {
        return expired(end);
    }
    let message = format!(
        "the API server does not accept the token ({}); check whether the agent's pod or its service account was deleted, \
         or the token is of another cluster",
        error_text(status)
    );
    Refusal::new(Reason::not_accepted, message)
}

/// The refusal of a token that has expired.
pub(super) fn expired(end: SystemTime) -> Refusal {
    let message = format!(
        "the token expired at {}; check that the kubelet renews --token-file of the agent, and the clocks",
        at(end)
    );
    Refusal::new(Reason::expired, message)
}

/// The refusal of a token whose signature is wrong.
pub(super) fn forged() -> Refusal {
    Refusal::new(
        Reason::forged,
        "the signature of the token is not of the API server that this controller uses: the token is forged or was \
         changed; check --token-file of the agent",
    )
}

fn error_text(status: &TokenReviewStatus) -> String {
    let error = status.error.as_deref().filter(|error| !error.is_empty());
    error.map_or_else(|| "without a reason".into(), short)
}

/// Makes a foreign text fit for one log line.
fn short(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(MAX_ERROR_CHARS).collect()
}

fn at(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = i64::try_from(since.unwrap_or(Duration::ZERO).as_secs());
    let since = since.ok().and_then(|s| Timestamp::from_second(s).ok());
    since.map_or_else(|| "an unknown time".into(), |time| Time(time).0.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::claims::tests::token;
    use super::*;

    fn options() -> TokenOptions {
        TokenOptions {
            audience: "portolan-controller".into(),
            account: "portolan/agent".parse().unwrap(),
            review_period: Duration::from_secs(600),
        }
    }

    fn claims(change: impl FnOnce(&mut Value)) -> Option<Claims> {
        let mut payload = json!({
            "aud": ["portolan-controller"], "sub": "system:serviceaccount:portolan:agent", "exp": 1000,
        });
        change(&mut payload);
        Claims::read(&token(&payload))
    }

    fn status(change: impl FnOnce(&mut Value)) -> TokenReviewStatus {
        let mut status = json!({
            "authenticated": true,
            "audiences": ["portolan-controller"],
            "user": {
                "username": "system:serviceaccount:portolan:agent",
                "extra": {NODE_NAME: ["node-a"]},
            },
        });
        change(&mut status);
        serde_json::from_value(status).unwrap()
    }

    fn review(change: impl FnOnce(&mut Value)) -> Result<Identity, Refusal> {
        let claims = claims(|_| {}).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(999);
        reviewed(&status(change), &claims, &options(), now)
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>, reason: Reason, words: &str) {
        let refusal = result.unwrap_err();
        assert_eq!(refusal.reason, reason);
        assert!(refusal.message.contains(words), "{}", refusal.message);
    }

    #[test]
    fn a_token_that_cannot_be_right_costs_no_review() {
        let options = options();
        let check = |claims: Option<Claims>| claimed(claims.as_ref(), &options);
        assert_eq!(check(claims(|_| {})), Ok(()));
        refused(check(None), Reason::malformed, "--token-file");
        let other = claims(|p| p["aud"] = json!(["vault"]));
        refused(
            check(other),
            Reason::audience,
            "the token is for vault, not for portolan-controller",
        );
        let none = claims(|p| p["aud"] = json!([]));
        refused(check(none), Reason::audience, "no audience");
        let other = claims(|p| p["sub"] = json!("system:serviceaccount:shop:cart"));
        refused(
            check(other),
            Reason::service_account,
            "system:serviceaccount:shop:cart",
        );
    }

    #[test]
    fn the_answer_of_the_api_server_decides() {
        let identity = review(|_| {}).unwrap();
        assert_eq!((&*identity.node, identity.pod), ("node-a", None));
        let identity = review(|s| s["user"]["extra"][POD_NAME] = json!(["agent-x7k2p"])).unwrap();
        assert_eq!(identity.pod.as_deref(), Some("agent-x7k2p"));
        let no = review(|s| *s = json!({"error": "[invalid bearer token,\n gone]"}));
        refused(no, Reason::not_accepted, "([invalid bearer token,  gone])");
        let no = review(|s| s["authenticated"] = json!(false));
        refused(no, Reason::not_accepted, "without a reason");
        let no = review(|s| s["audiences"] = json!(null));
        refused(no, Reason::audience, "the token is for no audience");
        let no = review(|s| s["user"]["username"] = json!("admin"));
        refused(no, Reason::service_account, "of admin");
        let other = json!({"another": ["node-a"]});
        let of = |nodes: &[&str]| json!({NODE_NAME: nodes});
        for extra in [other, of(&[]), of(&["a", "b"]), of(&[""])] {
            let no = review(|s| s["user"]["extra"] = extra);
            refused(no, Reason::no_node, "1.30");
        }
    }

    #[test]
    fn an_expired_token_is_reported_with_the_time() {
        let claims = claims(|_| {}).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let status = status(|s| s["authenticated"] = json!(false));
        let no = reviewed(&status, &claims, &options(), now);
        refused(no, Reason::expired, "expired at 1970-01-01T00:16:40Z");
    }
}
