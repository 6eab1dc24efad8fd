//! The version of the plans at which each Service changed last.

use std::collections::{BTreeMap, VecDeque};

use portolan_plan::ServiceId;

/// Maximum number of removed Services stored. An older one is known to have changed before all of them.
const MAX_REMOVED_SERVICES: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Changed {
    at: BTreeMap<ServiceId, u64>,
    /// Removed Services, the oldest first.
    gone: VecDeque<(u64, ServiceId)>,
    /// Services that are not stored did not change after this version.
    before: u64,
}

impl Changed {
    /// Records that a Service changed or was removed.
    pub(super) fn note(&mut self, service: &ServiceId, version: u64, gone: bool) {
        self.at.insert(service.clone(), version);
        if !gone {
            return;
        }
        self.gone.push_back((version, service.clone()));
        if self.gone.len() > MAX_REMOVED_SERVICES
            && let Some((version, service)) = self.gone.pop_front()
            // It may have been created again, or removed again.
            && self.at.get(&service) == Some(&version)
        {
            self.at.remove(&service);
            self.before = version;
        }
    }

    /// The version of its last change, or a later one.
    pub(super) fn at(&self, service: &ServiceId) -> u64 {
        self.at.get(service).copied().unwrap_or(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_services_are_remembered_for_a_while_with_a_version_that_is_not_too_old() {
        let id = |number: u64| ServiceId::new("shop", format!("s{number}"));
        let mut changed = Changed::default();
        assert_eq!(changed.at(&id(1)), 0);
        changed.note(&id(0), 1, true);
        changed.note(&id(0), 2, false);
        let last = 2 + u64::try_from(MAX_REMOVED_SERVICES).unwrap() + 5;
        for version in 3..=last {
            changed.note(&id(version), version, true);
        }
        assert_eq!(changed.at(&id(0)), 2, "it is there");
        assert_eq!(changed.at(&id(last)), last);
        assert!(changed.at(&id(3)) >= 3);
        assert!(changed.gone.len() <= MAX_REMOVED_SERVICES);
        assert!(changed.at.len() <= MAX_REMOVED_SERVICES + 1);
    }
}
