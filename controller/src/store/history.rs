//! What Services were before they changed, as far back as streams may still stand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::encoded::EncodedService;

/// How many replaced Services are remembered. A stream that fell further behind gets a snapshot,
/// which by then is no dearer.
const LONGEST: usize = 16_384;

/// Replaced Services, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    replaced: VecDeque<Replaced>,
    /// Changes up to this version may be missing.
    forgotten: u64,
}

#[derive(Debug)]
struct Replaced {
    /// The version that this change led to.
    version: u64,
    service: ServiceId,
    /// What it was before; `None` when it was not there.
    old: Option<Arc<EncodedService>>,
}

impl History {
    pub(super) fn push(
        &mut self,
        version: u64,
        service: ServiceId,
        old: Option<Arc<EncodedService>>,
    ) {
        self.replaced.push_back(Replaced {
            version,
            service,
            old,
        });
        if self.replaced.len() > LONGEST
            && let Some(oldest) = self.replaced.pop_front()
        {
            self.forgotten = oldest.version;
        }
    }

    /// The Services that changed after a version, each as it was at that version; `None` when the
    /// history does not reach back that far.
    pub(super) fn since(
        &self,
        version: u64,
    ) -> Option<BTreeMap<&ServiceId, Option<&Arc<EncodedService>>>> {
        if version < self.forgotten {
            return None;
        }
        let start = self
            .replaced
            .partition_point(|replaced| replaced.version <= version);
        let mut services = BTreeMap::new();
        for Replaced { service, old, .. } in self.replaced.range(start..) {
            // Only the first change after the version tells what was there before.
            services.entry(service).or_insert(old.as_ref());
        }
        Some(services)
    }
}
