//! Former states of changed Services, as far back as streams may need them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::encoded::EncodedService;

/// Maximum memory of replaced Services, as [`EncodedService::bytes`] estimates it. A Service with a pod on each of
/// thousands of nodes takes megabytes, and each of its changes is stored (ADR 0006).
const MAX_REPLACED_BYTES: usize = 64 << 20;
/// Maximum number of changes and of names of ports that are stored with them. They outlive the replaced Services: a
/// stream that falls behind these is sent the changed Services as a whole.
const MAX_NAMES: usize = 65_536;

/// The size of a history.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimits {
    /// Bytes of replaced Services.
    pub bytes: usize,
    /// Changes, and names of ports in them.
    pub names: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            bytes: MAX_REPLACED_BYTES,
            names: MAX_NAMES,
        }
    }
}

/// Changes of Services, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    limits: HistoryLimits,
    changes: VecDeque<Change>,
    /// Number of changes at the front without the state before them.
    bare: usize,
    /// The sum of the changes' bytes.
    bytes: usize,
    /// The number of changes and of names of ports.
    names: usize,
    /// The state before changes up to this version may be missing.
    forgotten: u64,
    /// Changes up to this version may be missing.
    unknown: u64,
}

#[derive(Debug)]
struct Change {
    /// The version of the change.
    version: u64,
    service: ServiceId,
    /// The names of its ports before the change.
    ports: Arc<[Arc<str>]>,
    /// Its state before the change, unless that is forgotten.
    was: Option<Was>,
    /// The memory of that state.
    bytes: usize,
    /// The memory of the Service's name and of names of ports that no later form shares, in names.
    names: usize,
}

/// A Service before a change.
#[derive(Debug, Clone)]
pub(super) struct Was {
    /// Its number then, which another Service may have now.
    pub(super) number: u32,
    /// Its state then; `None` if it did not exist.
    pub(super) service: Option<Arc<EncodedService>>,
}

/// A changed Service at an earlier version.
#[derive(Debug)]
pub(super) enum Former {
    /// Its state; `None` if it did not exist.
    Known(Option<Arc<EncodedService>>),
    /// Only the names of ports that it had at that version and later.
    Forgotten(BTreeSet<Arc<str>>),
}

impl History {
    /// A history of this size.
    pub(super) fn with_limits(limits: HistoryLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Records a change. With `same_ports` the new form shares the names of the ports.
    pub(super) fn push(&mut self, version: u64, service: ServiceId, was: Was, same_ports: bool) {
        let old = was.service.as_ref();
        let bytes = old.map_or(0, |old| old.bytes());
        let ports = old.map_or_else(Arc::default, |old| old.ports().clone());
        self.bytes += bytes;
        let names = if same_ports { 1 } else { 1 + ports.len() };
        self.names += names;
        self.changes.push_back(Change {
            version,
            service,
            ports,
            was: Some(was),
            bytes,
            names,
        });
        self.forget();
    }

    fn forget(&mut self) {
        while self.bytes > self.limits.bytes
            && let Some(oldest) = self.changes.get_mut(self.bare)
        {
            self.bytes -= std::mem::take(&mut oldest.bytes);
            oldest.was = None;
            self.forgotten = oldest.version;
            self.bare += 1;
        }
        while self.names > self.limits.names
            && let Some(oldest) = self.changes.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.names -= oldest.names;
            self.bare = self.bare.saturating_sub(1);
            self.forgotten = self.forgotten.max(oldest.version);
            self.unknown = oldest.version;
        }
    }

    /// Whether the state of all Services at a version is known.
    pub(super) fn reaches(&self, version: u64) -> bool {
        version >= self.forgotten
    }

    /// The Services that changed after a version, with their state at that version; `None` if the history does not
    /// reach back that far.
    pub(super) fn since(&self, version: u64) -> Option<BTreeMap<&ServiceId, &Was>> {
        if !self.reaches(version) {
            return None;
        }
        let mut services = BTreeMap::new();
        for Change { service, was, .. } in self.after(version) {
            // Only the first change after the version has the state before it.
            if let Some(was) = was {
                services.entry(service).or_insert(was);
            }
        }
        Some(services)
    }

