//! The model kernel as a [`Kernel`]: for tests of everything above the real one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_reconcile::{ModelKernel, Observed, Op};

use super::{Kernel, KernelError};

/// A model kernel that a test can look into while it is being programmed.
#[derive(Debug, Clone, Default)]
pub struct SharedModel {
    model: Arc<Mutex<ModelKernel>>,
}

impl SharedModel {
    /// The model itself.
    pub fn lock(&self) -> MutexGuard<'_, ModelKernel> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel for SharedModel {
    fn observe(&mut self, _: &str, _: &BTreeSet<Arc<str>>) -> Result<Observed, KernelError> {
        Ok(self.lock().state.clone())
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        let mut model = self.lock();
        ops.iter()
            .map(|op| model.apply(op).map_err(|r| KernelError::new(op, &r)))
            .collect()
    }
}
