//! The doctor on a healthy node, and on nodes that are broken in one way each: the expected check reports the problem
//! with a remedy, and no other check reports anything.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod broken;
mod healthy;
#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::BTreeSet;

use portolan_agent::doctor::{Check, Diagnosis, Facts, Finding, Level, Style, render};

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
    assert_eq!(quiet.len(), 23, "{quiet:?}");
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
        network: Err(reason()),
        device: healthy.device,
        sysctls: [].into(),
        tables: Err(reason()),
        nft_tables: Err(reason()),
        tracked: Err(reason()),
        connection_table_bits: Err(reason()),
        controller: None,
    }
}
