//! Plans for tests of the tables, as facts.

use std::net::SocketAddr;

use portolan_plan::PlanDocument;
use portolan_reconcile::{Facts, HostAddress, HostNetwork};
use serde_json::{Value, json};

/// A list of backends as in the plan.
pub(crate) fn list(endpoints: &[&str]) -> Value {
    let endpoint = |text: &&str| {
        let at: SocketAddr = text.parse().unwrap();
        json!({"address": at.ip(), "port": at.port(), "weight": 1})
    };
    json!({
        "policy": "Cluster",
        "scope": "cluster",
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "whenEmpty": "Reject",
        "externalClients": "Allow",
    })
}

/// A Service with one port at a cluster IP.
pub(crate) fn service(name: &str, protocol: &str, at: &str, endpoints: &[&str]) -> Value {
    let at: SocketAddr = at.parse().unwrap();
    json!({
        "namespace": "default",
        "name": name,
        "bootCritical": false,
        "drainSeconds": null,
        "ports": [{
            "name": "port",
            "protocol": protocol,
            "frontends": [{"kind": "ClusterIP", "address": at.ip(), "port": at.port()}],
            "internal": list(endpoints),
            "external": null,
            "affinitySeconds": null,
            "scheduler": "rr",
            "sourceRanges": [],
        }],
    })
}

/// A Service of each protocol, two with affinity, in both families.
pub(crate) fn services() -> Vec<Value> {
    let mut sticky = service(
        "sticky",
        "TCP",
        "10.96.0.30:80",
        &["10.244.1.6:80", "10.244.2.6:80"],
    );
    sticky["ports"][0]["affinitySeconds"] = 60.into();
    vec![
        service(
            "web",
            "TCP",
            "10.96.0.20:80",
            &["10.244.1.5:8080", "10.244.2.5:8080"],
        ),
        service(
            "web6",
            "TCP",
            "[fd00:10:96::20]:80",
            &["[fd00:10:244:1::5]:8080"],
        ),
        service(
            "dns",
            "UDP",
            "10.96.0.10:53",
            &["10.244.1.4:53", "10.244.2.4:53"],
        ),
        service("queue", "SCTP", "10.96.0.40:7000", &["10.244.2.9:7000"]),
        service("empty", "TCP", "10.96.0.77:80", &[]),
        sticky,
    ]
}

/// The facts of a plan with these Services.
pub(crate) fn facts(services: &[Value]) -> Facts {
    facts_with(services, &json!({}))
}

/// The facts of a plan with these Services and settings in place of the default ones.
pub(crate) fn facts_with(services: &[Value], settings: &Value) -> Facts {
    facts_on(services, settings, &Value::Null, &host())
}

/// The network of a node.
pub(crate) fn host() -> HostNetwork {
    let addresses = ["192.168.50.1/24", "fd00:50::1/64"];
    HostNetwork {
        addresses: addresses
            .map(|address| HostAddress::on("eth0", address.parse().unwrap()))
            .into(),
        ..HostNetwork::default()
    }
}

/// The facts of such a plan on a node with this network, and with these endpoints if there are any.
pub(crate) fn facts_on(
    services: &[Value],
    settings: &Value,
    local_endpoints: &Value,
    host: &HostNetwork,
) -> Facts {
    let mut document: Value = serde_json::from_str(include_str!("../plans/node-a.json")).unwrap();
    document["services"] = services.into();
    if !local_endpoints.is_null() {
        document["localEndpoints"] = local_endpoints.clone();
    }
    for (name, value) in settings.as_object().unwrap() {
        document["settings"][name] = value.clone();
    }
    let document: PlanDocument = serde_json::from_value(document).unwrap();
    Facts::new(&document.into_plan().unwrap(), host).unwrap()
}
