//! Properties of conversions.

use std::collections::BTreeMap;

use portolan_controller::convert::{Outcome, convert};
use portolan_plan::{Dataplane, HostFirewall, LocalDetection, Period, Settings};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use crate::{file, settings};

const FILES: [&str; 13] = [
    "kubeadm-ipvs.yaml",
    "kubeadm-iptables.yaml",
    "kops.yaml",
    "kubespray.yaml",
    "k3s.yaml",
    "eks.yaml",
    "dual-stack.yaml",
    "cluster-cidr.json",
    "bridge.yaml",
    "unknown.yaml",
    "arp.yaml",
    "conntrack-zeros.yaml",
    "wrong-types.yaml",
];

fn document(mut fields: Map<String, Value>) -> String {
    fields.insert(
        "apiVersion".into(),
        "kubeproxy.config.k8s.io/v1alpha1".into(),
    );
    fields.insert("kind".into(), "KubeProxyConfiguration".into());
    Value::Object(fields).to_string()
}

/// A configuration as kube-proxy reads it. `None` is left out.
#[derive(Debug, Clone)]
struct Input {
    mode: Option<&'static str>,
    scheduler: Option<&'static str>,
    strict: Option<bool>,
    bit: Option<u8>,
    all: Option<bool>,
    period: Option<u32>,
    min_period: Option<u32>,
    per_core: Option<u32>,
    least: Option<u32>,
    established: Option<u32>,
    liberal: Option<bool>,
    node_ports: Option<Vec<&'static str>>,
    ranges: Option<&'static str>,
    health: Option<u16>,
}

prop_compose! {
    fn input()(
        mode in option::of(select(vec!["ipvs", "iptables", "nftables"])),
        (scheduler, strict) in (option::of(select(vec!["rr", "lc", "mh"])), any::<Option<bool>>()),
        (bit, all) in (option::of(0u8..32), any::<Option<bool>>()),
        (period, min_period) in (option::of(1u32..100), option::of(1u32..2)),
        (per_core, least) in (option::of(0u32..1 << 31), option::of(0u32..1 << 31)),
        (established, liberal) in (option::of(0u32..1 << 31), any::<Option<bool>>()),
        node_ports in option::of(select(vec![vec!["primary"], vec!["10.0.0.0/8", "fd00::/8"], vec!["all"], vec![]])),
        (ranges, health) in (
            option::of(select(vec!["10.244.0.0/16", "10.244.0.0/16,fd00:10::/56"])),
            option::of(1u16..),
        ),
    ) -> Input {
        Input {
            mode, scheduler, strict, bit, all, period, min_period, per_core, least, established, liberal, node_ports,
            ranges, health,
        }
    }
}

impl Input {
    fn mode(&self) -> &'static str {
        self.mode.unwrap_or("iptables")
    }

    fn document(&self) -> String {
        let seconds = |seconds: Option<u32>| seconds.map(|seconds| format!("{seconds}s"));
        let marks = json!({"masqueradeBit": self.bit, "masqueradeAll": self.all});
        let periods = json!({
            "syncPeriod": seconds(self.period),
            "minSyncPeriod": seconds(self.min_period),
        });
        let ipvs = json!({"scheduler": self.scheduler, "strictARP": self.strict});
        let conntrack = json!({
            "maxPerCore": self.per_core,
            "min": self.least,
            "tcpEstablishedTimeout": seconds(self.established),
            "tcpBeLiberal": self.liberal,
        });
        let mut sections: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        let of_marks = if self.mode() == "nftables" {
            "nftables"
        } else {
            "iptables"
        };
        for (section, fields) in [
            (of_marks, marks),
            (self.mode(), periods),
            ("ipvs", ipvs),
            ("conntrack", conntrack),
        ] {
            let fields = fields.as_object().unwrap().clone();
            sections.entry(section).or_default().extend(fields);
        }
        let rest = json!({
            "mode": self.mode,
            "clusterCIDR": self.ranges,
            "nodePortAddresses": self.node_ports,
            "healthzBindAddress": self.health.map(|port| format!("0.0.0.0:{port}")),
        });
        let mut fields = rest.as_object().unwrap().clone();
        fields.extend(
            sections
                .into_iter()
                .map(|(name, fields)| (name.to_owned(), Value::Object(fields))),
        );
        document(fields)
    }

    /// The expected behaviour of nodes: the configured one, else kube-proxy's defaults.
    fn expected(&self) -> Settings {
        let mut settings = Settings::default();
        let is_ipvs = self.mode() == "ipvs";
        if self.mode() == "nftables" {
            settings.dataplane = Dataplane::Nftables;
        }
        if is_ipvs {
            settings.scheduler = self.scheduler.unwrap_or("rr").into();
            settings.drop_invalid = false;
            settings.host_firewall = HostFirewall::Respect;
        }
        settings.masquerade.bit = self.bit.unwrap_or(14);
        if settings.masquerade.bit == settings.capture.bit {
            settings.capture.bit = 14;
        }
        settings.masquerade.all = self.all.unwrap_or(false);
        settings.sync.period = Period::seconds(self.period.unwrap_or(30));
        settings.sync.min_period = Period::seconds(self.min_period.unwrap_or(u32::from(!is_ipvs)));
        settings.conntrack.max_per_core = self.per_core.unwrap_or(32_768);
        settings.conntrack.min = self.least.unwrap_or(131_072);
        settings.conntrack.tcp_established = Period::seconds(self.established.unwrap_or(86_400));
        // The longest time that IPVS counts.
        let longest = Period::seconds(2_147_483);
        settings.timeouts.tcp = settings.conntrack.tcp_established.min(longest);
        settings.conntrack.tcp_be_liberal = self.liberal.unwrap_or(false);
        settings.node_port_addresses = match self.node_ports.as_deref() {
            None | Some([]) if self.mode() == "nftables" => vec!["primary".into()],
            None | Some([] | ["all"]) if self.mode() == "iptables" => {
                vec!["all".into(), "localhost".into()]
            }
            None | Some([] | ["all"]) => Vec::new(),
            Some(texts) => texts.iter().map(ToString::to_string).collect(),
        };
        if let Some(ranges) = self.ranges {
            let cluster_cidrs = ranges.split(',').map(|range| range.parse().unwrap());
            settings.local_detection = LocalDetection::ClusterCidr {
                cluster_cidrs: cluster_cidrs.collect(),
            };
        }
        settings.healthz.port = self.health.unwrap_or(10256);
        settings
    }
}

