//! Locks and signals that threads share. `e2e/schedules` compiles the files that use this module with types of the same
//! names, which try many orders of the threads.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
