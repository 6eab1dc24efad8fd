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
    assert!(converted("kubeadm-ipvs.yaml").is_exact());
    assert!(converted("cluster-cidr.json").is_exact());
    assert!(converted("dual-stack.yaml").is_exact());
    for name in [
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

/// A configuration with these fields.
fn with(fields: &str) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{fields}\n"
    )
}
