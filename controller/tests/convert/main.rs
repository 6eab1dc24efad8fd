//! kube-proxy configurations as found in clusters, and arbitrary ones: each becomes a ProxyConfig that the controller
//! accepts, or an error.
// Tests, and their helper functions, may fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

mod laws;
mod program;
mod refused;

use std::path::{Path, PathBuf};

use portolan_controller::convert::{Conversion, Outcome, convert};
use portolan_controller::manifests::FileContents;
use portolan_plan::{Dataplane, HostFirewall, Settings};
use portolan_planner::model::Object;

/// A file beside this one.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert");
    folder.join(name)
}

fn converted(name: &str) -> Conversion {
    let text = std::fs::read_to_string(file(name)).unwrap();
    convert(name, &text).unwrap()
}

/// The controller's reading of the printed ProxyConfig.
fn settings(conversion: &Conversion) -> Settings {
    let text = serde_saphyr::to_string(&conversion.config).unwrap();
    let contents = FileContents::read("output", &text);
    assert_eq!(contents.problems, [], "{text}");
    match contents.objects.as_slice() {
        [(_, found)] => match &**found {
            Object::ProxyConfig(config) => config.current.settings.clone(),
            other => panic!("{other:?}"),
        },
        others => panic!("{others:?}"),
    }
}

/// The ProxyConfig and the report.
fn shown(name: &str) -> String {
    let conversion = converted(name);
    settings(&conversion);
    let config = serde_saphyr::to_string(&conversion.config).unwrap();
    format!("{config}\n{}", conversion.report())
}

macro_rules! conversions {
    ($($name:ident: $file:literal)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(shown($file));
        })*
    };
}

conversions! {
    kubeadm_in_mode_ipvs: "kubeadm-ipvs.yaml"
    kubeadm_in_mode_iptables: "kubeadm-iptables.yaml"
    kops: "kops.yaml"
    kubespray: "kubespray.yaml"
    k3s: "k3s.yaml"
    eks_with_least_connections: "eks.yaml"
    dual_stack_with_nftables: "dual-stack.yaml"
    pods_by_the_range_of_the_cluster: "cluster-cidr.json"
    pods_by_a_bridge: "bridge.yaml"
    unknown_and_removed_fields: "unknown.yaml"
    external_addresses_on_every_node: "arp.yaml"
    timeouts_that_are_left_alone: "conntrack-zeros.yaml"
}

#[test]
fn the_controller_reads_the_values_of_the_input() {
    let read = |name| settings(&converted(name));
    let kubespray = read("kubespray.yaml");
    assert_eq!(&*kubespray.scheduler, "wlc");
    assert_eq!(
        kubespray.node_port_addresses,
        ["192.168.50.0/24", "::/0"],
        "S-33"
    );
    assert_eq!(kubespray.exclude_cidrs.len(), 2);
    assert_eq!(kubespray.timeouts.tcp_fin.to_string(), "2m30s");
    let kubeadm = read("kubeadm-ipvs.yaml");
    assert_eq!(kubeadm.host_firewall, HostFirewall::Respect, "mode ipvs");
    assert_eq!(kubeadm.dataplane, Dataplane::Ipvs);
    assert_eq!(kubeadm.timeouts.tcp.to_string(), "24h", "S-221");
    assert!(
        kubeadm.node_port_addresses.is_empty(),
        "all, kube-proxy's default"
    );
    let k3s = read("k3s.yaml");
    assert_eq!(
        (k3s.conntrack.max_per_core, k3s.sync.min_period.to_string()),
        (0, "1s".into())
    );
    assert_eq!(k3s.host_firewall, HostFirewall::Open, "S-213");
    assert_eq!(k3s.dataplane, Dataplane::Ipvs, "mode iptables");
    let dual = read("dual-stack.yaml");
    assert_eq!(dual.dataplane, Dataplane::Nftables);
    assert_eq!((dual.masquerade.bit, dual.masquerade.all), (15, true));
    assert_eq!(dual.metrics.bind_address.to_string(), "::1");
    assert_eq!(dual.conntrack.tcp_close_wait.to_string(), "1m30s");
}

#[test]
fn only_fields_with_an_equivalent_are_exact() {
    assert!(converted("dual-stack.yaml").is_exact());
    let ipvs = "mode: ipvs\nclusterCIDR: 10.244.0.0/16\nipvs: {strictARP: true, tcpTimeout: 15m}";
    assert!(convert("file", &with(ipvs)).unwrap().is_exact());
    for name in [
        "kubeadm-ipvs.yaml",
        "cluster-cidr.json",
        "eks.yaml",
        "kops.yaml",
        "kubespray.yaml",
        "bridge.yaml",
        "unknown.yaml",
    ] {
        assert!(!converted(name).is_exact(), "{name}");
    }
}

/// All nodes share one setting for health and metrics, and the kubelet probes the node's address (F7).
#[test]
fn an_address_of_one_node_is_not_carried_over() {
    let default = Settings::default();
    for (field, carried) in [
        ("healthzBindAddress: 127.0.0.1:10300", false),
        ("healthzBindAddress: 10.0.0.21:10300", false),
        ("healthzBindAddress: 0.0.0.0:10300", true),
        ("metricsBindAddress: 127.0.0.1:10300", true),
        ("metricsBindAddress: 10.0.0.21:10300", false),
    ] {
        let conversion = convert("file", &with(field)).unwrap();
        let settings = settings(&conversion);
        let (ours, usual) = match field.starts_with("health") {
            true => (settings.healthz, &default.healthz),
            false => (settings.metrics, &default.metrics),
        };
        assert_eq!(ours.port, 10300, "{field}");
        if !carried {
            assert_eq!(ours.bind_address, usual.bind_address, "{field}");
        }
        let mut findings = conversion.findings.iter();
        let finding = findings
            .find(|finding| field.starts_with(&finding.field))
            .unwrap();
        assert_eq!(finding.outcome == Outcome::CarriedOver, carried, "{field}");
    }
}