/// Paths of all values of a document with plain names.
fn paths(prefix: &str, value: &Value, found: &mut Vec<String>) {
    for (key, value) in value.as_object().unwrap() {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        if value.is_object() {
            paths(&path, value, found);
        } else {
            found.push(path);
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "-?[0-9]{1,20}[.:/]?[0-9]{0,3}(h|m|s|ms|us|ns)?".prop_map(Value::from),
        select(vec![
            "",
            "ipvs",
            "primary",
            "::",
            "10.0.0.0/8",
            "ClusterCIDR",
            "NodeCIDR",
            "BridgeInterface"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z.]{0,4}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// ClusterState field names, and some unknown ones.
const NAMES: [&str; 24] = [
    "mode",
    "bindAddress",
    "healthzBindAddress",
    "metricsBindAddress",
    "clusterCIDR",
    "detectLocalMode",
    "detectLocal",
    "bridgeInterface",
    "interfaceNamePrefix",
    "nodePortAddresses",
    "conntrack",
    "maxPerCore",
    "tcpEstablishedTimeout",
    "iptables",
    "ipvs",
    "nftables",
    "masqueradeBit",
    "syncPeriod",
    "minSyncPeriod",
    "scheduler",
    "excludeCIDRs",
    "featureGates",
    "logging",
    "x.y",
];

proptest! {
    #[test]
    fn nodes_do_what_kube_proxy_does_as_configured_or_by_default(input in input()) {
        let conversion = convert("law", &input.document()).unwrap();
        prop_assert_eq!(settings(&conversion), input.expected());
    }

    #[test]
    fn each_field_is_reported_once(input in input()) {
        let text = input.document();
        let conversion = convert("law", &text).unwrap();
        let mut expected = Vec::new();
        paths("", &serde_json::from_str(&text).unwrap(), &mut expected);
        expected.retain(|path| path != "kind" && path != "apiVersion");
        let reported = conversion.findings.iter().filter(|finding| finding.value.is_some());
        let mut reported: Vec<_> = reported.map(|finding| finding.field.clone()).collect();
        reported.sort();
        expected.sort();
        prop_assert_eq!(reported, expected);
        prop_assert!(conversion.findings.iter().all(|finding| finding.outcome != Outcome::Unknown));
    }

    #[test]
    fn no_text_ends_the_program(text in ".{0,200}") {
        drop(convert("law", &text));
        drop(convert("law", &format!("kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\n{text}")));
    }

    #[test]
    fn no_value_of_a_field_ends_the_program(
        fields in prop::collection::btree_map(select(NAMES.to_vec()), (option::of(select(NAMES.to_vec())), value()), 0..8),
    ) {
        let fields = fields.into_iter().map(|(name, (below, value))| {
            let value = match below {
                Some(below) => json!({below: value}),
                None => value,
            };
            (name.to_owned(), value)
        });
        if let Ok(conversion) = convert("law", &document(fields.collect())) {
            settings(&conversion);
            drop(conversion.report());
            drop(conversion.report_json());
        }
    }

    #[test]
    fn no_damage_to_a_file_ends_the_program(
        name in select(FILES.to_vec()),
        at in any::<Index>(),
        length in 0usize..40,
        with in "[ -~\n]{0,8}",
    ) {
        let mut text = std::fs::read_to_string(file(name)).unwrap();
        let start = at.index(text.len());
        let end = (start + length).min(text.len());
        text.replace_range(start..end, &with);
        if let Ok(conversion) = convert(name, &text) {
            settings(&conversion);
            drop(conversion.report());
        }
    }
}
