//! Splits the output of a batch process by unit, and judges each unit.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem::take;
use std::time::Duration;

use crate::closing::{Count, Counter};
use crate::demo;
use crate::seen::{Closing, Seen};
use crate::tiers::Work;

/// A unit to run, with its index in the list of all units.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// Its tier.
    pub(super) tier: &'static str,
    /// Its name there.
    pub(super) name: String,
    /// The task.
    pub(super) work: Work,
    /// The hash of its inputs.
    pub(super) key: String,
}

impl Unit {
    pub(super) fn new(tier: &'static str, work: Work, key: String) -> Self {
        Self {
            tier,
            name: work.name(),
            work,
            key,
        }
    }

    /// Its name for people.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.tier, self.name)
    }

    /// The name passed to the child process.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.tier, self.name)
    }
}

/// The result of a unit.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Counts of tests or checks.
    pub(super) count: Count,
    /// A failure that is not in its own output.
    pub(super) complaint: Option<String>,
    /// The names of its tests.
    pub(super) seen: Seen,
    /// How long it took.
    pub(super) took: Duration,
    /// Processor time, seconds.
    pub(super) cpu: f64,
    /// Its output.
    pub(super) output: Vec<u8>,
}

/// Processes the output of a batch, line by line.
pub(super) struct Splitter<'a> {
    /// Units that have not ended.
    left: VecDeque<&'a Unit>,
    counter: Counter<Vec<u8>>,
    /// Called for each unit that ends before the batch does.
    ended: &'a mut (dyn FnMut(&Unit, Outcome) + Send),
}

impl<'a> Splitter<'a> {
    /// A receiver for these units, in the order in which they run.
    pub(super) fn new(
        units: &'a [Unit],
        ended: &'a mut (dyn FnMut(&Unit, Outcome) + Send),
    ) -> Self {
        Self {
            left: units.iter().collect(),
            counter: Counter::default(),
            ended,
        }
    }

    /// Ends the batch: remaining units are judged by its exit status and duration.
    pub(super) fn finish(mut self, success: bool, took: Duration) {
        drop(self.counter.finish());
        let error = self.counter.error.take();
        let result = error.map_or(Ok(success), Err);
        for unit in self.left {
            let counter = take(&mut self.counter);
            (self.ended)(unit, outcome(unit.work, counter, &result, took));
        }
    }

    /// Ends a scenario.
    fn close(&mut self, closing: &Closing) {
        let is_it = |unit: &&Unit| {
            matches!(unit.work, Work::Scenario(_) | Work::Cluster(_))
                && unit.name == closing.scenario
        };
        let at = self.left.iter().position(is_it);
        let Some(unit) = at.and_then(|at| self.left.remove(at)) else {
            return;
        };
        let mut counter = take(&mut self.counter);
        counter.count = Count::new(closing.passed, closing.failed);
        counter.cpu = closing.cpu;
        let (passed, took) = (
            closing.failed == 0,
            Duration::from_secs_f64(closing.seconds),
        );
        (self.ended)(unit, of_counter(unit.work, counter, Ok(passed), took));
    }
}

