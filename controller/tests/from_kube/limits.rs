//! S-228: objects at all limits at once. Whatever a tenant writes, each entry of its Service has a bounded size, what
//! agents program has a bounded number, and the entries of other Services stay as they are.

use std::collections::BTreeMap;

use portolan_controller::manifests::FileContents;
use portolan_plan::{Entry, EntryKey, FrontendKind, HeadPort};
use portolan_planner::Planner;
use portolan_proto::{MAX_ENTRY_BYTES, decode_entry, encode_entry};
use proptest::prelude::*;
use proptest::sample::select;

/// The limits of docs/reference/limits.md.
const REAL_SERVERS: usize = 262_144;
const ALLOWED_SOURCES: usize = 65_536;
const HEADS: usize = 32;
/// A head and the endpoints of one node are small by arithmetic, whatever the lists are.
const SMALL: usize = 256 * 1024;

/// One value of each field that multiplies with others.
#[derive(Debug, Clone)]
struct Factors {
    ports: usize,
    balancers: usize,
    ranges: usize,
    endpoints: usize,
    nodes: usize,
    ready: bool,
    policy: &'static str,
    hints: bool,
}

fn factors() -> impl Strategy<Value = Factors> {
    (
        select(vec![1, 2, 191, 1000, 1001]),
        select(vec![0, 1, 3, 20]),
        select(vec![0, 2, 1000, 1001]),
        select(vec![0, 3, 300, 1000]),
        select(vec![1, 3, 40]),
        any::<bool>(),
        select(vec!["Cluster", "Local"]),
        any::<bool>(),
    )
        .prop_map(
            |(ports, balancers, ranges, endpoints, nodes, ready, policy, hints)| Factors {
                ports,
                balancers,
                ranges,
                endpoints,
                nodes,
                ready,
                policy,
                hints,
            },
        )
}

impl Factors {
    /// The Service, its slice and the nodes as manifests.
    fn manifests(&self) -> String {
        let list = |count, item: &dyn Fn(usize) -> String| {
            (1..=count).map(item).collect::<Vec<_>>().join(", ")
        };
        let ports = list(self.ports, &|n| {
            format!("{{name: p{n}, port: {n}, protocol: TCP}}")
        });
        let ranges = list(self.ranges, &|n| format!("\"2001:db8:{n:x}::/48\""));
        let ingress = list(self.balancers, &|n| {
            format!("{{ip: \"2001:db8:ffff::{n:x}\"}}")
        });
        let endpoints = list(self.endpoints, &|n| {
            let node = n % self.nodes + 1;
            let hints = match self.hints {
                true => format!(", hints: {{forZones: [{{name: zone-{node}}}]}}"),
                false => String::new(),
            };
            let ready = self.ready || n % 2 == 0;
            format!(
                "{{addresses: [\"fd00:244::{n:x}\"], nodeName: n{node}, zone: zone-{node}, \
                 conditions: {{ready: {ready}}}{hints}}}"
            )
        });
        let policy = self.policy;
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: wide, namespace: tenant}}\n\
             spec: {{type: LoadBalancer, clusterIP: \"fd00:96::1\", clusterIPs: [\"fd00:96::1\"], ipFamilies: [IPv6], \
             externalTrafficPolicy: {policy}, ports: [{ports}], loadBalancerSourceRanges: [{ranges}]}}\n\
             status: {{loadBalancer: {{ingress: [{ingress}]}}}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: wide-1, namespace: tenant, labels: {{kubernetes.io/service-name: wide}}}}\n\
             addressType: IPv6\nports: [{ports}]\nendpoints: [{endpoints}]\n"
        );
        for node in 1..=self.nodes {
            text += &format!(
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{node}, labels: {{topology.kubernetes.io/zone: \
                 zone-{node}}}}}\nstatus: {{addresses: [{{type: InternalIP, address: \"fd00:50::{node:x}\"}}]}}\n"
            );
        }
        text
    }
}

/// A Service of another tenant, with an endpoint.
const OTHER: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.5], nodeName: n1}]
";

