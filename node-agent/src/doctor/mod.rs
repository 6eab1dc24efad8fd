//! Diagnoses problems on a node, each with a one-line remedy, for an operator under time pressure.
//!
//! [`gather()`] is the only part that accesses the node, and it only reads. The checks are pure functions of
//! the [`Facts`], so every broken node can be a test. A check whose facts are missing reports nothing: the
//! check for the source that could not be read reports the reason, once.

mod checks;
pub mod facts;
mod gather;
mod listing;
mod preinstall;
mod table;

use serde::Serialize;

pub use facts::Facts;
pub use gather::{GatherOptions, gather};
pub use table::{Style, render};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but possibly not for long or not for all clients.
    Warn,
    /// Clients lose packets, or the agent cannot do its work.
    Fail,
}

/// The checks, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The kernel modules that the node needs.
    Modules,
    /// Whether virtual servers can be read.
    Ipvs,
    /// The kernel settings that the plan asks for.
    Sysctls,
    /// Whether reverse path filtering drops packets that arrive on another interface than replies leave by.
    ReversePath,
    /// Whether packets on bridges of pods pass the iptables rules.
    Bridges,
    /// Whether the node supports the address families of its plan.
    Ipv6,
    /// The iptables tools, and which variant holds which chains.
    Iptables,
    /// Whether rules of other programs write the agent's bits of the packet mark.
    PacketMark,
    /// Tables of nftables that affect packets in addition to the agent's rules.
    Nftables,
    /// Programs that manage the network of the host and may remove the agent's routes and policy rules.
    NetworkManagers,
    /// Leftovers of kube-proxy.
    KubeProxy,
    /// The agent's dummy device.
    Device,
    /// The agent's routes and policy rules, and conflicts with service ranges.
    Routes,
    /// The agent's sets.
    Sets,
    /// The agent's iptables rules.
    Rules,
    /// The agent's virtual servers.
    VirtualServers,
    /// The agent's tables of nftables.
    Tables,
    /// How full the connection tracking table is.
    Conntrack,
    /// Whether the node has enough ports to connect from.
    ConnectPorts,
    /// The size of the IPVS connection table.
    ConnectionTable,
    /// The cost of estimating rates.
    RateEstimation,
    /// The system time.
    Clock,
    /// The state directory and its disk.
    StateDirectory,
    /// The saved plan.
    Plan,
    /// The record of owned virtual servers.
    OwnershipRecord,
    /// Connectivity to the controller.
    Controller,
}

impl Check {
    /// Its name in the output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Modules => "modules",
            Self::Ipvs => "ipvs",
            Self::Sysctls => "sysctls",
            Self::ReversePath => "reverse-path",
            Self::Bridges => "bridges",
            Self::Ipv6 => "ipv6",
            Self::Iptables => "iptables",
            Self::PacketMark => "packet-mark",
            Self::Nftables => "nftables",
            Self::NetworkManagers => "network-managers",
            Self::KubeProxy => "kube-proxy",
            Self::Device => "device",
            Self::Routes => "routes",
            Self::Sets => "sets",
            Self::Rules => "rules",
            Self::VirtualServers => "virtual-servers",
            Self::Tables => "tables",
            Self::Conntrack => "conntrack",
            Self::ConnectPorts => "connect-ports",
            Self::ConnectionTable => "connection-table",
            Self::RateEstimation => "rate-estimation",
            Self::Clock => "clock",
            Self::StateDirectory => "state-directory",
            Self::Plan => "plan",
            Self::OwnershipRecord => "ownership-record",
            Self::Controller => "controller",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The check that reports it.
    pub check: Check,
    /// Its severity.
    pub level: Level,
    /// Description of the finding.
    pub message: String,
    /// How to fix it; `null` if nothing is wrong.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(check: Check, message: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            message: message.into(),
            remedy: None,
        }
    }

    fn warn(check: Check, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Warn,
            message: message.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn fail(check: Check, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Fail,
            ..Self::warn(check, message, remedy)
        }
    }
}

/// A warning about this machine for the agent's log at start, if there is one.
pub fn hint() -> Option<String> {
    checks::hint(gather::connection_table_bits().ok()?)
}

/// All findings on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The node's name in the saved plan, else the given name; `null` without either.
    pub node: Option<String>,
    /// The findings, in the order of [`Check`].
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Runs all checks on the facts.
    pub fn of(facts: &Facts) -> Self {
        let planned = facts.node_entry().map(|node| node.name.to_string());
        Self {
            node: planned.or_else(|| facts.node.clone()),
            findings: checks::all(facts),
        }
    }

    /// Runs all checks for a node that never ran an agent: problems that the installation fixes are not reported.
    pub fn before_install(facts: &Facts) -> Self {
        let mut diagnosis = Self::of(facts);
        for finding in &mut diagnosis.findings {
            if finding.level > Level::Ok {
                preinstall::judge(finding, facts);
            }
        }
        diagnosis
    }

    /// The number of findings with this level.
    pub fn count(&self, level: Level) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.level == level).count()
    }
}
