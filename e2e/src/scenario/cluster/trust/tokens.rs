//! Tokens of agents: real ones for many nodes at once, and forged ones, with or without the key of the control plane.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use super::super::bulk::Bulk;
use crate::credentials::issue;

/// Tokens for the pods of an account on these nodes.
pub(super) fn issue_in(
    bulk: &Bulk,
    account: &str,
    nodes: &[String],
    audience: &str,
) -> Result<Vec<String>> {
    bulk.run(async |client| issue(client, account, nodes, audience).await)
}

/// The same token with another expiry, signed again with the control plane's key.
pub(super) fn ending(token: &str, key: &str, end: SystemTime) -> Result<String> {
    let mut parts = token.split('.');
    let (header, payload) = parts.next().zip(parts.next()).context("no token")?;
    let mut payload: Value = serde_json::from_slice(&decoded(payload)?)?;
    let seconds = |time: SystemTime| {
        Ok::<_, anyhow::Error>(time.duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
    };
    payload["exp"] = json!(seconds(end)?);
    for begin in ["iat", "nbf"] {
        payload[begin] = json!(seconds(end - Duration::from_secs(3600))?);
    }
    let text = format!("{header}.{}", encoded(payload.to_string().as_bytes())?);
    let signature = KeyPair::from_pem(key)?.sign(text.as_bytes())?;
    Ok(format!("{text}.{}", encoded(&raw(&signature)?)?))
}

/// The same token with a signature that fits another one.
pub(super) fn forged(token: &str) -> Result<String> {
    let (text, signature) = token.rsplit_once('.').context("no token")?;
    let turned: String = signature.chars().rev().collect();
    ensure!(
        turned != signature,
        "the signature reads the same backwards"
    );
    Ok(format!("{text}.{turned}"))
}

/// The same claims with a signature that no key has made. Each number makes another one.
pub(super) fn unsigned(token: &str, number: u64) -> Result<String> {
    let (text, _) = token.rsplit_once('.').context("no token")?;
    // As long as a signature of the control plane.
    let signature = [number.to_be_bytes(); 8].concat();
    Ok(format!("{text}.{}", encoded(&signature)?))
}

/// The same, in the name of a key that the control plane does not have.
pub(super) fn of_unknown_key(token: &str, number: u64) -> Result<String> {
    let payload = token.split('.').nth(1).context("no token")?;
    let header = json!({"alg": "ES256", "kid": format!("unknown-{number}")});
    let header = encoded(header.to_string().as_bytes())?;
    unsigned(&format!("{header}.{payload}."), number)
}

/// The two numbers of an ECDSA signature in 32 bytes each, as tokens have them, out of DER.
fn raw(der: &[u8]) -> Result<Vec<u8>> {
    let mut rest = der.get(2..).context("no signature")?;
    let mut raw = Vec::new();
    for _ in 0..2 {
        let length = usize::from(*rest.get(1).context("no length")?);
        let number = rest.get(2..2 + length).context("no number")?;
        rest = rest.get(2 + length..).context("no end")?;
        let start = number.len().saturating_sub(32);
        let digits = number.get(start..).unwrap_or_default();
        raw.extend(std::iter::repeat_n(0, 32 - digits.len()));
        raw.extend(digits);
    }
    Ok(raw)
}

/// base64url without padding, by way of the one that the API uses.
fn encoded(bytes: &[u8]) -> Result<String> {
    let text = serde_json::to_value(ByteString(bytes.to_vec()))?;
    let text = text.as_str().context("no text")?.trim_end_matches('=');
    Ok(text.replace('+', "-").replace('/', "_"))
}

fn decoded(text: &str) -> Result<Vec<u8>> {
    let mut text = text.replace('-', "+").replace('_', "/");
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    let ByteString(bytes) = serde_json::from_value(json!(text))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgeries_have_the_same_claims_and_all_differ() {
        let token = "e30.e30.c2lnbmF0dXJl";
        let made: Vec<_> = (1..=3)
            .flat_map(|number| [unsigned(token, number), of_unknown_key(token, number)])
            .map(Result::unwrap)
            .collect();
        let different: std::collections::BTreeSet<_> = made.iter().collect();
        assert_eq!(different.len(), made.len());
        for token in &made {
            let parts: Vec<_> = token.split('.').collect();
            assert_eq!(parts.len(), 3, "{token}");
            assert_eq!(parts[1], "e30");
            assert_eq!(decoded(parts[2]).unwrap().len(), 64);
        }
        let header = made[1].split('.').next().unwrap();
        let header: Value = serde_json::from_slice(&decoded(header).unwrap()).unwrap();
        assert_eq!(header["kid"], "unknown-1");
    }

    #[test]
    fn a_token_signed_again_has_another_expiry_and_a_signature_of_64_bytes() {
        let key = KeyPair::generate().unwrap();
        let payload = encoded(br#"{"exp":1,"sub":"s"}"#).unwrap();
        let token = format!("e30.{payload}.x");
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(7200);
        for _ in 0..20 {
            let token = ending(&token, &key.serialize_pem(), end).unwrap();
            let parts: Vec<_> = token.split('.').collect();
            let payload: Value = serde_json::from_slice(&decoded(parts[1]).unwrap()).unwrap();
            assert_eq!(payload["exp"], 7200);
            assert_eq!(decoded(parts[2]).unwrap().len(), 64);
        }
    }
}
