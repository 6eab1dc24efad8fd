//! Robustness of reading manifests: no text crashes the program, and damage stays local.
// Tests, and their helper functions, may fail by panicking.
#![allow(clippy::unwrap_used)]

use portolan_controller::manifests::{FileContents, Manifests, Severity};
use portolan_controller::output::plan_document;
use portolan_controller::store::Store;
use portolan_plan::PlanDocument;
use portolan_planner::Planner;
use proptest::prelude::*;

const CLUSTER: &str = include_str!("../example/cluster.yaml");

/// A Service with all fields.
const EVERYTHING: &str = r#"
apiVersion: v1
kind: Service
metadata:
  name: edge
  namespace: shop
  creationTimestamp: "2026-01-02T03:04:05Z"
  labels: {k8s-app: kube-dns}
  annotations: {proxy.portolan.dev/scheduler: mh, proxy.portolan.dev/drain: 30s, proxy.portolan.dev/boot-critical: "true"}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.77
  clusterIPs: [10.96.0.77, "fd00:10:96::77"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: [203.0.113.7, "2001:db8::7", 192.168.50.11]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  healthCheckNodePort: 32077
  loadBalancerSourceRanges: [198.51.100.0/24, "2001:db8::/32"]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  ports:
  - {name: http, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30077}
  - {name: dns, protocol: UDP, port: 53, nodePort: 30053}
status:
  loadBalancer:
    ingress:
    - {ip: 203.0.113.8, ipMode: VIP}
    - {ip: 203.0.113.9, ipMode: Proxy}
    - {hostname: lb.example.org}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: edge-1, namespace: shop, generation: 3, labels: {kubernetes.io/service-name: edge}}
addressType: IPv4
ports: [{name: http, protocol: TCP, port: 8080}, {name: dns, protocol: UDP, port: 5353}]
endpoints:
- {addresses: [10.244.1.77], nodeName: node-a, zone: zone-1, conditions: {ready: true, serving: true, terminating: false}, hints: {forZones: [{name: zone-1}], forNodes: [{name: node-a}]}}
- {addresses: [10.244.2.77], nodeName: node-b, zone: zone-2, conditions: {ready: false, serving: true, terminating: true}}
"#;

/// Reads a text and plans its objects.
fn plan(text: &str) -> (FileContents, Planner) {
    let contents = FileContents::read("test", text);
    let mut manifests = Manifests::default();
    manifests.add(contents.clone());
    let mut planner = Planner::default();
    planner.apply(manifests.objects.values().map(|found| found.present()));
    (contents, planner)
}

fn documents() -> Vec<&'static str> {
    CLUSTER.split("---\n").collect()
}

#[test]
fn the_example_is_read_without_a_problem() {
    let (contents, planner) = plan(CLUSTER);
    assert_eq!(contents.problems, []);
    assert_eq!((contents.objects.len(), planner.services().len()), (13, 5));
}

#[test]
fn a_service_that_asks_for_everything_is_read_without_a_problem() {
    let (contents, planner) = plan(EVERYTHING);
    assert_eq!(contents.problems, []);
    assert_eq!(contents.objects.len(), 2);
    let planned = planner.services().values().next().unwrap();
    assert_eq!(planned.heads[0].ports[0].frontends.len(), 7);
}

#[test]
fn the_printed_hash_is_the_one_that_is_streamed() {
    let manifests = FileContents::read("test", CLUSTER);
    let mut planner = Planner::default();
    let store = Store::default();
    for (_, found) in &manifests.objects {
        store.publish(planner.apply([found.present()]));
    }
    for name in ["node-a", "node-b"] {
        let streamed = store.plan(name).unwrap();
        let printed = plan_document(&planner, name).unwrap();
        assert_eq!(printed.hash, streamed.hash().to_string());
        assert_eq!(
            PlanDocument::from_plan(&streamed, printed.warnings.clone()),
            Some(printed)
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        plan(&text);
    }

    #[test]
    fn any_yaml_of_kubernetes_words_is_read_or_refused(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "kind: ", "Service\n", "apiVersion: ", "v1\n", "metadata: ", "{name: a}\n", "spec:\n", "  ports:\n",
                "  - port: ", "-1\n", "99999999999\n", "null\n", "[]\n", "{}\n", "items: ", "List\n", "---\n", "&a ",
                "*a\n", "<<: ", "\"", "'", "- ", "  ", "clusterIP: ", "!!binary x\n", ".nan\n", "%YAML 9\n", "...\n", "\t",
            ]),
            0..30,
        ),
    ) {
        plan(&words.concat());
    }

    #[test]
    fn damage_to_one_document_leaves_the_others_alone(
        place in any::<proptest::sample::Index>(),
        broken in any::<proptest::sample::Index>(),
        noise in "[\\PC\n]{1,12}",
    ) {
        let documents = documents();
        let broken = broken.index(documents.len());
        let mut texts: Vec<String> = documents.iter().map(ToString::to_string).collect();
        let places: Vec<_> = texts[broken].char_indices().map(|(offset, _)| offset).collect();
        let place = places[place.index(places.len())];
        // Damage to document separators is tested elsewhere.
        prop_assume!(!noise.contains("---") && !noise.contains("..."));
        texts[broken].insert_str(place, &noise);
        let (contents, _) = plan(&texts.join("---\n"));
        for (index, document) in documents.iter().enumerate().filter(|(index, _)| *index != broken) {
            for (_, found) in &FileContents::read("test", document).objects {
                let there = contents.objects.iter().any(|(_, other)| other == found);
                prop_assert!(there, "document {} is gone: {:?}", index + 1, contents.problems);
            }
        }
    }

    /// Replaces every leaf of every object in turn by an invalid value.
    #[test]
    fn a_value_of_any_kind_anywhere_is_read_or_named(
        leaf in any::<proptest::sample::Index>(),
        value in proptest::sample::select(vec![
            "null", "true", "-1", "0", "65536", "1e300", "\"\"", "\"/\"", "\"None\"", "\"fd00::1\"", "[]", "[[]]",
            "{}", "{\"a\": 1}", "\"10.96.0.0/12\"", "9223372036854775807",
        ]),
    ) {
        let text = format!("{CLUSTER}---{EVERYTHING}");
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
        let mut list = serde_json::Value::Array(documents);
        let mut paths = Vec::new();
        leaves(&list, String::new(), &mut paths);
        let path = &paths[leaf.index(paths.len())];
        *list.pointer_mut(path).unwrap() = serde_json::from_str(value).unwrap();
        let texts = list.as_array().unwrap().iter().map(|document| document.to_string() + "\n");
        let (contents, _) = plan(&texts.collect::<String>());
        for problem in &contents.problems {
            // Only a list that is not a list hides its items.
            let hidden = problem.message.starts_with("items: not a list");
            prop_assert!(problem.severity != Severity::Unreadable || hidden, "{}", problem);
            let names_a_field = problem.message.contains(':');
            let no_object = problem.message.starts_with("not an object");
            prop_assert!(names_a_field || no_object, "no field in: {}", problem);
        }
    }
}

/// The paths of all scalars, lists and maps.
fn leaves(value: &serde_json::Value, path: String, paths: &mut Vec<String>) {
    let step = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        serde_json::Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                leaves(item, step(&index.to_string()), paths);
            }
        }
        serde_json::Value::Object(fields) => {
            for (key, field) in fields {
                leaves(field, step(key), paths);
            }
        }
        _ => {}
    }
    // A replaced document is not an object any more, which has another message.
    if path.matches('/').count() > 1 {
        paths.push(path);
    }
}
