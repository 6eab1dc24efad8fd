//! Locks and signals that threads and tasks share. `e2e/schedules` compiles the files that use this module with types of
//! the same names, which try many orders of the threads.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use tokio::sync::Notify;
