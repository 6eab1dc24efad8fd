//! Judges findings on a node that never ran an agent: `portolan-agent init` and the agent set up part of what is
//! missing.

use super::facts::Module;
use super::{Check, Facts, Finding, Level};

const INIT: &str = "`portolan-agent init`";

/// Accepts a finding if the installation certainly fixes it. If that is uncertain, a failure becomes a warning.
pub(super) fn judge(finding: &mut Finding, facts: &Facts) {
    let module = |name: &str| facts.modules.get(name).copied();
    match finding.check {
        Check::Ipvs => of_module(finding, "ip_vs", module("ip_vs")),
        Check::Sets => of_module(finding, "ip_set", module("ip_set")),
        Check::Conntrack if facts.tracked.is_err() => {
            of_module(finding, "nf_conntrack", module("nf_conntrack"));
        }
        // Settings of a bridge exist only with br_netfilter, whose presence is not known.
        Check::Bridges => {
            let remedy = format!("{INIT} loads br_netfilter and writes these settings");
            warn(finding, remedy);
        }
        Check::Sysctls => accept(finding, &format!("{INIT} writes them")),
        Check::Plan => accept(finding, "the agent writes it"),
        Check::StateDirectory if facts.state.1 == Ok(None) => {
            accept(finding, "the agent creates it");
        }
        _ => {}
    }
}

/// A module that is not loaded yet. `init` loads it if this kernel has it.
fn of_module(finding: &mut Finding, name: &str, module: Option<Module>) {
    match module {
        Some(Module::Loadable) => accept(finding, &format!("{INIT} loads {name}")),
        Some(Module::Unknown) => {
            let remedy =
                format!("check `modinfo {name}` on the node: if it exists, {INIT} loads it");
            warn(finding, remedy);
        }
        // It is loaded, so the cause is another one, or this kernel lacks it.
        Some(Module::There | Module::Missing) | None => {}
    }
}

fn accept(finding: &mut Finding, done_by: &str) {
    *finding = Finding::ok(finding.check, format!("{}; {done_by}", finding.message));
}

fn warn(finding: &mut Finding, remedy: String) {
    finding.level = Level::Warn;
    finding.remedy = Some(remedy);
}
