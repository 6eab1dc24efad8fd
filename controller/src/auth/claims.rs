//! The claims of a token, not verified. They make refusals cheap and specific, and never admit an agent.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use portolan_proto::MAX_TOKEN_BYTES;
use serde::Deserialize;

use super::token::Token;

/// Unverified claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claims {
    /// The audiences.
    pub(super) audiences: Vec<String>,
    /// The subject, like `system:serviceaccount:NS:NAME`.
    pub(super) subject: String,
    /// The expiry time.
    pub(super) expires: Option<SystemTime>,
    /// The issuer.
    pub(super) issuer: String,
    /// The node of the token's pod (Kubernetes 1.30 and later).
    pub(super) node: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    aud: Audiences,
    #[serde(default)]
    sub: String,
    exp: Option<u64>,
    #[serde(default)]
    iss: String,
    #[serde(default, rename = "kubernetes.io")]
    bound: Bound,
}

/// The objects that a token is bound to.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Bound {
    node: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    name: Arc<str>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    Many(Vec<String>),
    One(String),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Claims {
    /// Parses the claims; `None` if it is not a service account token.
    pub(super) fn read(token: &Token) -> Option<Self> {
        let text = token.as_str();
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let mut parts = text.split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
        // Bytes that are not valid UTF-8 would be accepted in parts that are not read.
        let payload: Payload = serde_json::from_str(str::from_utf8(&payload).ok()?).ok()?;
        let expires = payload.exp.map(Duration::from_secs);
        Some(Self {
            audiences: match payload.aud {
                Audiences::Many(many) => many,
                Audiences::One(one) => vec![one],
            },
            subject: payload.sub,
            expires: expires.and_then(|after| SystemTime::UNIX_EPOCH.checked_add(after)),
            issuer: payload.iss,
            node: payload.bound.node.map(|node| node.name),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A token with these claims and an invalid signature.
    pub(in crate::auth) fn token(payload: &Value) -> Token {
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = encode(&json!({"alg": "none"}));
        let text = format!("Bearer {header}.{}.sig", encode(payload));
        Token::of_header(&text).unwrap()
    }

    #[test]
    fn claims_are_read_whatever_their_length() {
        for padding in ["", "a", "ab", "abc", "\u{ff}\u{fe}?>"] {
            let payload = json!({"aud": ["x", "y"], "sub": "s", "exp": 60, "more": padding});
            let claims = Claims::read(&token(&payload)).unwrap();
            assert_eq!(claims.audiences, ["x", "y"]);
            assert_eq!(claims.subject, "s");
            let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
            assert_eq!(claims.expires, Some(minute));
        }
        let one = Claims::read(&token(&json!({"aud": "x"}))).unwrap();
        assert_eq!((one.audiences, one.expires), (vec!["x".to_owned()], None));
        assert_eq!((&*one.issuer, one.node), ("", None));
        let bound = json!({
            "iss": "https://kubernetes.default.svc",
            "kubernetes.io": {
                "namespace": "portolan", "node": {"name": "node-a", "uid": "1"}, "pod": {"name": "p", "uid": "2"},
            },
        });
        let bound = Claims::read(&token(&bound)).unwrap();
        assert_eq!(bound.issuer, "https://kubernetes.default.svc");
        assert_eq!(bound.node.as_deref(), Some("node-a"));
    }

    #[test]
    fn an_invalid_token_has_no_claims() {
        let long = format!("a.{}.c", "b".repeat(MAX_TOKEN_BYTES));
        for text in ["abc", "a.b", "a.b.c", "a.e30.c.d", "a.!!!!.c", "..", &long] {
            let token = Token::of_header(&format!("Bearer {text}")).unwrap();
            assert_eq!(Claims::read(&token), None, "{text:.20}");
        }
    }
}
