//! Updates the traffic of Services after each complete read of the kernel. This causes no extra requests, because the
//! counters are part of the virtual servers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use portolan_reconcile::HostNetwork;
use tokio::sync::watch;

use super::Programmer;
use crate::kernel::Kernel;
use crate::owners::owned;
use crate::traffic::{Meter, TrafficTotals};

/// Sums and publishes the traffic.
#[derive(Debug)]
pub(super) struct TrafficReader {
    meter: Meter,
    totals: watch::Sender<Arc<TrafficTotals>>,
}

impl<K: Kernel> Programmer<K> {
    /// Subscribes to the traffic of Services, at most `most` of them by name. The kernel must have been set to count
    /// traffic.
    pub fn traffic(&mut self, most: NonZeroU32) -> watch::Receiver<Arc<TrafficTotals>> {
        let (totals, receiver) = watch::channel(Arc::default());
        let meter = Meter::new(usize::try_from(most.get()).unwrap_or(usize::MAX));
        self.traffic = Some(TrafficReader { meter, totals });
        receiver
    }

    /// Updates the traffic after a complete read on a node with this network.
    pub(super) fn read_traffic(&mut self, host: &HostNetwork) {
        let Some(reading) = &mut self.traffic else {
            return;
        };
        let plan = self.plans.plan();
        let owned = owned(&plan, host).into_iter();
        let owners: BTreeMap<_, _> = owned.map(|of| (of.place, of.service.clone())).collect();
        let totals = reading.meter.read(self.kernel.traffic(), &owners);
        reading.totals.send_replace(Arc::new(totals));
    }
}
