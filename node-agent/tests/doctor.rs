//! The doctor on a healthy node, and on nodes that are broken in one way each: the expected check reports the problem
//! with a remedy, and no other check reports anything.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod broken;
mod healthy;
#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::BTreeSet;

use portolan_agent::doctor::facts::{Module, NetworkManagers};
use portolan_agent::doctor::{Check, Diagnosis, Facts, Finding, Level, Style, render};

use portolan_plan::Family;
use portolan_reconcile::nftables::ObservedTables;

use broken::Broken;
use healthy::healthy;

const PLAIN: Style = Style {
    colour: false,
    all: false,
};

fn alarms(diagnosis: &Diagnosis) -> Vec<&Finding> {
    let findings = diagnosis.findings.iter();
    findings
        .filter(|finding| finding.level != Level::Ok)
        .collect()
}

#[test]
fn a_healthy_node_gives_no_alarm() {
    let diagnosis = Diagnosis::of(&healthy());
    assert_eq!(alarms(&diagnosis), Vec::<&Finding>::new());
    insta::assert_snapshot!("healthy", render(&diagnosis, PLAIN));
    let all = Style { all: true, ..PLAIN };
    insta::assert_snapshot!("healthy_all", render(&diagnosis, all));
}

#[test]
fn each_problem_is_reported_with_its_remedy_and_by_no_other_check() {
    let healthy = healthy();
    for broken in broken::all() {
        let Broken {
            what,
            level,
            check,
            remedy,
            ..
        } = broken;
        let mut facts = healthy.clone();
        (broken.break_it)(&mut facts);
        let diagnosis = Diagnosis::of(&facts);
        let alarms = alarms(&diagnosis);
        let [alarm] = &alarms[..] else {
            panic!("{what}: one alarm is expected, of {check:?}: {alarms:#?}");
        };
        assert_eq!((alarm.check, alarm.level), (*check, *level), "{what}");
        let printed = alarm.remedy.as_deref().unwrap();
        assert!(printed.contains(remedy), "{what}: {printed}");
        assert!(!printed.contains('\n'), "{what}: the remedy is one line");
    }
}

#[test]
fn every_check_passes_on_the_healthy_node_and_fails_on_a_broken_one() {
    let quiet: BTreeSet<_> = of(&healthy()).iter().map(|finding| finding.check).collect();
    let alarmed: BTreeSet<_> = broken::all().map(|broken| broken.check).collect();
    assert_eq!(quiet, alarmed);
    assert_eq!(quiet.len(), 25, "{quiet:?}");
}

#[test]
fn findings_are_in_the_order_of_checks() {
    for facts in [healthy(), badly_broken()] {
        let found = of(&facts);
        assert!(
            found.is_sorted_by_key(|finding| finding.check),
            "{found:#?}"
        );
    }
}

