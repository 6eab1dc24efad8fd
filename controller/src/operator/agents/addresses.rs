//! The addresses at which agents reach controllers. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;

/// The addresses of the ready pods. An empty result does not mean that the stored addresses should be removed: agents
/// have no other address to try.
pub(super) fn addresses<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    port: u16,
) -> BTreeSet<SocketAddr> {
    let address = |pod: &Pod| {
        let ip: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
        Some(SocketAddr::new(ip, port))
    };
    pods.into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod))
        .filter_map(address)
        .collect()
}

/// Whether the pod has the condition Ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The content of the file that agents read: one address per line.
pub(super) fn text(addresses: &BTreeSet<SocketAddr>) -> String {
    let mut text = String::new();
    for address in addresses {
        text += &format!("{address}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(ip: &str, ready: &str, metadata: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": metadata,
            "status": {"podIP": ip, "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": ready},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn ready_pods_that_are_not_terminating_are_listed_in_order() {
        let none = json!({});
        let pods = [
            pod("192.168.50.2", "True", &none),
            pod("192.168.50.1", "True", &none),
            pod("fd00::1", "True", &none),
            pod("192.168.50.3", "False", &none),
            pod(
                "192.168.50.4",
                "True",
                &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ),
            pod("", "True", &none),
            Pod::default(),
        ];
        assert_eq!(
            text(&addresses(&pods, 10270)),
            "192.168.50.1:10270\n192.168.50.2:10270\n[fd00::1]:10270\n"
        );
        assert_eq!(text(&addresses(&[], 10270)), "");
    }
}
