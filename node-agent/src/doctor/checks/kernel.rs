//! Checks of kernel modules and settings.

use std::sync::Arc;

use portolan_reconcile::sysctl_is_enough;

use super::{some, unless_privileged};
use crate::doctor::facts::Module;
use crate::doctor::{Check, Facts, Finding};
use crate::kernel::linux::printed_value;

/// The kernel modules that the plan requires (S-180).
pub(super) fn modules(facts: &Facts) -> Vec<Finding> {
    let check = Check::Modules;
    let are = |state: Module| -> Vec<&str> {
        let all = facts.modules.iter().filter(|(_, module)| **module == state);
        let names = all.map(|(name, _)| name.as_str());
        names.filter(|name| !serves(facts, name)).collect()
    };
    let mut findings = Vec::new();
    let missing = are(Module::Missing);
    if !missing.is_empty() {
        let install = format!(
            "install the package with this kernel's modules (linux-modules-extra, kernel-modules), then \
             `modprobe -a {}`",
            missing.join(" ")
        );
        let scheduler = missing.iter().any(|name| name.starts_with("ip_vs_"));
        let remedy = if scheduler {
            install + "; or set another scheduler in spec.settings.scheduler of the ProxyConfig"
        } else {
            install
        };
        let message = format!("this kernel lacks {}", some(&missing));
        findings.push(Finding::fail(check, message, remedy));
    }
    let unknown = are(Module::Unknown);
    if !unknown.is_empty() {
        findings.push(Finding::warn(
            check,
            format!(
                "not loaded: {}; the kernel's module list in /lib/modules is not visible from here, so they \
                 may be missing",
                some(&unknown)
            ),
            format!("on the node itself: `modprobe -a {}`", unknown.join(" ")),
        ));
    }
    if findings.is_empty() {
        let loadable = are(Module::Loadable).len();
        let there = facts.modules.len() - loadable;
        let message = format!("{there} modules are loaded, {loadable} can be loaded on demand");
        findings.push(Finding::ok(check, message));
    }
    findings
}

/// Whether a virtual server uses this scheduler: then the kernel has it, even if `/sys/module` does not list it.
fn serves(facts: &Facts, module: &str) -> bool {
    let mut servers = facts.servers.iter().flat_map(|servers| servers.values());
    module
        .strip_prefix("ip_vs_")
        .is_some_and(|name| servers.any(|server| &*server.scheduler == name))
}

/// Reading virtual servers needs the same module and privileges as writing them.
pub(super) fn ipvs(facts: &Facts) -> Vec<Finding> {
    let check = Check::Ipvs;
    vec![match &facts.servers {
        Ok(servers) => Finding::ok(check, format!("IPVS has {} virtual servers", servers.len())),
        Err(reason) => {
            let load =
                "`modprobe ip_vs`, and add it to a file in /etc/modules-load.d for the next boot";
            let remedy = unless_privileged(facts, load);
            Finding::fail(
                check,
                format!("cannot read virtual servers: {reason}"),
                remedy,
            )
        }
    }]
}

/// A kernel setting that differs from the plan.
pub(super) struct WrongSysctl {
    pub(super) name: Arc<str>,
    pub(super) wanted: Arc<str>,
    pub(super) found: Option<String>,
}

impl WrongSysctl {
    pub(super) fn describe(&self) -> String {
        let Self {
            name,
            wanted,
            found,
        } = self;
        match found {
            Some(found) => format!("{name} is {}, not {wanted}", printed_value(found)),
            None => format!("{name} does not exist, and should be {wanted}"),
        }
    }

    /// The argument of `sysctl -w`.
    fn correction(&self) -> String {
        format!("{}={}", self.name, self.wanted)
    }
}

/// The settings selected by `of` that differ from the plan.
pub(super) fn wrong(facts: &Facts, of: impl Fn(&str) -> bool) -> Vec<WrongSysctl> {
    let wanted = facts.wanted_sysctls().into_iter();
    let differs = |(name, wanted): (Arc<str>, Arc<str>)| {
        let found = facts.sysctl(&name);
        let enough = found.is_some_and(|found| sysctl_is_enough(&name, found, &wanted));
        (!enough).then(|| WrongSysctl {
            found: found.map(str::to_owned),
            name,
            wanted,
        })
    };
    wanted
        .filter(|(name, _)| of(name))
        .filter_map(differs)
        .collect()
}

/// The commands that correct the settings.
pub(super) fn set(wrong: &[WrongSysctl]) -> String {
    let settings: Vec<_> = wrong.iter().map(WrongSysctl::correction).collect();
    format!(
        "`sysctl -w {}`, or `portolan-agent init` for all of them",
        settings.join(" ")
    )
}

/// The settings of the plan, except those that have a check of their own (S-174 to S-179).
pub(super) fn sysctls(facts: &Facts) -> Vec<Finding> {
    let check = Check::Sysctls;
    if facts.network.is_err() {
        return Vec::new();
    }
    let others = |name: &str| name.starts_with("net.bridge.");
    let needs_ipvs = |name: &str| name.starts_with("net.ipv4.vs.") && facts.servers.is_err();
    let wrong = wrong(facts, |name| !others(name) && !needs_ipvs(name));
    if wrong.is_empty() {
        let asked = facts.wanted_sysctls().len();
        let message = format!("{asked} settings are as the plan requires");
        return vec![Finding::ok(check, message)];
    }
    // A different limit does not prevent packets from reaching their destination.
    let limits = |wrong: &WrongSysctl| {
        wrong.name.starts_with("net.netfilter.") || wrong.name.ends_with("_reserved_ports")
    };
    let (limits, vital): (Vec<_>, Vec<_>) = wrong.into_iter().partition(limits);
    let message = |wrong: &[WrongSysctl]| some(wrong.iter().map(WrongSysctl::describe));
    let fail = (!vital.is_empty()).then(|| Finding::fail(check, message(&vital), set(&vital)));
    let warn = (!limits.is_empty()).then(|| Finding::warn(check, message(&limits), set(&limits)));
    fail.into_iter().chain(warn).collect()
}