impl Write for Splitter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.counter.write_all(line)?;
            if let Some(closing) = self.counter.closed.take() {
                self.close(&closing);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a unit when the process has ended.
fn outcome(
    work: Work,
    mut counter: Counter<Vec<u8>>,
    result: &Result<bool, String>,
    took: Duration,
) -> Outcome {
    let result = match (work, result) {
        (Work::Scenario(_) | Work::Cluster(_), Ok(_)) => {
            Err("its program ended before it".to_owned())
        }
        (work, Ok(true)) if work.is_demo() && !demo::closes_well(&counter.last) => Err(format!(
            "the demo exited with 0 but its last line is `{}`",
            counter.last
        )),
        (_, result) => result.clone(),
    };
    if work.is_demo() {
        counter.seen.close(&work.name(), result == Ok(true));
    }
    of_counter(work, counter, result, took)
}

fn of_counter(
    work: Work,
    counter: Counter<Vec<u8>>,
    result: Result<bool, String>,
    took: Duration,
) -> Outcome {
    let (count, complaint) = judge(work, counter.count, result);
    Outcome {
        count,
        complaint,
        took,
        cpu: counter.cpu,
        seen: counter.seen.clone(),
        output: counter.into_output(),
    }
}

/// The final counts of a unit, and a failure that its own counts do not include. A unit that did not run, or ran no
/// test, has failed.
fn judge(work: Work, seen: Count, result: Result<bool, String>) -> (Count, Option<String>) {
    let one = |passed: bool| Count::new(passed.into(), (!passed).into());
    let failed_too = Count::new(seen.passed, seen.failed + 1);
    match (work, result) {
        (_, Err(error)) => (
            failed_too,
            Some(format!("could not be run to its end: {error}")),
        ),
        (Work::Check(..) | Work::RealKit, Ok(passed)) => (one(passed), None),
        (work, Ok(passed)) if work.is_demo() => (one(passed), None),
        (_, Ok(false)) if seen.failed == 0 => (
            failed_too,
            Some("its program failed without telling of a failed test".to_owned()),
        ),
        (_, Ok(true)) if seen.all() == 0 => (one(false), Some("no test was run".to_owned())),
        (_, Ok(_)) => (seen, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Scenario, Targets};

    const TEST: Work = Work::Tests("a", Targets::All);
    const TWO: Count = Count::new(2, 0);
    const NONE: Count = Count::new(0, 0);

    fn judged(work: Work, seen: Count, result: Result<bool, String>) -> (u64, u64) {
        let (count, _) = judge(work, seen, result);
        (count.passed, count.failed)
    }

    #[test]
    fn a_unit_that_ran_no_test_has_failed_though_it_exited_with_0() {
        assert_eq!(judged(TEST, NONE, Ok(true)), (0, 1));
    }

    #[test]
    fn a_unit_that_failed_without_a_failed_test_has_failed() {
        let broken = || Err("no guest".to_owned());
        assert_eq!(judged(TEST, TWO, Ok(false)), (2, 1));
        assert_eq!(judged(TEST, TWO, broken()), (2, 1));
        assert_eq!(judged(Work::Check("", ""), NONE, Ok(false)), (0, 1));
        assert_eq!(judged(Work::Demo(&[]), TWO, broken()), (2, 1));
    }

    #[test]
    fn counts_of_the_runners_are_taken_as_they_are() {
        let mixed = Count::new(2, 3);
        assert_eq!(judged(TEST, TWO, Ok(true)), (2, 0));
        assert_eq!(judged(TEST, mixed, Ok(false)), (2, 3));
        assert_eq!(judged(Work::Check("", ""), NONE, Ok(true)), (1, 0));
    }

    fn unit(work: Work) -> Unit {
        Unit::new("guest", work, "k".to_owned())
    }

    fn scenario(name: &'static str) -> Unit {
        unit(Work::Scenario(Scenario { name, seconds: 1 }))
    }

    /// Name, counts, complaint and output of each unit that ended.
    fn ended(units: &[Unit], text: &str, success: bool) -> Vec<(String, u64, u64, String, String)> {
        let mut all = Vec::new();
        let mut note = |unit: &Unit, outcome: Outcome| {
            all.push((
                unit.name.clone(),
                outcome.count.passed,
                outcome.count.failed,
                outcome.complaint.unwrap_or_default(),
                String::from_utf8(outcome.output).unwrap(),
            ));
        };
        let mut splitter = Splitter::new(units, &mut note);
        for piece in text.as_bytes().chunks(5) {
            splitter.write_all(piece).unwrap();
        }
        splitter.finish(success, Duration::from_secs(9));
        all
    }

    #[test]
    fn each_scenario_of_a_batch_gets_its_own_lines_and_one_that_did_not_close_has_failed() {
        let units = [scenario("drift"), scenario("udp"), scenario("boot")];
        let text = "== drift: x\nok     a\ndrift: 1 passed, 0 failed in 2.0 s, cpu 1.5 s\n\
                    == udp: y\nFAILED b: c\nudp: 0 passed, 1 failed in 1.0 s, cpu 0.5 s\n\
                    == boot: z\nok     d\n\u{1e}error the guest died; console\n\u{1e}cpu 4.5\n";
        let all = ended(&units, text, false);
        assert_eq!(all.len(), 3);
        let counts = |at: usize| (&*all[at].0, all[at].1, all[at].2);
        assert_eq!((counts(0), &*all[0].3), (("drift", 1, 0), ""));
        assert!(all[0].4.starts_with("== drift") && all[0].4.ends_with("cpu 1.5 s\n"));
        assert_eq!((counts(1), &*all[1].3), (("udp", 0, 1), ""));
        assert_eq!(counts(2), ("boot", 0, 1));
        let complaint = &all[2].3;
        assert!(
            complaint.ends_with("the guest died; console"),
            "{complaint}"
        );
        assert_eq!(all[2].4, "== boot: z\nok     d\n");
    }

    #[test]
    fn a_demo_that_does_not_close_well_has_failed_whatever_it_exits_with() {
        let good = ended(&[unit(Work::Demo(&[]))], "x\nok     two kernels\n", true);
        assert_eq!((good[0].1, good[0].2), (1, 0));
        let bad = ended(&[unit(Work::Demo(&[]))], "x\nsomething else\n", true);
        assert_eq!((bad[0].1, bad[0].2), (0, 1));
    }
}
