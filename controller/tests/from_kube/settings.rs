//! ProxyConfig.

use portolan_controller::from_kube::default_spec;
use portolan_controller::manifests::FileContents;
use portolan_plan::Settings;
use serde_json::Value;

use crate::{found, read, refused};
use portolan_planner::model::Object;

fn config(settings: &str) -> FileContents {
    let spec = format!("spec: {{settings: {{{settings}}}}}\n");
    read(
        "ProxyConfig\napiVersion: proxy.portolan.dev/v1alpha1",
        "name: default",
        &spec,
    )
}

fn settings(text: &str) -> Settings {
    match found(&config(text)) {
        Object::ProxyConfig(config) => config.current.settings.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_of_the_resource_are_those_of_the_plan() {
    assert_eq!(settings(""), Settings::default());
    let spec = default_spec().unwrap();
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(
        settings(text.trim_matches(['{', '}'])),
        Settings::default(),
        "{text}"
    );
}

/// Fields for detection modes other than the default have no default.
const WITHOUT_DEFAULT: [&str; 3] = [
    "localDetection.clusterCIDRs",
    "localDetection.bridge",
    "localDetection.prefix",
];

/// Defaults that are described in another way.
const DESCRIBED: [(&str, &str); 4] = [
    ("externalIPs.allowedCIDRs", "if omitted, all are"),
    ("excludeCIDRs", "Default: none"),
    ("serviceProxyName", "Default: empty"),
    (
        "timeouts.tcp",
        "Default: the value of conntrack.tcpEstablished",
    ),
];

#[test]
fn the_schema_has_the_fields_of_the_settings_and_describes_their_defaults() {
    let definitions = portolan_crds::definitions().unwrap();
    let config = definitions
        .iter()
        .find(|found| found.file == "proxyconfigs.yaml");
    let root =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/settings/properties";
    let schema = config.unwrap().object.pointer(root).unwrap();
    let defaults = serde_json::to_value(default_spec().unwrap()).unwrap();
    let mut left: Vec<String> = leaves(&defaults, "");
    let mut fields = vec![(String::new(), schema)];
    while let Some((path, properties)) = fields.pop() {
        for (name, field) in properties.as_object().unwrap() {
            let path = format!("{path}{name}");
            if let Some(below) = field.get("properties") {
                fields.push((path + ".", below));
            } else if !WITHOUT_DEFAULT.contains(&&*path) {
                left.retain(|other| *other != path);
                let value = defaults.pointer(&format!("/{}", path.replace('.', "/")));
                let value = value.unwrap_or_else(|| panic!("{path} has no default"));
                let described = DESCRIBED.iter().find(|(field, _)| *field == path);
                let expected = described.map(|(_, text)| (*text).to_owned());
                let expected = expected.unwrap_or_else(|| format!("Default: {}", shown(value)));
                let text = field["description"].as_str().unwrap().replace('`', "");
                assert!(
                    text.contains(&expected),
                    "{path}: `{expected}` is not in: {text}"
                );
            }
        }
    }
    assert_eq!(left, [""; 0], "settings that the schema does not have");
}

/// The paths of all values in an object.
fn leaves(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, below)| leaves(below, &format!("{path}.{name}")))
            .collect(),
        _ => vec![path.trim_start_matches('.').to_owned()],
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// Settings, and the beginning of the error about them.
const REFUSED: [(&str, &str); 21] = [
    (
        "dataplane: iptables",
        "spec.settings.dataplane: unknown variant `iptables`, expected `ipvs` or `nftables`",
    ),
    (
        "scheduler: fair",
        "spec.settings.scheduler: \"fair\" is not a scheduler of IPVS; known are rr, wrr,",
    ),
    (
        "scheduler: 'r r'",
        "spec.settings.scheduler: \"r r\" is not 1 to 15",
    ),
    (
        "masquerade: {bit: 32}",
        "spec.settings.masquerade.bit: 32 is not between 0 and 31",
    ),
    (
        "nodePortAddresses: [primary, loopback]",
        "spec.settings.nodePortAddresses[1]: \"loopback\" is",
    ),
    (
        "nodePortAddresses: [10.0.0.1]",
        "spec.settings.nodePortAddresses[0]: \"10.0.0.1\" is not an address range",
    ),
    (
        "excludeCIDRs: [x]",
        "spec.settings.excludeCIDRs[0]: \"x\" is not an address range",
    ),
    (
        "externalIPs: {allowedCIDRs: [x]}",
        "spec.settings.externalIPs.allowedCIDRs[0]: \"x\" is not an address range",
    ),
    (
        "timeouts: {tcp: -5s}",
        "spec.settings.timeouts.tcp: \"-5s\" is not a duration",
    ),
    (
        "timeouts: {udp: 1500ms}",
        "spec.settings.timeouts.udp: 1s500ms is not 0 to 2147483647 whole seconds",
    ),
    (
        "sync: {period: 100ms}",
        "spec.settings.sync.period: 100ms is shorter than 1s",
    ),
    (
        "sync: {minPeriod: 31s}",
        "spec.settings.sync.minPeriod: 31s is longer than spec.settings.sync.period, 30s",
    ),
    (
        "drain: {deadline: soon}",
        "spec.settings.drain.deadline: \"soon\" is not a duration",
    ),
    (
        "timeouts: {tcpFin: 600h}",
        "spec.settings.timeouts.tcpFin: 600h is longer than IPVS counts, 2147483s",
    ),
    (
        "metrics: {bindAddress: lo}",
        "spec.settings.metrics.bindAddress: \"lo\" is not an IP address",
    ),
    (
        "device: kube-ipvs0-long-name",
        "spec.settings.device: \"kube-ipvs0-long-name\" is not 1 to 15",
    ),
    (
        "localDetection: {mode: ClusterCIDR}",
        "spec.settings.localDetection.clusterCIDRs: missing; mode ClusterCIDR needs it",
    ),
    (
        "localDetection: {bridge: cni0}",
        "spec.settings.localDetection.bridge: only mode BridgeInterface reads it",
    ),
    (
        "localDetection: {mode: InterfaceNamePrefix, prefix: a-name-of-15-by}",
        "spec.settings.localDetection.prefix: \"a-name-of-15-by\" is longer than 14 bytes",
    ),
    (
        "drift: Ignore",
        "spec.settings.drift: unknown variant `Ignore`, expected `Repair` or `Report`",
    ),
    (
        "serviceProxyName: 'a b'",
        "spec.settings.serviceProxyName: \"a b\" is not 1 to 63",
    ),
];

#[test]
fn invalid_settings_are_rejected_with_field_and_range() {
    for (text, message) in REFUSED {
        let refused = refused(&config(text));
        assert!(refused.starts_with(message), "{text}: {refused}");
    }
}

#[test]
fn only_the_proxyconfig_named_default_is_read() {
    let contents = read(
        "ProxyConfig\napiVersion: proxy.portolan.dev/v1alpha1",
        "name: edge",
        "spec: {}\n",
    );
    assert!(refused(&contents).contains("the only ProxyConfig is named \"default\""));
}

/// Both forms of a disabled listener in kube-proxy's configuration (S-146, S-207).
#[test]
fn health_and_metrics_are_switched_off_by_an_empty_address_or_port_zero() {
    let found = settings("healthz: {bindAddress: \"\"}, metrics: {port: 0}");
    assert!(!found.healthz.is_on() && !found.metrics.is_on());
    let found = settings("healthz: {bindAddress: \"\", port: 10256}");
    assert!(!found.healthz.is_on() && found.metrics.is_on());
}
