//! Former states of changed Services, as far back as streams may need them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::encoded::EncodedService;

/// Maximum number of replaced Services stored. A stream that falls further behind gets a snapshot, which is no more
/// expensive by then.
const MAX_REPLACED_SERVICES: usize = 16_384;
/// Maximum number of their parts (lists, nodes' own endpoints, heads). A Service with a pod on each of thousands of
/// nodes has thousands of parts, and each of its changes is stored (ADR 0006).
const MAX_REPLACED_PARTS: usize = 200_000;

/// Replaced Services, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    replaced: VecDeque<Replaced>,
    /// The sum of their parts.
    parts: usize,
    /// Changes up to this version may be missing.
    forgotten: u64,
}

#[derive(Debug)]
struct Replaced {
    /// The version of the change.
    version: u64,
    service: ServiceId,
    was: Was,
}

/// A Service before a change.
#[derive(Debug, Clone)]
pub(super) struct Was {
    /// Its number then, which another Service may have now.
    pub(super) number: u32,
    /// Its state then; `None` if it did not exist.
    pub(super) service: Option<Arc<EncodedService>>,
}

impl Replaced {
    fn parts(&self) -> usize {
        self.was.service.as_ref().map_or(1, |old| old.parts())
    }
}

impl History {
    pub(super) fn push(&mut self, version: u64, service: ServiceId, was: Was) {
        let replaced = Replaced {
            version,
            service,
            was,
        };
        self.parts += replaced.parts();
        self.replaced.push_back(replaced);
        while self.replaced.len() > MAX_REPLACED_SERVICES || self.parts > MAX_REPLACED_PARTS {
            let Some(oldest) = self.replaced.pop_front() else {
                break;
            };
            self.parts -= oldest.parts();
            self.forgotten = oldest.version;
        }
    }

    /// The Services that changed after a version, with their state at that version; `None` if the history does not
    /// reach back that far.
    pub(super) fn since(&self, version: u64) -> Option<BTreeMap<&ServiceId, &Was>> {
        if version < self.forgotten {
            return None;
        }
        let start = self
            .replaced
            .partition_point(|replaced| replaced.version <= version);
        let mut services = BTreeMap::new();
        for Replaced { service, was, .. } in self.replaced.range(start..) {
            // Only the first change after the version has the state before it.
            services.entry(service).or_insert(was);
        }
        Some(services)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use portolan_plan::{Head, Local};
    use portolan_planner::PlannedService;

    use super::*;

    /// A Service with endpoints on `count` nodes.
    fn on_nodes(count: usize) -> Arc<EncodedService> {
        let id = ServiceId::new("shop", "web");
        let local = |number| (format!("n{number}").into(), Arc::new(Local::default()));
        let planned = PlannedService {
            id: id.clone(),
            heads: vec![Arc::new(Head::default())],
            head_of_zone: BTreeMap::new(),
            head_of_node: BTreeMap::new(),
            lists: BTreeMap::new(),
            locals: (0..count).map(local).collect(),
            elsewhere: None,
            hints: Vec::new(),
            warnings: Vec::new(),
        };
        Arc::new(EncodedService::new(&id, 0, 1, Arc::new(planned), None))
    }

    #[test]
    fn large_services_are_stored_for_fewer_changes_and_small_ones_for_many() {
        let id = || ServiceId::new("shop", "web");
        let was = |service| Was {
            number: 0,
            service: Some(service),
        };
        let mut history = History::default();
        for version in 1..=300 {
            history.push(version, id(), was(on_nodes(1)));
        }
        assert!(history.since(0).is_some());
        let large = on_nodes(MAX_REPLACED_PARTS / 10);
        for version in 301..=320 {
            history.push(version, id(), was(large.clone()));
        }
        assert!(history.parts <= MAX_REPLACED_PARTS);
        assert!(history.replaced.len() < 10, "{}", history.replaced.len());
        assert!(history.since(300).is_none(), "it gets a snapshot");
        assert!(history.since(319).is_some());
    }
}