fn planned(text: &str) -> Planner {
    let contents = FileContents::read("objects.yaml", text);
    let mut planner = Planner::default();
    let objects = contents.objects.iter();
    planner.apply(objects.map(|(_, object)| object.present()));
    planner
}

/// The entries of all nodes.
fn entries(planner: &Planner) -> BTreeMap<EntryKey, Vec<Entry>> {
    let mut found: BTreeMap<EntryKey, Vec<Entry>> = BTreeMap::new();
    for node in planner.nodes().values() {
        for (key, entry) in planner.entries_for(node) {
            let values = found.entry(key).or_default();
            if !values.contains(&entry) {
                values.push(entry);
            }
        }
    }
    found
}

fn frontends(ports: &[HeadPort]) -> usize {
    ports.iter().map(|port| port.frontends.len()).sum()
}

/// Entries of the set with allowed sources.
fn allowed(entry: &Entry) -> usize {
    let Entry::Head(head) = entry else { return 0 };
    let all = head.ports.iter().flat_map(|port| &port.frontends);
    let guarded = all.filter(|frontend| frontend.kind == FrontendKind::LoadBalancer);
    guarded.count() * head.source_ranges.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_service_at_all_limits_costs_a_bounded_amount_and_changes_no_other(factors in factors()) {
        let large = factors.manifests();
        let planner = planned(&format!("{large}{OTHER}"));
        let all = entries(&planner);
        let (mut most_frontends, mut longest) = (0, 0);
        for (key, values) in &all {
            let of_tenant = key.to_string().contains("/tenant/wide");
            for entry in values {
                let bytes = encode_entry(entry);
                let most = match entry {
                    Entry::List(list) => {
                        longest = longest.max(list.len());
                        MAX_ENTRY_BYTES
                    }
                    Entry::Head(head) if of_tenant => {
                        most_frontends = most_frontends.max(frontends(&head.ports));
                        prop_assert!(values.len() <= HEADS, "{} heads", values.len());
                        SMALL
                    }
                    _ => SMALL,
                };
                prop_assert!(bytes.len() <= most, "{key}: {} bytes", bytes.len());
                prop_assert!(allowed(entry) <= ALLOWED_SOURCES, "{key}: {}", allowed(entry));
                prop_assert_eq!(&decode_entry(key, &bytes).unwrap(), entry);
            }
        }
        prop_assert!(most_frontends * longest <= REAL_SERVERS, "{most_frontends} x {longest}");
        let alone = entries(&planned(&format!("{}{OTHER}", Factors { ports: 1, ..factors }.manifests())));
        let of_others = |entries: BTreeMap<EntryKey, Vec<Entry>>| {
            let mut entries = entries;
            entries.retain(|key, _| key.to_string().contains("/shop/web"));
            entries
        };
        let (beside, alone) = (of_others(all), of_others(alone));
        prop_assert!(!beside.is_empty());
        prop_assert_eq!(beside, alone);
    }
}

#[test]
fn each_cut_is_a_warning_on_its_service() {
    let factors = Factors {
        ports: 1000,
        balancers: 3,
        ranges: 1000,
        endpoints: 1000,
        nodes: 3,
        ready: true,
        policy: "Cluster",
        hints: false,
    };
    let planner = planned(&format!("{}{OTHER}", factors.manifests()));
    let warnings = planner.warnings_of_services();
    let texts: Vec<_> = warnings
        .iter()
        .map(|warning| format!("{}: {}", warning.object, warning.reason))
        .collect();
    assert!(!texts.is_empty());
    assert!(
        texts.iter().all(|text| text.contains("tenant/wide")),
        "{texts:#?}"
    );
    for part in [
        "loadBalancerSourceRanges",
        "are not used",
        "endpoints times ports",
    ] {
        let found = texts.iter().any(|text| text.contains(part));
        assert!(found, "no warning about {part}: {texts:#?}");
    }
}
