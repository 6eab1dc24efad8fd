//! The Portolan node agent: receives its plan and programs IPVS, ipsets, rules and routes.
//!
//! [`receive`] follows the controller and keeps the current plan, [`programmer`] reconciles the kernel with it, and
//! [`kernel`] is the only module that accesses the kernel. [`health`] and [`metrics`] report the state over [`http`];
//! [`show`] and [`doctor`] print it for operators. `portolan-reconcile` decides which operations are needed.
#![forbid(unsafe_code)]

pub mod cli;
pub mod doctor;
pub mod drains;
pub mod health;
pub mod heartbeat;
pub mod http;
pub mod kernel;
mod labels;
pub mod loopback;
pub mod metrics;
mod open_files;
mod owners;
pub mod page;
pub mod pages;
mod pipeline;
pub mod plan_watch;
pub mod programmer;
pub mod receive;
pub mod record;
pub mod saved;
pub mod settings_before;
pub mod show;
mod sync;
pub mod tables;
pub mod traffic;
mod watchdog;
pub mod watermark;
