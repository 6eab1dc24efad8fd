//! Configurations that cannot be converted: the message names the file, the field, and what to check next.

use portolan_controller::convert::convert;

use crate::with;

/// Fields, and the expected message after the place.
const REFUSED: [(&str, &str); 26] = [
    (
        "mode: userspace",
        "mode: userspace is not a mode of kube-proxy on Linux; write ipvs,",
    ),
    (
        "mode: {ipvs: true}",
        "mode: is not a single value; write a string",
    ),
    ("ipvs: 5", "ipvs: 5 is a number; write its fields below it"),
    (
        "ipvs: {syncPeriod: 30}",
        "ipvs.syncPeriod: 30 is a number; write a duration like 30s",
    ),
    (
        "ipvs: {syncPeriod: soon}",
        "ipvs.syncPeriod: soon is a string; write a duration like 30s",
    ),
    (
        "ipvs: {tcpTimeout: -1s}\nmode: ipvs",
        "ipvs.tcpTimeout: negative, and kube-proxy rejects it too",
    ),
    (
        "ipvs: {tcpTimeout: 10ms}\nmode: ipvs",
        "ipvs.tcpTimeout: shorter than a second; write whole seconds",
    ),
    (
        "ipvs: {udpTimeout: 1000h}\nmode: ipvs",
        "ipvs.udpTimeout: 1000h is longer than IPVS counts, 2147483s",
    ),
    (
        "ipvs: {scheduler: fair}\nmode: ipvs",
        "ipvs.scheduler: \"fair\" is not a scheduler of IPVS; known are rr",
    ),
    (
        "ipvs: {excludeCIDRs: [10.0.0.1]}\nmode: ipvs",
        "ipvs.excludeCIDRs[0]: \"10.0.0.1\" is not an address range",
    ),
    (
        "ipvs: {excludeCIDRs: [7]}\nmode: ipvs",
        "ipvs.excludeCIDRs[0]: 7 is a number; write a string",
    ),
    (
        "ipvs: {minSyncPeriod: 31s}\nmode: ipvs",
        "ipvs.minSyncPeriod: 31s is longer than ipvs.syncPeriod, 30s",
    ),
    (
        "ipvs: {strictARP: maybe}",
        "ipvs.strictARP: maybe is a string; write true or false",
    ),
    (
        "iptables: {masqueradeBit: 32}",
        "iptables.masqueradeBit: 32 is not between 0 and 31",
    ),
    (
        "iptables: {masqueradeBit: 4294967310}",
        "iptables.masqueradeBit: 4294967310 is a number; write a whole number",
    ),
    ("conntrack: {min: -1}", "conntrack.min: -1 is negative"),
    (
        "conntrack: {tcpEstablishedTimeout: 9000000h}",
        "conntrack.tcpEstablishedTimeout: ",
    ),
    (
        "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
        "clusterCIDR: more than one range of a family",
    ),
    (
        "clusterCIDR: pods",
        "clusterCIDR[0]: \"pods\" is not an address range",
    ),
    (
        "detectLocalMode: Magic",
        "detectLocalMode: Magic is not a known mode; write ClusterCIDR,",
    ),
    (
        "detectLocalMode: BridgeInterface",
        "detectLocal.bridgeInterface: missing, and detectLocalMode BridgeInterface",
    ),
    (
        "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: much-too-long-a-name}",
        "detectLocal.interfaceNamePrefix: \"much-too-long-a-name\" is not 1 to 15",
    ),
    (
        "nodePortAddresses: [10.0.0.0/99]",
        "nodePortAddresses[0]: \"10.0.0.0/99\" is not an address range",
    ),
    (
        "healthzBindAddress: ':10256'",
        "healthzBindAddress: \":10256\" is not an address with a port",
    ),
    (
        "featureGates: {A: 1}",
        "featureGates.A: 1 is a number; write true or false",
    ),
    (
        "oomScoreAdj: low",
        "oomScoreAdj: low is a string; write a whole number",
    ),
];

#[test]
fn invalid_values_are_rejected_by_field() {
    for (fields, expected) in REFUSED {
        let error = convert("proxy.yaml", &with(fields)).unwrap_err();
        assert_eq!(error.place, "proxy.yaml: document 1 (line 1)");
        assert!(error.problem.starts_with(expected), "{fields}: {error}");
    }
}

#[test]
fn input_without_a_configuration_is_described() {
    let two = format!("{0}---\n{0}", with("mode: ipvs"));
    let old = with("").replace("kubeproxy.config.k8s.io", "componentconfig");
    let broken = "kind: ConfigMap\nmetadata: {name: p}\ndata:\n  c: |\n    kind: KubeProxyConfiguration\n    mode: [\n";
    for (text, expected) in [
        (
            "",
            "proxy.yaml: it contains no KubeProxyConfiguration, but nothing; give the output of `kubectl",
        ),
        (
            "7",
            "proxy.yaml: it contains no KubeProxyConfiguration, but a value that is not an object; give",
        ),
        (
            "kind: Service\nmetadata: {name: cart, namespace: shop}",
            "proxy.yaml: it contains no KubeProxyConfiguration, but Service shop/cart; give",
        ),
        ("a: [", "proxy.yaml: document 1 (line 1): line "),
        (
            &two,
            "proxy.yaml: it contains 2 configurations (proxy.yaml: document 1 (line 1); proxy.yaml: document 2 (line 5))",
        ),
        (
            &old,
            "proxy.yaml: document 1 (line 1): apiVersion: \"componentconfig/v1alpha1\" is not kubeproxy",
        ),
        (
            broken,
            "proxy.yaml: document 1 (line 1): ConfigMap p, c: line ",
        ),
    ] {
        let error = convert("proxy.yaml", text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_wrong_version_is_distinguished_from_a_missing_one() {
    for (version, expected) in [
        (
            "",
            "apiVersion: missing; write `apiVersion: kubeproxy.config.k8s.io/v1alpha1`",
        ),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1alpha2\n",
            "apiVersion: \"kubeproxy.config.k8s.io/v1alpha2\" is not",
        ),
    ] {
        let text = format!("{version}kind: KubeProxyConfiguration\nmode: ipvs\n");
        let problem = convert("file", &text).unwrap_err().problem;
        assert!(problem.starts_with(expected), "{problem}");
    }
}

/// k3s, kops and others pass flags to kube-proxy.
#[test]
fn without_a_file_the_message_names_the_command_that_creates_one() {
    let text = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: kube-proxy, namespace: kube-system}\n";
    let problem = convert("file", text).unwrap_err().problem;
    assert!(
        problem.contains("kube-proxy FLAGS --write-config-to FILE"),
        "{problem}"
    );
}

#[test]
fn a_duplicate_key_is_named() {
    let problem = convert("file", &with("ipvs: {scheduler: lc, scheduler: rr}"))
        .unwrap_err()
        .problem;
    assert_eq!(problem, "ipvs.scheduler: duplicate key; remove one");
    let problem = convert("file", &with("mode: ipvs\nmode: iptables"))
        .unwrap_err()
        .problem;
    assert_eq!(problem, "mode: duplicate key; remove one", "S-248");
}
