//! One cell of the matrix: attempts of one client, judged against one row of the table.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};

use crate::expectation::{Expect, Row, Source};
use crate::topology::Topology;
use crate::topology::world::{Family, Pod, Resident};
use crate::traffic::client::{self, Attempt, Outcome};
use crate::waits::Waits;

/// A cell that was run.
#[derive(Debug)]
pub(super) struct Cell<'row> {
    pub(super) row: &'row Row,
    /// The slowest refusal, if it was about refusals.
    pub(super) refused_after: Option<Duration>,
    verdict: Result<String>,
}

/// No answer for so long is silence.
const SILENCE: Duration = Duration::from_secs(2);
/// A refusal later than this is not "at once".
const AT_ONCE: Duration = Duration::from_millis(90);
/// TCP tries again after a second: what comes later was lost once, however slow the machine.
const BEFORE_RETRANSMISSION: Duration = Duration::from_millis(900);

impl<'row> Cell<'row> {
    /// Makes the attempts and judges them.
    pub(super) fn run(row: &'row Row, topology: &Topology, waits: Waits) -> Result<Self> {
        let at_once = waits.limit(AT_ONCE).min(BEFORE_RETRANSMISSION);
        let attempts = topology.of(row.from)?.inside(|| attempt_all(row, waits))?;
        let slowest = attempts.iter().map(|attempt| attempt.took).max();
        let refused_after = slowest.filter(|_| row.expect == Expect::Refused);
        Ok(Self {
            row,
            refused_after,
            verdict: judge(row, at_once, &attempts),
        })
    }

    pub(super) fn passed(&self) -> bool {
        self.verdict.is_ok()
    }

    /// What stands in the matrix.
    pub(super) fn text(&self) -> &str {
        self.verdict.as_deref().unwrap_or("FAILED")
    }

    /// The cell and what was wrong.
    pub(super) fn explain(&self) -> String {
        let (row, rules) = (self.row, self.row.rules.join(" "));
        let why = self
            .verdict
            .as_ref()
            .err()
            .map_or_else(String::new, |why| format!("{why:#}"));
        format!("{} -> {} ({rules}): {why}", row.from.name(), row.dials())
    }
}

fn attempt_all(row: &Row, waits: Waits) -> Result<Vec<Attempt>> {
    let (wanted, deadline) = match row.expect {
        // Twice around, so that an endpoint that fails every other time shows.
        Expect::Answered => ((2 * row.endpoints.len()).max(4), SILENCE),
        Expect::Refused => (2, SILENCE),
        // It would have answered long before.
        Expect::Silent => (2, BEFORE_RETRANSMISSION),
        Expect::Unanswered => (1, AT_ONCE * 5),
    };
    let mut attempts = Vec::new();
    for _ in 0..wanted {
        crate::stop::check()?;
        attempts.push(client::attempt(
            row.protocol,
            row.target,
            waits.limit(deadline),
        ));
        // Two silences say enough.
        if attempts
            .iter()
            .filter(|attempt| attempt.outcome == Outcome::Silent)
            .count()
            == 2
        {
            break;
        }
    }
    Ok(attempts)
}

/// Short words for the matrix, or what was wrong.
fn judge(row: &Row, at_once: Duration, attempts: &[Attempt]) -> Result<String> {
    ensure!(!attempts.is_empty(), "no attempt was made");
    match row.expect {
        Expect::Answered => answered(row, attempts),
        Expect::Refused => {
            for attempt in attempts {
                let ms = attempt.took.as_millis();
                ensure!(
                    attempt.outcome == Outcome::Refused,
                    "not refused but {}",
                    attempt.outcome
                );
                ensure!(attempt.took <= at_once, "refused only after {ms} ms");
            }
            Ok("refused".to_owned())
        }
        Expect::Silent => {
            let loud = attempts
                .iter()
                .find(|attempt| attempt.outcome != Outcome::Silent);
            match loud {
                Some(loud) => bail!("not silent but {}", loud.outcome),
                None => Ok("silent".to_owned()),
            }
        }
        Expect::Unanswered => {
            let answer = attempts
                .iter()
                .find(|attempt| matches!(attempt.outcome, Outcome::Answered { .. }));
            match answer {
                Some(answer) => bail!("{}", answer.outcome),
                None => Ok(attempts[0].outcome.to_string()),
            }
        }
    }
}