#[test]
fn a_node_at_three_in_the_morning() {
    let diagnosis = Diagnosis::of(&badly_broken());
    let text = render(&diagnosis, PLAIN);
    for line in text.lines().filter(|line| !line.contains("-> ")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    insta::assert_snapshot!("three_in_the_morning", text);
    insta::assert_json_snapshot!("three_in_the_morning_json", diagnosis);
}

#[test]
fn an_empty_setting_is_reported_as_empty() {
    let mut facts = healthy();
    let name = "net.ipv4.ip_local_reserved_ports";
    facts.sysctls.insert(name.into(), "".into());
    let diagnosis = Diagnosis::of(&facts);
    let alarms = alarms(&diagnosis);
    let [alarm] = &alarms[..] else {
        panic!("one alarm is expected: {alarms:#?}");
    };
    assert_eq!(alarm.message, format!("{name} is empty, not 30000-32767"));
}

#[test]
fn before_an_install_problems_that_it_fixes_are_not_reported() {
    let facts = never_ran(Module::Loadable);
    assert!(Diagnosis::of(&facts).count(Level::Fail) > 2);
    let diagnosis = Diagnosis::before_install(&facts);
    assert_eq!(alarms(&diagnosis), Vec::<&Finding>::new());
    for (check, end) in [
        (Check::Ipvs, "`portolan-agent init` loads ip_vs"),
        (Check::Sets, "`portolan-agent init` loads ip_set"),
        (Check::Conntrack, "`portolan-agent init` loads nf_conntrack"),
        (Check::Sysctls, "`portolan-agent init` writes them"),
        (Check::StateDirectory, "the agent creates it"),
        (Check::Plan, "the agent writes it"),
    ] {
        let mut findings = diagnosis.findings.iter();
        let finding = findings.find(|finding| finding.check == check).unwrap();
        assert!(finding.message.ends_with(end), "{finding:?}");
        assert_eq!(finding.remedy, None, "{finding:?}");
    }
}

#[test]
fn before_an_install_a_module_that_may_be_missing_is_a_warning_and_a_missing_one_a_failure() {
    let diagnosis = Diagnosis::before_install(&never_ran(Module::Unknown));
    assert_eq!(diagnosis.count(Level::Fail), 0, "{diagnosis:#?}");
    for check in [Check::Ipvs, Check::Sets, Check::Conntrack] {
        let alarms = alarms(&diagnosis);
        let alarm = alarms.iter().find(|alarm| alarm.check == check).unwrap();
        let remedy = alarm.remedy.as_deref().unwrap();
        assert!(remedy.contains("`portolan-agent init`"), "{alarm:?}");
    }
    let diagnosis = Diagnosis::before_install(&never_ran(Module::Missing));
    let failed: Vec<_> = alarms(&diagnosis)
        .into_iter()
        .filter(|alarm| alarm.level == Level::Fail)
        .map(|alarm| alarm.check)
        .collect();
    assert_eq!(failed, [Check::Modules, Check::Ipvs, Check::Sets]);
}

#[test]
fn colours_are_for_terminals_only() {
    let diagnosis = Diagnosis::of(&badly_broken());
    let colour = Style {
        colour: true,
        ..PLAIN
    };
    assert!(!render(&diagnosis, PLAIN).contains('\x1b'));
    let coloured = render(&diagnosis, colour);
    assert!(coloured.contains("\x1b[1;31mFAIL\x1b[0m") && coloured.contains("\x1b[33mwarn"));
}

/// If nothing at all can be read, the report has a reason for each source, and nothing panics.
#[test]
fn a_node_of_which_nothing_is_known() {
    let diagnosis = Diagnosis::of(&unknown());
    assert_eq!(diagnosis.node, None);
    insta::assert_snapshot!("unknown", render(&diagnosis, PLAIN));
}

fn of(facts: &Facts) -> Vec<Finding> {
    Diagnosis::of(facts).findings
}

/// A node with all problems that can occur together; a later one overrides an earlier one.
fn badly_broken() -> Facts {
    let mut facts = healthy();
    let whole = |broken: &&Broken| !broken.takes_all && broken.check != Check::Clock;
    for broken in broken::all().filter(whole) {
        (broken.break_it)(&mut facts);
    }
    facts
}

/// A node that never ran an agent, whose modules are not loaded and are in this state.
fn never_ran(module: Module) -> Facts {
    let mut facts = healthy();
    for name in ["ip_vs", "ip_set", "nf_conntrack"] {
        facts.modules.insert(name.into(), module);
    }
    facts.servers = Err("IPVS is not loaded".into());
    facts.sets = Err("address sets (ip_set) are not loaded".into());
    facts.tracked = Err("/proc/sys/net/netfilter/nf_conntrack_count: no such file".into());
    facts.connection_table_bits = Err("no such file".into());
    facts
        .sysctls
        .insert("net.ipv4.ip_forward".into(), "0".into());
    facts.state.1 = Ok(None);
    facts.plan = Ok(None);
    facts.record = Ok(None);
    facts
}

fn unknown() -> Facts {
    let reason = || "Permission denied".to_owned();
    let healthy = healthy();
    Facts {
        now: healthy.now,
        node: None,
        privileged: Ok(false),
        state: (healthy.state.0, Ok(None)),
        plan: Ok(None),
        record: Ok(None),
        modules: healthy.modules,
        servers: Err(reason()),
        sets: Err(reason()),
        own_tables: Err(reason()),
        network: Err(reason()),
        device: healthy.device,
        sysctls: [].into(),
        tables: Err(reason()),
        nft_tables: Err(reason()),
        nft_rules: Err(reason()),
        network_managers: NetworkManagers::default(),
        tracked: Err(reason()),
        connection_table_bits: Err(reason()),
        controller: None,
    }
}

/// Nothing of IPVS is expected on a node whose plan asks for nftables.
#[test]
fn on_a_node_with_the_nftables_dataplane_the_tables_are_checked() {
    let facts = healthy::with_nftables();
    let diagnosis = Diagnosis::of(&facts);
    assert_eq!(alarms(&diagnosis), Vec::<&Finding>::new());
    let checks: BTreeSet<_> = of(&facts).iter().map(|finding| finding.check).collect();
    assert!(checks.contains(&Check::Tables), "{checks:?}");
    let of_ipvs = [Check::Modules, Check::Ipvs, Check::Sets, Check::Rules];
    assert!(of_ipvs.iter().all(|check| !checks.contains(check)));
    let problem = |change: fn(&mut ObservedTables)| {
        let mut facts = facts.clone();
        change(facts.own_tables.as_mut().unwrap());
        let diagnosis = Diagnosis::of(&facts);
        let alarms = alarms(&diagnosis);
        let [alarm] = &alarms[..] else {
            panic!("one alarm is expected: {alarms:#?}");
        };
        assert_eq!(alarm.check, Check::Tables);
        alarm.message.clone()
    };
    let without_ipv6 = problem(|tables| drop(tables.tables.remove(&Family::Ipv6)));
    assert_eq!(without_ipv6, "tables of the agent are missing: IPv6");
    let without_frontends = problem(|tables| {
        let table = tables.tables.get_mut(&Family::Ipv4).unwrap();
        table.frontends.pop_first();
    });
    assert!(
        without_frontends.contains("missing or have other backends: "),
        "{without_frontends}"
    );
}
