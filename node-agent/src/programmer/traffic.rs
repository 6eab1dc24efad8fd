//! Updates the traffic of Services with each complete read of the kernel. With IPVS this causes no extra requests, because
//! the counters are part of the virtual servers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use portolan_reconcile::HostNetwork;
use tokio::sync::watch;
use tracing::warn;

use super::Programmer;
use crate::kernel::Kernel;
use crate::owners::owned;
use crate::traffic::{Meter, TrafficTotals};

/// Sums and publishes the traffic.
#[derive(Debug)]
pub(super) struct TrafficReader {
    meter: Meter,
    totals: watch::Sender<Arc<TrafficTotals>>,
    /// Whether the last counters were those of nftables.
    of_tables: bool,
}

impl<K: Kernel> Programmer<K> {
    /// Subscribes to the traffic of Services, at most `most` of them by name. The kernel must have been set to count
    /// traffic.
    pub fn traffic(&mut self, most: NonZeroU32) -> watch::Receiver<Arc<TrafficTotals>> {
        let (totals, receiver) = watch::channel(Arc::default());
        let meter = Meter::new(usize::try_from(most.get()).unwrap_or(usize::MAX));
        self.traffic = Some(TrafficReader {
            meter,
            totals,
            of_tables: false,
        });
        receiver
    }

    /// Updates the traffic with a complete read on a node with this network.
    pub(super) fn read_traffic(&mut self, host: &HostNetwork) {
        if self.traffic.is_none() {
            return;
        }
        let of_tables = self.tables.serves();
        let seen = match of_tables {
            true => self.connections_of_tables(),
            false => Ok(self.kernel.traffic()),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                // The counters go on, and the next read includes what this one missed.
                warn!(%error, "the connections of Services were not read");
                return;
            }
        };
        let plan = self.plans.plan();
        let owned = owned(&plan, host).into_iter();
        let owners: BTreeMap<_, _> = owned.map(|of| (of.place, of.service.clone())).collect();
        let Some(reading) = &mut self.traffic else {
            return;
        };
        if reading.of_tables != of_tables {
            reading.of_tables = of_tables;
            reading.meter.forget();
        }
        let mut totals = reading.meter.read(seen, &owners);
        totals.connections_only = of_tables;
        reading.totals.send_replace(Arc::new(totals));
    }
}
