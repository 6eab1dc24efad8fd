//! ProxyPlanSlices: the content that nodes share, in parts. Pure.
//!
//! Services fall into 256 buckets by their key, so that a change touches few objects; within a
//! bucket, a scope has as many parts as it needs at about 100 kB each. Invariant: the names of all
//! parts differ, and every head and every endpoint of a shared list is in exactly one part.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_crds as crds;
use portolan_crds::limit;
use portolan_plan::{EntryHash, EntryKey, Family, ListKey, Scope, ServiceId};
use portolan_planner::PlannedService;

use super::content::size;
use super::figures::count;
use super::ports::{endpoint, slice_head};
use crate::cluster_state::ClusterState;

/// Maximum size of heads and lists in one part, in bytes.
const MAX_PART_BYTES: usize = 90 * 1024;
/// Endpoints of a list that stay together: about a quarter of a part.
const ENDPOINTS_PER_CHUNK: usize = 1000;

/// The bucket of a Service.
pub fn bucket(service: &ServiceId) -> u8 {
    EntryKey::Head(service.clone()).bucket()
}

/// All slices that nodes share, by name.
pub fn shared_slices(known: &ClusterState) -> BTreeMap<String, crds::ProxyPlanSliceSpec> {
    let mut buckets: BTreeMap<u8, Vec<&PlannedService>> = BTreeMap::new();
    for (id, planned) in known.planner.services() {
        buckets.entry(bucket(id)).or_default().push(planned);
    }
    let slices = buckets
        .into_iter()
        .flat_map(|(bucket, services)| bucket_slices(bucket, services.into_iter()));
    slices.collect()
}

/// The slices of one bucket, by name; its Services come in order.
pub fn bucket_slices<'a>(
    bucket: u8,
    services: impl Iterator<Item = &'a PlannedService>,
) -> BTreeMap<String, crds::ProxyPlanSliceSpec> {
    let mut scopes: BTreeMap<crds::SliceScope, Parts> = BTreeMap::new();
    for planned in services {
        let head = |place: usize| {
            planned
                .heads
                .get(place)
                .map(|head| slice_head(&planned.id, head))
        };
        if let Some(head) = head(0) {
            scopes.entry(cluster()).or_default().add_head(head);
        }
        for (name, place) in &planned.head_of_zone {
            if let Some(head) = head(*place) {
                scopes.entry(zone(name)).or_default().add_head(head);
            }
        }
        for (key, list) in &planned.lists {
            let scope = match &key.scope {
                Scope::Cluster => cluster(),
                Scope::Zone(name) => zone(name),
                // The ProxyPlan of the node contains it.
                Scope::Node(_) | Scope::Local(_) => continue,
            };
            let parts = scopes.entry(scope).or_default();
            let endpoints: Vec<_> = list.as_slice().iter().map(endpoint).collect();
            if endpoints.is_empty() {
                parts.add_list(slice_list(key, Vec::new()));
            }
            for endpoints in endpoints.chunks(ENDPOINTS_PER_CHUNK) {
                parts.add_list(slice_list(key, endpoints.to_vec()));
            }
        }
    }
    let slices = scopes
        .into_iter()
        .flat_map(|(scope, parts)| parts.finish(scope, bucket));
    slices.collect()
}

fn cluster() -> crds::SliceScope {
    crds::SliceScope::default()
}

fn zone(name: &Arc<str>) -> crds::SliceScope {
    crds::SliceScope {
        kind: crds::SliceScopeKind::Zone,
        name: name.to_string(),
    }
}

fn slice_list(key: &ListKey, endpoints: Vec<String>) -> crds::SliceList {
    crds::SliceList {
        namespace: key.service.namespace.to_string(),
        name: key.service.name.to_string(),
        port: key.port.to_string(),
        family: match key.family {
            Family::Ipv4 => crds::Family::Ipv4,
            Family::Ipv6 => crds::Family::Ipv6,
        },
        endpoints,
    }
}

/// The parts of one scope and bucket; the last one is being filled.
#[derive(Default)]
struct Parts {
    full: Vec<crds::ProxyPlanSliceSpec>,
    last: crds::ProxyPlanSliceSpec,
    bytes: usize,
}

impl Parts {
    fn add_head(&mut self, head: crds::SliceHead) {
        self.make_room(size(&head));
        self.last.heads.push(head);
    }

    fn add_list(&mut self, list: crds::SliceList) {
        self.make_room(size(&list));
        self.last.lists.push(list);
    }

    fn make_room(&mut self, bytes: usize) {
        let full = self.bytes + bytes > MAX_PART_BYTES
            || self.last.heads.len() == limit::SERVICES
            || self.last.lists.len() == limit::LISTS;
        if full && self.bytes > 0 {
            self.full.push(std::mem::take(&mut self.last));
            self.bytes = 0;
        }
        self.bytes += bytes;
    }

    fn finish(
        mut self,
        scope: crds::SliceScope,
        bucket: u8,
    ) -> impl Iterator<Item = (String, crds::ProxyPlanSliceSpec)> {
        self.full.push(self.last);
        self.full.into_iter().enumerate().map(move |(part, slice)| {
            let part = count(part);
            let spec = crds::ProxyPlanSliceSpec {
                scope: scope.clone(),
                bucket: Some(bucket),
                part,
                ..slice
            };
            (name(&scope, Some(bucket), part), spec)
        })
    }
}

/// The name of a slice. Bucket and part come last and always, so that no two scopes share a name.
pub fn name(scope: &crds::SliceScope, bucket: Option<u8>, part: u32) -> String {
    let whose = match scope.kind {
        crds::SliceScopeKind::Cluster => "cluster".to_owned(),
        crds::SliceScopeKind::Zone => format!("zone-{}", as_name(&scope.name)),
        crds::SliceScopeKind::Node => format!("node-{}", as_name(&scope.name)),
    };
    match bucket {
        Some(bucket) => format!("{whose}-{bucket:02x}-{part}"),
        None => format!("{whose}-{part}"),
    }
}

/// Maximum length of an object name that leaves room for the rest of the slice name, in bytes.
const MAX_NAME_BYTES: usize = 220;

/// An object name is used unchanged. Any other text is replaced by its hash, with a prefix that object names cannot
/// have.
fn as_name(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = text.len() <= MAX_NAME_BYTES
        && text.chars().all(allowed)
        && text.starts_with(edge)
        && text.ends_with(edge)
        && !text.contains("..")
        && !text.contains(".-")
        && !text.contains("-.");
    if is_name {
        return text.to_owned();
    }
    let hash = EntryHash::of(&EntryKey::Other("name".into()), text.as_bytes());
    format!("-{:032x}", hash.0)
}
