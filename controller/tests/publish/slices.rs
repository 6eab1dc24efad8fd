//! ProxyPlanSlices: the shared part of plans.

use std::collections::{BTreeMap, BTreeSet};

use portolan_controller::publish::{bucket, name, shared_slices};
use portolan_crds::{ProxyPlanSliceSpec, SliceScope, SliceScopeKind};
use portolan_plan::ServiceId;

use crate::cluster::{known, node, service, shop, slice};

#[test]
fn slices_hold_every_shared_head_and_endpoint_once() {
    let known = known(&shop());
    let mut endpoints: BTreeMap<String, usize> = BTreeMap::new();
    let mut heads = 0;
    for slice in shared_slices(&known).values() {
        heads += slice.heads.len();
        for list in &slice.lists {
            let scope = match slice.scope.kind {
                SliceScopeKind::Cluster => "cluster".to_owned(),
                _ => format!("zone/{}", slice.scope.name),
            };
            for endpoint in &list.endpoints {
                *endpoints
                    .entry(format!("{scope} {} {endpoint}", list.name))
                    .or_default() += 1;
            }
        }
    }
    let mut planned = 0;
    let mut planned_heads = 0;
    for service in known.planner.services().values() {
        planned_heads += 1 + service.head_of_zone.len();
        for (key, list) in &service.lists {
            if key.scope.node().is_none() {
                planned += list.len();
            }
        }
    }
    assert_eq!(heads, planned_heads);
    assert_eq!(endpoints.values().sum::<usize>(), planned);
    assert!(endpoints.values().all(|count| *count == 1), "{endpoints:?}");
    assert!(endpoints.contains_key("zone/zone-2 near 10.244.2.4:8080"));
    assert!(endpoints.contains_key("cluster half 10.244.1.5:8080"));
}

#[test]
fn a_slice_reads_like_this() {
    let known = known(&shop());
    let near = ServiceId::new("shop", "near");
    let name = name(&SliceScope::default(), Some(bucket(&near)), 0);
    let slices = shared_slices(&known);
    insta::assert_yaml_snapshot!(slices[&name]);
}

/// A Service with 20,000 endpoints, the largest object to split.
#[test]
fn no_slice_takes_more_than_about_100_kb() {
    let endpoints: Vec<_> = (0..20_000)
        .map(|n| format!("10.{}.{}.{} node-a", n / 62_500, n / 250 % 250, n % 250 + 1))
        .collect();
    let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
    let yaml = [
        node("node-a", "zone-1"),
        service("huge", "10.96.0.1", "Cluster"),
        slice("huge", &endpoints),
    ];
    let slices = shared_slices(&known(&yaml.concat()));
    let bytes = |slice: &ProxyPlanSliceSpec| serde_json::to_string(slice).unwrap().len();
    assert!(slices.len() >= 4, "{}", slices.len());
    assert!(slices.values().all(|slice| bytes(slice) < 100_000));
    let parts: BTreeSet<_> = slices.values().map(|slice| slice.part).collect();
    assert_eq!(parts.len(), slices.len());
    let lists = slices.values().flat_map(|slice| &slice.lists);
    let all: BTreeSet<_> = lists.flat_map(|list| &list.endpoints).collect();
    assert_eq!(all.len(), 20_000);
}

#[test]
fn names_of_slices_are_names_and_no_two_scopes_share_one() {
    let scope = |kind, name: &str| SliceScope {
        kind,
        name: name.to_owned(),
    };
    use SliceScopeKind::{Cluster, Node, Zone};
    let long = "n".repeat(253);
    let scopes = [
        scope(Cluster, ""),
        scope(Zone, "a"),
        scope(Zone, "a-00"),
        scope(Zone, "A_b"),
        scope(Zone, "a_b"),
        scope(Node, "a"),
        scope(Node, "a-00"),
        scope(Node, &long),
    ];
    let mut names = BTreeSet::new();
    let mut count = 0;
    for scope in &scopes {
        for bucket in [None, Some(0), Some(0x10), Some(0xff)] {
            if bucket.is_none() != (scope.kind == Node) {
                continue;
            }
            for part in [0, 1, 10] {
                let name = name(scope, bucket, part);
                let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                assert!(name.len() <= 253 && name.chars().all(allowed), "{name}");
                names.insert(name);
                count += 1;
            }
        }
    }
    assert_eq!(names.len(), count);
}