/// S-237: kube-proxy's gate determines external IPs, and so does Portolan's setting.
#[test]
fn the_gate_of_external_ips_becomes_a_setting() {
    let of = |gate| {
        settings(&convert("file", &with(gate)).unwrap())
            .external_ips
            .allowed_cidrs
    };
    assert_eq!(of("featureGates: {AllowServiceExternalIPs: false}"), []);
    let all = Settings::default().external_ips.allowed_cidrs;
    assert_eq!(of("featureGates: {AllowServiceExternalIPs: true}"), all);
    assert_eq!(of("mode: ipvs"), all);
}

/// The outcome of a field, `None` if the report does not contain it.
fn outcome(conversion: &Conversion, field: &str) -> Option<Outcome> {
    let mut findings = conversion.findings.iter();
    let found = findings.find(|finding| finding.field == field);
    found.map(|finding| finding.outcome)
}

/// S-176, S-177, S-248: with kube-proxy in mode ipvs, nodes answered ARP for external addresses.
#[test]
fn without_strict_arp_nodes_change_their_behaviour() {
    let changes = Some(Outcome::ChangesMeaning);
    for (fields, expected) in [
        ("mode: ipvs", changes),
        ("mode: ipvs\nipvs: {strictARP: null}", changes),
        ("mode: ipvs\nipvs: {strictARP: false}", changes),
        (
            "mode: ipvs\nipvs: {strictARP: true}",
            Some(Outcome::NotNeeded),
        ),
        ("mode: iptables", None),
        ("mode: nftables", None),
    ] {
        let conversion = convert("file", &with(fields)).unwrap();
        assert_eq!(outcome(&conversion, "ipvs.strictARP"), expected, "{fields}");
    }
}

/// S-105, S-221, S-248: IPVS has timeouts of its own, which kube-proxy's other modes do not use.
#[test]
fn timeouts_of_ipvs_are_reported_and_shorten_no_flow() {
    for (fields, tcp, reported) in [
        ("mode: ipvs", "24h", Some(Outcome::ChangesMeaning)),
        (
            "mode: ipvs\nipvs: {tcpTimeout: 15m}",
            "15m",
            Some(Outcome::CarriedOver),
        ),
        (
            "mode: ipvs\nconntrack: {tcpEstablishedTimeout: 0s}",
            "0s",
            None,
        ),
        ("mode: iptables", "24h", None),
    ] {
        let conversion = convert("file", &with(fields)).unwrap();
        assert_eq!(
            settings(&conversion).timeouts.tcp.to_string(),
            tcp,
            "{fields}"
        );
        assert_eq!(
            outcome(&conversion, "ipvs.tcpTimeout"),
            reported,
            "{fields}"
        );
    }
    let kept = "conntrack: {tcpEstablishedTimeout: 0s}";
    for (mode, expected) in [
        ("mode: ipvs", Outcome::CarriedOver),
        ("mode: iptables", Outcome::ChangesMeaning),
        ("mode: nftables", Outcome::CarriedOver),
    ] {
        let conversion = convert("file", &with(&format!("{mode}\n{kept}"))).unwrap();
        let found = outcome(&conversion, "conntrack.tcpEstablishedTimeout");
        assert_eq!(found, Some(expected), "{mode}");
    }
    for (mode, udp) in [("ipvs", "0s"), ("iptables", "1h"), ("nftables", "0s")] {
        let fields = format!("mode: {mode}\nconntrack: {{udpTimeout: 7m, udpStreamTimeout: 1h}}");
        let found = settings(&convert("file", &with(&fields)).unwrap());
        assert_eq!(found.timeouts.udp.to_string(), udp, "{mode}");
        let times = [
            found.conntrack.udp_timeout,
            found.conntrack.udp_stream_timeout,
        ];
        assert_eq!(times.map(|time| time.to_string()), ["7m", "1h"], "{mode}");
    }
}

/// S-237, S-248: the chart allows no external IPs, kube-proxy all of them.
#[test]
fn ranges_of_external_ips_are_written_for_the_chart_with_a_line_in_the_report() {
    const GATE: &str = "featureGates.AllowServiceExternalIPs";
    for (fields, value, expected) in [
        ("mode: ipvs", None, Some(Outcome::FilledIn)),
        (
            "featureGates: {AllowServiceExternalIPs: true}",
            Some("true"),
            Some(Outcome::CarriedOver),
        ),
    ] {
        let conversion = convert("file", &with(fields)).unwrap().for_chart();
        let all = Settings::default().external_ips.allowed_cidrs;
        assert_eq!(settings(&conversion).external_ips.allowed_cidrs, all);
        assert_eq!(outcome(&conversion, GATE), expected);
        let of_gate = conversion.findings.iter().filter(|it| it.field == GATE);
        let values: Vec<_> = of_gate.map(|finding| finding.value.as_deref()).collect();
        assert_eq!(values, [value], "once");
    }
    let none = with("featureGates: {AllowServiceExternalIPs: false}");
    let conversion = convert("file", &none).unwrap();
    assert_eq!(conversion.clone().for_chart().findings, conversion.findings);
}

/// A configuration with these fields.
fn with(fields: &str) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{fields}\n"
    )
}
