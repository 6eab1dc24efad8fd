//! Failed units of a guest, a control plane or kubelets run once more, alone, with the same seed. One that then passes
//! is *flaky*: the run passes, both outputs are kept in a file, and no result is stored.
//!
//! Tests of the processor alone are never repeated: they fail for no other reason than their code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::batch::{Outcome, Unit};
use super::report::Row;
use super::schedule::Batch;
use crate::tiers::Resource;

/// More failures than these have a common cause, which a repetition would hide.
pub(super) const MOST_EVENTS: usize = 2;

/// The index of the batch of each unit.
pub(super) type Homes = BTreeMap<String, usize>;

/// Whether a unit may fail because of other work on the machine.
pub(super) fn may_repeat(unit: &Unit) -> bool {
    unit.work.resource() != Resource::Processor
}

pub(super) fn homes(batches: &[Batch]) -> Homes {
    let batches = batches.iter().enumerate();
    let units = batches.flat_map(|(at, batch)| batch.units.iter().map(move |unit| (at, unit)));
    units.map(|(at, unit)| (unit.path(), at)).collect()
}

/// The number of separate failures. Units that could not run to their end because their guest or their control plane
/// died are one.
pub(super) fn events<'a>(failures: impl Iterator<Item = &'a Row>, homes: &Homes) -> usize {
    let event = |failure: &Row| {
        let path = failure.unit.path();
        let own = failure.outcome.complaint.is_none().then(|| path.clone());
        (homes.get(&path), own)
    };
    failures.map(event).collect::<BTreeSet<_>>().len()
}

/// Writes the outputs of both attempts to a file in this folder, and returns its path.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(folder: &Path, first: &Row, second: &Outcome) -> Result<PathBuf> {
    let unit = &first.unit;
    let path = folder.join(format!(
        "flaky-{}-{}.txt",
        unit.tier,
        unit.name.replace(' ', "-")
    ));
    let complaint = first.outcome.complaint.clone().unwrap_or_default();
    let text = [
        b"== first attempt ==\n",
        &first.outcome.output[..],
        complaint.as_bytes(),
        b"\n== second attempt, alone ==\n",
        &second.output[..],
    ];
    fs::write(&path, text.concat()).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;
    use crate::tiers::{Scenario, Targets, Work};

    fn unit(name: &'static str) -> Unit {
        let scenario = Scenario { name, seconds: 1 };
        Unit::new("guest", Work::Scenario(scenario), String::new())
    }

    fn failure(name: &'static str, complaint: Option<&str>) -> Row {
        let outcome = Outcome {
            complaint: complaint.map(str::to_owned),
            output: format!("FAILED of {name}\n").into_bytes(),
            ..Outcome::default()
        };
        Row {
            unit: unit(name),
            outcome,
            state: State::Failed,
        }
    }

    #[test]
    fn a_guest_that_died_is_one_event_and_each_failed_scenario_is_another() {
        let batch = |names: &[&'static str]| Batch {
            resource: Resource::Guest,
            units: names.iter().map(|name| unit(name)).collect(),
        };
        let homes = homes(&[batch(&["udp", "boot", "drift"]), batch(&["bare", "faults"])]);
        let died = Some("could not be run to its end: its program ended before it");
        let mut failures = vec![failure("udp", None), failure("boot", died)];
        assert_eq!(events(failures.iter(), &homes), 2);
        failures.push(failure("drift", died));
        assert_eq!(events(failures.iter(), &homes), 2);
        failures.push(failure("bare", died));
        failures.push(failure("faults", None));
        assert_eq!(events(failures.iter(), &homes), 4);
    }

    #[test]
    fn tests_and_lints_are_not_repeated() {
        let of = |work: Work| Unit { work, ..unit("a") };
        assert!(!may_repeat(&of(Work::Tests("a", Targets::All))));
        assert!(!may_repeat(&of(Work::Check("clippy", ""))));
        assert!(may_repeat(&unit("udp")) && may_repeat(&of(Work::Demo(&[]))));
    }

    #[test]
    fn both_outputs_are_kept() {
        let folder = std::env::temp_dir().join(format!("portolan-flaky-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let second = Outcome {
            output: b"ok     x\n".to_vec(),
            ..Outcome::default()
        };
        let path = write(&folder, &failure("udp", Some("died")), &second).unwrap();
        let text = fs::read_to_string(path).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(
            text,
            "== first attempt ==\nFAILED of udp\ndied\n== second attempt, alone ==\nok     x\n"
        );
    }
}
