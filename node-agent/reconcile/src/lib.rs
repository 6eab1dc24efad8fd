//! Computes the desired kernel state of a plan, and the ordered operations that lead there from an observed state.
//! All functions are pure.
//!
//! `Desired` is the state that the kernel should have, `Observed` the state that it has, and [`diff()`] lists the
//! operations between them in phases whose order keeps traffic flowing. Nothing here opens a socket or reads a clock.
//! `ModelKernel` (feature `testing`) answers operations like the real kernel.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cleanup;
mod deadlines;
mod desired;
mod diff;
mod document;
mod drain;
mod drift;
mod entries;
mod facts;
mod flows;
mod host;
mod key;
#[cfg(feature = "testing")]
mod model;
mod new_servers;
pub mod nftables;
mod node_ports;
mod observed;
mod op;
mod owned;
mod part;
mod phase;
mod ports;
mod preconditions;
mod real_servers;
mod reschedule;
mod route;
pub mod rules;
mod server;
mod set;
mod sysctls;
mod timeouts;

pub use cleanup::cleanup;
pub use deadlines::{DrainDeadlines, UDP_GRACE};
pub use desired::Desired;
pub use diff::{compare, diff};
pub use document::DesiredDocument;
pub use drain::{Connections, Departures, Draining, DrainingServer, draining};
pub use drift::{
    Drift, DriftCount, DriftKind, DriftLedger, Drifted, ObservedScope, Subject, drift,
    drift_of_network, in_words, leave,
};
pub use facts::{Facts, FrontendFacts, HealthPort, Masquerade};
pub use flows::{Flow, families_with_flows, leaves_stale_flows};
pub use host::{
    HostAddress, HostInterface, HostNetwork, HostRoute, InterfaceKind, Ipv6Off, Machine,
};
pub use key::{BackendOrder, RealServerKey, ServerError, VirtualServerKey};
#[cfg(feature = "testing")]
pub use model::{ModelKernel, Refusal};
pub use new_servers::NewServers;
pub use node_ports::addresses as node_port_addresses;
pub use observed::{Network, Observed, ObservedSet};
pub use op::{IpvsOp, LinkOp, Op, OpKind, RulesOp, SchedulerOp, SetOp, SysctlOp};
pub use owned::Owned;
pub use part::{Part, Scope, Shared};
pub use phase::{Phase, PhaseWork};
pub use ports::Ports;
pub use preconditions::ready;
pub use real_servers::RealServers;
pub use reschedule::{RESCHEDULED_AT_ONCE, postpones};
pub use route::{PolicyAction, PolicyRule, RANGE_METRIC, ROUTE_PROTOCOL, Route};
pub use server::{Scheduling, VirtualServer, flags};
pub use set::{DesiredSet, LEFTOVER_SETS, SPARE_SET, SetEntry, SetId, SetKind, SetRole};
pub use sysctls::{
    RESERVED_PORTS, is_enough as sysctl_is_enough, ports_to_connect_from, ports_warning, sysctls,
};
pub use timeouts::Timeouts;
