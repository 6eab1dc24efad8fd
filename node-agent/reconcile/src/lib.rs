//! From a plan to the desired kernel state, and from an observed state to ordered operations:
//! pure.
//!
//! `Desired` says what the kernel should hold, `Observed` what it holds, and [`diff()`] lists the
//! operations between them in phases whose order keeps traffic flowing. Nothing here opens a
//! socket or asks a clock; `ModelKernel` (feature `testing`) answers operations as the real kernel would.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cleanup;
mod desired;
mod diff;
mod document;
mod drain;
mod drift;
mod entries;
mod flows;
mod host;
#[cfg(feature = "testing")]
mod model;
mod node_ports;
mod observed;
mod op;
mod owned;
mod part;
mod real_servers;
mod reschedule;
mod route;
pub mod rules;
mod server;
mod set;
mod standing;
mod sysctls;
mod timeouts;

pub use cleanup::cleanup;
pub use desired::{Desired, DesiredSet, HealthPort};
pub use diff::{Phase, diff};
pub use document::DesiredDocument;
pub use drain::{Connections, Departures, DrainDeadlines, Draining, DrainingServer, draining};
pub use drift::{
    Drift, DriftCount, DriftKind, DriftLedger, Drifted, Look, Subject, drift, drift_of_network,
    in_words, leave,
};
pub use flows::{Flow, families_with_flows, leaves_stale_flows};
pub use host::{
    HostAddress, HostInterface, HostNetwork, HostRoute, InterfaceKind, Ipv6Off, Machine, Network,
};
#[cfg(feature = "testing")]
pub use model::{ModelKernel, Refusal};
pub use node_ports::addresses as node_port_addresses;
pub use observed::{Observed, ObservedSet};
pub use op::{IpvsOp, LinkOp, Op, OpKind, RulesOp, SchedulerOp, SetOp, SysctlOp};
pub use owned::Owned;
pub use part::{Part, Scope, Shared};
pub use real_servers::RealServers;
pub use reschedule::{RESCHEDULED_AT_ONCE, puts_off};
pub use route::{PolicyAction, PolicyRule, RANGE_METRIC, ROUTE_PROTOCOL, Route};
pub use server::{RealServerKey, Scheduling, ServerError, VirtualServer, VirtualServerKey, flags};
pub use set::{LEFTOVER_SETS, SPARE_SET, SetEntry, SetId, SetKind, SetRole};
pub use standing::ready;
pub use sysctls::{is_enough as sysctl_is_enough, sysctls, with_found as sysctl_with_found};
pub use timeouts::Timeouts;