fn answered(row: &Row, attempts: &[Attempt]) -> Result<String> {
    let family = Family::of(row.target.ip());
    let name = |address: IpAddr| {
        let pod = Pod::all().find(|pod| pod.address(family) == address);
        pod.map(Pod::name)
            .ok_or_else(|| anyhow!("endpoint {address} is no pod of the lab"))
    };
    let ready = row
        .endpoints
        .iter()
        .map(|address| name(address.ip()))
        .collect::<Result<BTreeSet<_>>>()?;
    let mut met = BTreeSet::new();
    for attempt in attempts {
        let Outcome::Answered { by, seen } = &attempt.outcome else {
            bail!("{} after answers by {met:?}", attempt.outcome);
        };
        ensure!(
            ready.contains(by),
            "answered by {by}, which is no ready endpoint"
        );
        let hairpin = row.source == Some(Source::Hairpin) && *by == row.from.name();
        let from_node = hairpin || row.source == Some(Source::Node);
        let right = if from_node {
            row.taken_by.all_addresses(family).contains(seen)
        } else {
            is_address_of(row.from, family, *seen)
        };
        let whom = if from_node { "the node" } else { "the client" };
        ensure!(right, "{by} saw {seen}, which is not {whom}");
        met.insert(by.clone());
    }
    let missed: Vec<_> = ready.difference(&met).collect();
    ensure!(
        missed.is_empty(),
        "{} answers and none by {missed:?}",
        attempts.len()
    );
    let source = match row.source {
        Some(Source::Client) => "client",
        Some(Source::Hairpin) => "hairpin",
        _ => "node",
    };
    Ok(format!("{}/{} {source}", met.len(), ready.len()))
}

fn is_address_of(client: Resident, family: Family, seen: IpAddr) -> bool {
    match client {
        Resident::Node(node) => node.all_addresses(family).contains(&seen),
        _ => client.address(family) == seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Protocol;

    fn row(from: &str, expect: Expect, source: Option<Source>) -> Row {
        Row {
            from: Resident::named(from).unwrap(),
            taken_by: Resident::named(from).unwrap().served_by(),
            to: "web".into(),
            target: "10.96.0.10:80".parse().unwrap(),
            protocol: Protocol::Tcp,
            expect,
            source,
            endpoints: ["10.244.1.11:8080", "10.244.2.11:8080"]
                .map(|a| a.parse().unwrap())
                .into(),
            rules: vec!["S-15".into()],
        }
    }

    fn by(name: &str, seen: &str) -> Attempt {
        let outcome = Outcome::Answered {
            by: name.into(),
            seen: seen.parse().unwrap(),
        };
        Attempt {
            outcome,
            took: Duration::from_millis(1),
        }
    }

    fn verdict(row: &Row, attempts: &[Attempt]) -> String {
        match judge(row, Duration::from_millis(90), attempts) {
            Ok(words) => words,
            Err(error) => format!("wrong: {error}"),
        }
    }

    #[test]
    fn answers_must_come_from_every_ready_endpoint_and_no_other() {
        let row = row("pod-a3", Expect::Answered, Some(Source::Client));
        let (a, b) = (by("pod-a1", "10.244.1.13"), by("pod-b1", "10.244.1.13"));
        assert_eq!(verdict(&row, &[a.clone(), b.clone()]), "2/2 client");
        assert!(verdict(&row, std::slice::from_ref(&a)).contains("none by [\"pod-b1\"]"));
        assert!(verdict(&row, &[a, b, by("pod-b3", "10.244.1.13")]).contains("no ready endpoint"));
    }

    #[test]
    fn the_source_must_be_the_one_of_the_table() {
        let pod = row("pod-a3", Expect::Answered, Some(Source::Client));
        let masqueraded = [by("pod-a1", "10.244.1.1"), by("pod-b1", "192.168.50.11")];
        assert!(verdict(&pod, &masqueraded).contains("not the client"));
        let outside = row("outside", Expect::Answered, Some(Source::Node));
        assert_eq!(verdict(&outside, &masqueraded), "2/2 node");
        let direct = [by("pod-a1", "192.168.50.100")];
        assert!(verdict(&outside, &direct).contains("not the node"));
    }

    #[test]
    fn a_hairpin_shows_the_node_and_other_endpoints_the_client() {
        let row = row("pod-a1", Expect::Answered, Some(Source::Hairpin));
        let right = [by("pod-a1", "10.244.1.1"), by("pod-b1", "10.244.1.11")];
        assert_eq!(verdict(&row, &right), "2/2 hairpin");
        let wrong = [by("pod-a1", "10.244.1.11")];
        assert!(verdict(&row, &wrong).contains("not the node"));
    }

    #[test]
    fn a_late_refusal_and_silence_are_no_refusal_at_once() {
        let row = row("pod-a3", Expect::Refused, None);
        let after = |outcome, ms| {
            [Attempt {
                outcome,
                took: Duration::from_millis(ms),
            }]
        };
        assert_eq!(verdict(&row, &after(Outcome::Refused, 3)), "refused");
        assert!(verdict(&row, &after(Outcome::Refused, 1003)).contains("only after 1003 ms"));
        assert!(verdict(&row, &after(Outcome::Silent, 2000)).contains("silence"));
        assert!(verdict(&row, &[]).contains("no attempt"));
    }
}
