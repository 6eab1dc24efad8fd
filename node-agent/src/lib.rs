//! The Portolan node agent: receives its plan and programs IPVS, ipsets, rules and routes.
//!
//! [`receive`] keeps the plan, [`programmer`] keeps the kernel equal to it, [`kernel`] is the only
//! part that touches the kernel. [`health`] and [`metrics`] say how that goes, [`http`] answers whoever
//! asks, [`show`] and [`doctor`] speak to people. What to write is decided in `portolan-reconcile`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod doctor;
pub mod drains;
pub mod health;
pub mod http;
pub mod kernel;
pub mod loopback;
pub mod metrics;
mod owners;
pub mod pages;
pub mod programmer;
pub mod receive;
pub mod record;
pub mod saved;
pub mod settings_before;
pub mod show;
pub mod slot;
pub mod traffic;
mod watchdog;
