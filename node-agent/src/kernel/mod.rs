//! The kernel as the programmer sees it: something that can be looked at and that takes
//! operations. No decision is made below this line.

pub mod linux;
mod model;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use portolan_reconcile::{Observed, Op};
use thiserror::Error;

pub use linux::{LinuxKernel, Missing};
pub use model::SharedModel;

/// Where plans are programmed.
pub trait Kernel {
    /// Reads all that concerns us.
    ///
    /// # Errors
    /// [`KernelError`] when some of it cannot be read; then nothing may be written either.
    fn observe(
        &mut self,
        device: &str,
        sysctls: &BTreeSet<Arc<str>>,
    ) -> Result<Observed, KernelError>;

    /// Does operations in order, and answers each. One that fails does not stop the others.
    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>>;
}

/// The kernel, or a tool that speaks to it, did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{action}: {reason}")]
pub struct KernelError {
    /// What was asked.
    pub action: String,
    /// Why it was not done, and what to check.
    pub reason: String,
}

impl KernelError {
    /// An error of something asked.
    pub fn new(action: &(impl Display + ?Sized), reason: &(impl Display + ?Sized)) -> Self {
        Self {
            action: action.to_string(),
            reason: reason.to_string(),
        }
    }
}
