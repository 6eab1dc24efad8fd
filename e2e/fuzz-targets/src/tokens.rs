//! Tokens of agents, the documents of their issuer, and the stored keyring of the controllers.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use portolan_controller::auth::tls::settle_stored;
use portolan_controller::auth::{Named, Token, TokenOptions, fuzz};
use portolan_proto::MAX_TOKEN_BYTES;
use serde_json::Value;

/// The audience and the subject of agents.
const AUDIENCE: &str = "portolan-controller";
const SUBJECT: &str = "system:serviceaccount:portolan:portolan-agent";
/// Maximum length of the message of a refusal, in characters. It is one line of the log.
const MAX_MESSAGE_CHARS: usize = 1000;

/// What the controller requires.
static OPTIONS: LazyLock<TokenOptions> = LazyLock::new(|| TokenOptions {
    audience: AUDIENCE.into(),
    account: Named {
        namespace: "portolan".into(),
        name: "portolan-agent".into(),
    },
    review_period: Duration::from_secs(600),
});

/// The payload of a token, and the same bytes as a token.
pub(crate) fn claims(bytes: &[u8]) {
    let encoded = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    claimed(&format!("e30.{encoded}.c2ln"), Some(bytes));
    claimed(&String::from_utf8_lossy(bytes), None);
}

/// Only the claims of agents are not refused. The message of a refusal is fit for a log.
fn claimed(token: &str, payload: Option<&[u8]>) {
    let Some(read) = Token::of_header(&format!("Bearer {token}")) else {
        return;
    };
    match fuzz::refused(&read, &OPTIONS) {
        Some(refusal) => {
            let message = refusal.message;
            assert!(!message.chars().any(char::is_control), "{message:?}");
            assert!(message.chars().count() <= MAX_MESSAGE_CHARS, "{message}");
        }
        None => {
            assert!(token.trim().len() <= MAX_TOKEN_BYTES);
            assert!(payload.is_none_or(are_of_agents));
        }
    }
}

/// Whether the claims are those of agents, read in another way.
fn are_of_agents(payload: &[u8]) -> bool {
    let Ok(claims) = serde_json::from_slice::<Value>(payload) else {
        return false;
    };
    // The values alone, in the order of the code, are read as well. The review of such a token fails.
    if claims.is_array() {
        return true;
    }
    let is_ours = |audience: &Value| audience.as_str() == Some(AUDIENCE);
    let audiences = &claims["aud"];
    let many = audiences.as_array();
    let is_for_us = is_ours(audiences) || many.is_some_and(|many| many.iter().any(is_ours));
    is_for_us && claims["sub"].as_str() == Some(SUBJECT)
}

/// A token with a signature of an RSA key (RFC 7520, section 4.1), and the id of the key.
const SIGNED: &str = include_str!("rfc7520.txt");
const KEY_ID: &str = "bilbo.baggins@hobbiton.example";

/// A key set and a discovery document, separated by a zero byte. A token may follow after another one. A signature is
/// genuine only if the set has a key with the id that the token names.
pub(crate) fn keys(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0');
    let (keys, discovery) = (parts.next(), parts.next());
    let (keys, discovery) = (keys.unwrap_or_default(), discovery.unwrap_or_default());
    if genuine(keys, discovery, SIGNED) == Some(true) {
        assert!(has_key(keys, KEY_ID));
    }
    if let Some(token) = parts.next() {
        genuine(keys, discovery, token);
    }
}

fn genuine(keys: &str, discovery: &str, token: &str) -> Option<bool> {
    let token = Token::of_header(&format!("Bearer {token}"))?;
    match fuzz::is_genuine(keys, discovery, &token) {
        Ok(genuine) => genuine,
        Err(error) => {
            assert!(!error.is_empty());
            None
        }
    }
}

/// Whether a key set has a key with this id, read in another way.
fn has_key(keys: &str, id: &str) -> bool {
    let set: Value = serde_json::from_str(keys).unwrap_or_default();
    // A list of the members alone is read as well.
    let keys = match &set {
        Value::Array(members) => members.first(),
        set => set.get("keys"),
    };
    let all = keys.and_then(Value::as_array);
    let is_it = |key: &Value| key["kid"].as_str() == Some(id) || key.is_array();
    all.is_some_and(|all| all.iter().any(is_it))
}

/// A time in seconds since 1970 on the first line, and a stored keyring. One check performs all steps that are due.
pub(crate) fn keyring(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (time, stored) = bytes.split_at(end);
    let time = std::str::from_utf8(time).ok();
    let Some(now) = time.and_then(|time| time.parse::<u32>().ok()) else {
        return;
    };
    let settle = |stored: &[u8]| settle_stored(stored, "portolan-controller", now.into());
    match settle(stored) {
        None => {}
        Some(Err(error)) => assert!(!error.is_empty()),
        Some(Ok(settled)) => assert_eq!(settle(&settled), Some(Ok(settled))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corpora reach what they are for.
    #[test]
    fn inputs_of_the_corpora_are_accepted() {
        let payload = include_bytes!("../corpus/token_claims/agent");
        assert!(are_of_agents(payload));
        let encoded = BASE64_URL_SAFE_NO_PAD.encode(payload);
        let token = Token::of_header(&format!("Bearer e30.{encoded}.c2ln")).unwrap();
        assert_eq!(fuzz::refused(&token, &OPTIONS), None);

        let keys = include_str!("../corpus/token_keys/rsa");
        let (keys, discovery) = keys.split_once('\0').unwrap();
        assert_eq!(genuine(keys, discovery, SIGNED), Some(true));
        assert!(has_key(keys, KEY_ID));
        let other = SIGNED.replacen("SXTigJlz", "SXTigJly", 1);
        assert_ne!(other, SIGNED);
        assert_eq!(genuine(keys, discovery, &other), Some(false));

        let stored = include_str!("../corpus/keyring/usual");
        let (now, stored) = stored.split_once('\n').unwrap();
        let now: u64 = now.parse().unwrap();
        let settle = |now| settle_stored(stored.as_bytes(), "portolan-controller", now).unwrap();
        let settled = settle(now).unwrap();
        assert_eq!(settle(now + 60).unwrap(), settled, "nothing is due");
        let year = 365 * 24 * 3600;
        assert_ne!(settle(now + year).unwrap(), settled, "a certificate is due");
    }
}
