//! The model kernel as a [`Kernel`]: for tests of everything above the real one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_reconcile::{Connections, ModelKernel, Network, Observed, Op, VirtualServerKey};

use super::{Kernel, KernelError};

/// A model kernel that a test can look into while it is being programmed.
#[derive(Debug, Clone, Default)]
pub struct SharedModel {
    model: Arc<Mutex<ModelKernel>>,
    eyes: Arc<Mutex<Eyes>>,
}

/// How the model is looked at, and how often it was.
#[derive(Debug, Clone, Default)]
pub struct Eyes {
    /// How often the network was looked at, with or without success.
    pub network: usize,
    /// How often virtual servers, sets and rules were.
    pub services: usize,
    /// While this is there, the network cannot be read.
    pub blind: bool,
    /// What the next looks at the network see in its place: it changes while it is read.
    pub glimpses: VecDeque<Network>,
}

impl SharedModel {
    /// The model itself.
    pub fn lock(&self) -> MutexGuard<'_, ModelKernel> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is looked at.
    pub fn eyes(&self) -> MutexGuard<'_, Eyes> {
        self.eyes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel for SharedModel {
    fn network(&mut self, _: &str) -> Result<Network, KernelError> {
        let mut eyes = self.eyes();
        eyes.network += 1;
        if eyes.blind {
            let reason = "the model was told to be blind";
            return Err(KernelError::new("read addresses and routes", reason));
        }
        match eyes.glimpses.pop_front() {
            Some(glimpse) => Ok(glimpse),
            None => Ok(self.lock().state.network()),
        }
    }

    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
        let state = &self.lock().state;
        let found = names.iter().filter_map(|name| {
            let (name, value) = state.sysctls.get_key_value(name)?;
            Some((name.clone(), value.clone()))
        });
        found.collect()
    }

    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
    ) -> Result<Observed, KernelError> {
        self.eyes().services += 1;
        let mut observed = self.lock().state.clone();
        observed.sysctls = sysctls;
        observed.set_network(network);
        Ok(observed)
    }

    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError> {
        Ok(self.lock().connections(servers))
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        let mut model = self.lock();
        ops.iter()
            .map(|op| model.apply(op).map_err(|r| KernelError::new(op, &r)))
            .collect()
    }
}
