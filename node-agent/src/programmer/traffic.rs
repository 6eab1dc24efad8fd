//! What Services have carried, told whenever all of the kernel was looked at: that costs the kernel
//! nothing, because counters come with the virtual servers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use portolan_reconcile::HostNetwork;
use tokio::sync::watch;

use super::Programmer;
use crate::kernel::Kernel;
use crate::owners::owned;
use crate::traffic::{Meter, Told};

/// Who adds up, and who is told.
#[derive(Debug)]
pub(super) struct Reading {
    meter: Meter,
    told: watch::Sender<Arc<Told>>,
}

impl<K: Kernel> Programmer<K> {
    /// What Services have carried, by name so many of them at most, from now on. The kernel has to be one
    /// that counts.
    pub fn traffic(&mut self, most: NonZeroU32) -> watch::Receiver<Arc<Told>> {
        let (told, receiver) = watch::channel(Arc::default());
        let meter = Meter::new(usize::try_from(most.get()).unwrap_or(usize::MAX));
        self.traffic = Some(Reading { meter, told });
        receiver
    }

    /// Everything was looked at on a node with this network.
    pub(super) fn read_traffic(&mut self, host: &HostNetwork) {
        let Some(reading) = &mut self.traffic else {
            return;
        };
        let plan = self.slot.plan();
        let owned = owned(&plan, host).into_iter();
        let owners: BTreeMap<_, _> = owned.map(|of| (of.place, of.service.clone())).collect();
        let told = reading.meter.read(self.kernel.traffic(), &owners);
        reading.told.send_replace(Arc::new(told));
    }
}