    /// The Services that changed after a version, with what is known of their state at that version; `None` if some
    /// changes are unknown.
    pub(super) fn changed_since(&self, version: u64) -> Option<BTreeMap<&ServiceId, Former>> {
        if version < self.unknown {
            return None;
        }
        let mut services = BTreeMap::new();
        for change in self.after(version) {
            let former = services
                .entry(&change.service)
                .or_insert_with(|| match &change.was {
                    Some(was) => Former::Known(was.service.clone()),
                    None => Former::Forgotten(BTreeSet::new()),
                });
            if let Former::Forgotten(ports) = former {
                ports.extend(change.ports.iter().cloned());
            }
        }
        Some(services)
    }

    fn after(&self, version: u64) -> impl Iterator<Item = &Change> {
        let start = self
            .changes
            .partition_point(|change| change.version <= version);
        self.changes.range(start..)
    }
}

#[cfg(test)]
mod tests {
    use portolan_plan::{Head, HeadPort, Local};
    use portolan_planner::PlannedService;

    use super::*;

    /// A Service with a port of this name and with endpoints on `count` nodes.
    fn on_nodes(port: &str, count: usize) -> Arc<EncodedService> {
        let id = ServiceId::new("shop", "web");
        let local = |number| (format!("n{number}").into(), Arc::new(Local::default()));
        let port = HeadPort {
            name: port.into(),
            ..HeadPort::default()
        };
        let head = Head {
            ports: [port].into_iter().collect(),
            ..Head::default()
        };
        let planned = PlannedService {
            id: id.clone(),
            heads: vec![Arc::new(head)],
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

    fn push(history: &mut History, version: u64, service: Option<Arc<EncodedService>>) {
        let was = Was { number: 0, service };
        history.push(version, ServiceId::new("shop", "web"), was, false);
    }

    #[test]
    fn large_services_are_stored_for_fewer_changes_and_small_ones_for_many() {
        let limits = HistoryLimits {
            bytes: 1 << 20,
            ..HistoryLimits::default()
        };
        let mut history = History::with_limits(limits);
        for version in 1..=300 {
            push(&mut history, version, Some(on_nodes("http", 1)));
        }
        assert!(history.since(0).is_some());
        // Each takes at least a tenth of the memory: a node takes more than 16 bytes.
        let large = on_nodes("http", limits.bytes / 10 / 16);
        for version in 301..=320 {
            push(&mut history, version, Some(large.clone()));
        }
        assert!(history.bytes <= limits.bytes);
        assert!(history.since(300).is_none());
        assert!(history.since(319).is_some());
    }

    #[test]
    fn the_changes_outlive_the_states_before_them() {
        let size = on_nodes("http", 1).bytes();
        let mut history = History::with_limits(HistoryLimits {
            bytes: size,
            names: 6,
        });
        push(&mut history, 1, None);
        for (version, port) in [(2, "a"), (3, "b"), (4, "c")] {
            push(&mut history, version, Some(on_nodes(port, 1)));
        }
        let former = |version| {
            let changed = history.changed_since(version)?;
            changed.into_values().next()
        };
        // Six names: three changes with a port each.
        assert!(history.changed_since(0).is_none());
        assert!(!history.reaches(2) && history.since(2).is_none());
        let names: BTreeSet<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        assert!(matches!(former(1), Some(Former::Forgotten(ports)) if ports == names));
        assert!(history.reaches(3));
        assert!(matches!(former(3), Some(Former::Known(Some(_)))));
        assert!(former(4).is_none());
    }

    #[test]
    fn a_state_larger_than_the_history_is_forgotten_at_once() {
        let mut history = History::with_limits(HistoryLimits {
            bytes: 0,
            ..HistoryLimits::default()
        });
        push(&mut history, 1, Some(on_nodes("a", 1)));
        assert_eq!((history.bytes, history.bare), (0, 1));
        assert!(!history.reaches(0) && history.reaches(1));
        assert!(history.changed_since(0).is_some());
    }
}
