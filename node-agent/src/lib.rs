//! The Portolan node agent: receives its plan and programs IPVS, ipsets, rules and routes.
//!
//! [`receive`] keeps the plan, [`programmer`] keeps the kernel equal to it, [`kernel`] is the only
//! part that touches the kernel. What to write is decided in `portolan-reconcile`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod kernel;
pub mod programmer;
pub mod receive;
pub mod record;
pub mod saved;
pub mod show;
pub mod slot;
mod watchdog;
