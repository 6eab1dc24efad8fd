//! What can be wrong on a node, each thing with its remedy in one line, for whoever sits there at
//! three in the morning.
//!
//! [`gather()`] is the only part that looks at the node, and it only reads. The checks are functions of
//! the [`Facts`], so every broken node is a test. A check that has nothing to go by says nothing: the
//! one whose part could not be read tells why, once.

mod checks;
pub mod facts;
mod gather;
mod listing;
mod table;

use serde::Serialize;

pub use facts::Facts;
pub use gather::{Where, gather};
pub use table::{Style, render};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and may not for long, or not for everybody.
    Warn,
    /// Clients lose packets, or the agent cannot do its work.
    Fail,
}

/// What is looked at, in the order in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The modules that a node needs.
    Modules,
    /// Whether virtual servers can be read.
    Ipvs,
    /// The kernel settings that the plan asks for.
    Sysctls,
    /// Whether the kernel drops what comes by another way than it would go.
    ReversePath,
    /// Whether bridges of pods hand packets to the rules.
    Bridges,
    /// Whether the node has the families that its plan gives it.
    Ipv6,
    /// The tools of iptables, and what is in which variant.
    Iptables,
    /// Whether rules of others write our bits of the packet mark.
    Mark,
    /// Tables of nftables that decide about packets beside our rules.
    Neighbours,
    /// What kube-proxy left behind.
    KubeProxy,
    /// Our device.
    Device,
    /// Our routes and policy rules, and what lies in service ranges.
    Routes,
    /// Our sets.
    Sets,
    /// Our rules.
    Rules,
    /// Our virtual servers.
    VirtualServers,
    /// How full connection tracking is.
    Conntrack,
    /// The size of IPVS's table of connections.
    ConnectionTable,
    /// What counting rates costs.
    RateEstimation,
    /// The time.
    Clock,
    /// The state directory and its disk.
    StateDirectory,
    /// The plan on disk.
    Plan,
    /// The record of what is ours.
    Record,
    /// The way to the controller.
    Controller,
}

impl Check {
    /// Its name, as people and tools see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Modules => "modules",
            Self::Ipvs => "ipvs",
            Self::Sysctls => "sysctls",
            Self::ReversePath => "reverse-path",
            Self::Bridges => "bridges",
            Self::Ipv6 => "ipv6",
            Self::Iptables => "iptables",
            Self::Mark => "mark",
            Self::Neighbours => "neighbours",
            Self::KubeProxy => "kube-proxy",
            Self::Device => "device",
            Self::Routes => "routes",
            Self::Sets => "sets",
            Self::Rules => "rules",
            Self::VirtualServers => "virtual-servers",
            Self::Conntrack => "conntrack",
            Self::ConnectionTable => "connection-table",
            Self::RateEstimation => "rate-estimation",
            Self::Clock => "clock",
            Self::StateDirectory => "state-directory",
            Self::Plan => "plan",
            Self::Record => "record",
            Self::Controller => "controller",
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Which check.
    pub check: Check,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub told: String,
    /// What to do about it; `null` where nothing is wrong.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(check: Check, told: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            told: told.into(),
            remedy: None,
        }
    }

    fn warn(check: Check, told: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Warn,
            told: told.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn fail(check: Check, told: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Fail,
            ..Self::warn(check, told, remedy)
        }
    }
}

/// What whoever starts an agent should know of this machine, if there is something.
pub fn hint() -> Option<String> {
    checks::hint(gather::connection_table_bits().ok()?)
}

/// All that was found on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The node, by the plan on disk or as it was called; `null` if neither says.
    pub node: Option<String>,
    /// What was found, in the order of [`Check`].
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Judges a node.
    pub fn of(facts: &Facts) -> Self {
        let planned = facts.node_entry().map(|node| node.name.to_string());
        Self {
            node: planned.or_else(|| facts.node.clone()),
            findings: checks::all(facts),
        }
    }

    /// The same for a node that never ran an agent: what an installation does itself is not wrong there.
    #[must_use]
    pub fn before_install(mut self) -> Self {
        for finding in &mut self.findings {
            let done_by = match finding.check {
                Check::Sysctls => "`portolan-agent init` writes them",
                Check::Plan => "the agent writes it",
                _ => continue,
            };
            if finding.level > Level::Ok {
                *finding = Finding::ok(finding.check, format!("{}; {done_by}", finding.told));
            }
        }
        self
    }

    /// How many findings are of a level.
    pub fn count(&self, level: Level) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.level == level).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_an_install_what_it_does_itself_is_not_wrong_and_all_else_is() {
        let findings = vec![
            Finding::fail(Check::Modules, "no ip_vs", "modprobe ip_vs"),
            Finding::fail(Check::Sysctls, "a is 0, not 1", "sysctl -w a=1"),
            Finding::warn(Check::Plan, "there is none", "wait"),
        ];
        let node = None;
        let diagnosis = Diagnosis { node, findings }.before_install();
        assert_eq!(
            (diagnosis.count(Level::Fail), diagnosis.count(Level::Ok)),
            (1, 2)
        );
        let told = &diagnosis.findings[1].told;
        assert_eq!(told, "a is 0, not 1; `portolan-agent init` writes them");
        assert_eq!(diagnosis.findings[1].remedy, None);
    }
}
