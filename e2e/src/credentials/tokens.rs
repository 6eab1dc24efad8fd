//! Tokens of agents as the kubelet mounts them: of the API server, for an audience, and bound to a pod.

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

/// Where agents are.
pub(crate) const NAMESPACE: &str = "portolan";
/// Their service account.
pub(crate) const ACCOUNT: &str = "portolan-agent";
/// Another one.
pub(crate) const OTHER: &str = "other-account";
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
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("{account}-{node}")),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            service_account_name: Some(account.to_owned()),
            host_network: Some(true),
            containers: vec![Container {
                name: "agent".to_owned(),
                image: Some("none".to_owned()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

/// Tokens for the pods of an account on these nodes.
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
