//! Services whose entries are larger than a message (S-228).

use std::fmt::Write as _;

use portolan_proto::{CHUNK_BYTES, WIRE_VERSION};

use super::{Agent, Controller, NODE};

/// A load-balancer Service of 191 ports, each with 1,000 IPv6 source ranges.
fn ports_by_ranges() -> String {
    let ports: Vec<_> = (1..=191)
        .map(|port| format!("{{name: p{port}, port: {port}, protocol: TCP}}"))
        .collect();
    let ranges: Vec<_> = (0..1000)
        .map(|range| format!("\"2001:db8:{range:x}::/48\""))
        .collect();
    let mut text = String::new();
    write!(
        text,
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: ranges, namespace: tenant}}\n\
         spec: {{type: LoadBalancer, clusterIP: fd00:96::1, clusterIPs: [\"fd00:96::1\"], ipFamilies: [IPv6], \
         ports: [{}], loadBalancerSourceRanges: [{}]}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: \"2001:db8:ffff::1\"}}]}}}}\n",
        ports.join(", "),
        ranges.join(", ")
    )
    .unwrap();
    text
}

/// A Service of 1,000 ports with 300 IPv6 endpoints each.
fn ports_by_endpoints() -> String {
    let ports = |start: &str| {
        let ports: Vec<_> = (1..=1000)
            .map(|port| format!("{{name: p{port}, port: {port}, protocol: TCP{start}}}"))
            .collect();
        ports.join(", ")
    };
    let endpoints: Vec<_> = (1..=300)
        .map(|number| format!("{{addresses: [\"fd00:244::{number:x}\"]}}"))
        .collect();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: wide, namespace: tenant}}\n\
         spec: {{clusterIP: fd00:96::2, clusterIPs: [\"fd00:96::2\"], ipFamilies: [IPv6], ports: [{0}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: wide-1, namespace: tenant, labels: {{kubernetes.io/service-name: wide}}}}\n\
         addressType: IPv6\nports: [{0}]\nendpoints: [{1}]\n",
        ports(""),
        endpoints.join(", ")
    )
}

/// One tenant's Services do not stop updates of others: every message fits, at the first batch and later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_any_size_reach_an_agent_in_messages_that_fit() {
    let mut controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    assert_eq!(agent.batch().await.upserts.len(), 3);
    agent.ack(1, false).await;
    let large = format!("{NODE}{}{}", ports_by_ranges(), ports_by_endpoints());
    controller.publish(&large, 1);
    let batch = agent.batch().await;
    // Both heads, 191 lists and 1,000 lists.
    assert_eq!(batch.upserts.len(), 1_193, "{}", batch.number);
    let largest = batch.upserts.iter().map(|(_, value)| value.len()).max();
    assert!(largest > Some(2 * CHUNK_BYTES), "{largest:?}");
    let total: usize = batch.upserts.iter().map(|(_, value)| value.len()).sum();
    assert!(total > 4 << 20, "{total}");
    agent.ack(2, false).await;
    controller.publish(&large, 2);
    assert_eq!(agent.batch().await.upserts.len(), 2);
    let mut other = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    assert_eq!(other.batch().await.upserts.len(), 1_198);
}
