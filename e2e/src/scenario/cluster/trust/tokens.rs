//! Tokens of agents: real ones of the API server, bound to pods, and forged ones, with or without the key of the
//! control plane.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use super::super::bulk::Bulk;
use super::super::memory::object;

/// Where agents are.
pub(crate) const NAMESPACE: &str = "portolan";
/// Their service account.
pub(crate) const ACCOUNT: &str = "portolan-agent";
/// Another one.
pub(super) const OTHER: &str = "other-account";
/// The audience of the tokens.
pub(crate) const AUDIENCE: &str = "portolan-controller";

/// Service accounts. Their namespace comes with the controller's RBAC manifests.
pub(crate) const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: portolan-agent, namespace: portolan}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other-account, namespace: portolan}
";

/// The pod of an agent.
pub(crate) fn pod(account: &str, node: &str) -> Pod {
    object(json!({
        "metadata": {"name": format!("{account}-{node}"), "namespace": NAMESPACE},
        "spec": {
            "nodeName": node, "serviceAccountName": account, "hostNetwork": true,
            "containers": [{"name": "agent", "image": "none"}],
        },
    }))
}

/// Tokens for the pods of an account on these nodes.
pub(super) fn issue_in(
    bulk: &Bulk,
    account: &str,
    nodes: &[String],
    audience: &str,
) -> Result<Vec<String>> {
    bulk.run(async |client| issue(client, account, nodes, audience).await)
}

/// The same with a client.
pub(crate) async fn issue(
    client: Client,
    account: &str,
    nodes: &[String],
    audience: &str,
) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(client, NAMESPACE);
    let one = async |node: &String| {
        let name = format!("{account}-{node}");
        let uid = pods.get(&name).await?.metadata.uid;
        bound(&accounts, account, (&name, uid), audience).await
    };
    let issued = futures::stream::iter(nodes).map(one).buffered(16);
    issued.try_collect().await
}

/// A token as the kubelet mounts it: for an audience, bound to a pod.
pub(crate) async fn bound(
    accounts: &Api<ServiceAccount>,
    account: &str,
    (pod, uid): (&str, Option<String>),
    audience: &str,
) -> Result<String> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(vec![audience.to_owned()]),
            expiration_seconds: Some(3600),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.to_owned()),
                uid,
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("a token for pod {pod}"))?;
    let token = made.status.and_then(|status| status.token);
    token.context("it has no token")
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
