//! ProxyConfig.

use portolan_controller::manifests::FileContents;
use portolan_plan::Settings;

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
    let written = portolan_crds::SettingsSpec::written_out();
    let text = serde_json::to_string(&written).unwrap();
    assert_eq!(
        settings(text.trim_matches(['{', '}'])),
        Settings::default(),
        "{text}"
    );
}

/// Settings, and the beginning of the error about them.
const REFUSED: [(&str, &str); 20] = [
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
