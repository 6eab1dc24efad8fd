//! One cell of a table: attempts of one client, compared with its row.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};

use crate::expectation::{Expect, Row, Source};
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

/// No answer for this time counts as silence.
const SILENCE: Duration = Duration::from_secs(2);
/// A refusal later than this is not "at once".
const AT_ONCE: Duration = Duration::from_millis(90);
/// TCP tries again after a second: what comes later was lost once, however slow the machine.
const BEFORE_RETRANSMISSION: Duration = Duration::from_millis(900);

/// Below are the ports of daemons.
const FIRST_PORT: u16 = 1024;
/// From here on there are node ports, and behind them the ports of the nodes' own connections
/// (`net.ipv4.ip_local_port_range`). A masqueraded connection with one of those may be taken for an older one of the
/// node, and is never answered then.
const FIRST_NODE_PORT: u16 = 30_000;

/// Time limits for answers.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// For a refusal.
    at_once: Duration,
    /// For an answer: something was lost before and sent again.
    late: Duration,
}

impl<'row> Cell<'row> {
    /// Compares attempts with the row; `reached` is the number of connections and datagrams that
    /// pods got meanwhile.
    pub(super) fn judge(row: &'row Row, waits: Waits, attempts: &[Attempt], reached: u64) -> Self {
        let limits = Limits {
            at_once: waits.limit(AT_ONCE).min(BEFORE_RETRANSMISSION),
            late: waits.limit(BEFORE_RETRANSMISSION),
        };
        let slowest = attempts.iter().map(|attempt| attempt.took).max();
        Self {
            row,
            refused_after: slowest.filter(|_| row.expect == Expect::Refused),
            verdict: judge(row, limits, attempts, reached)
                .map_err(|why| anyhow!("{why:#}; {}", all_of(attempts, reached))),
        }
    }

    pub(super) fn passed(&self) -> bool {
        self.verdict.is_ok()
    }

    /// The text of the cell in the matrix.
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

/// The result of each attempt, which distinguishes a lost packet from a closed path.
fn all_of(attempts: &[Attempt], reached: u64) -> String {
    let outcomes = attempts
        .iter()
        .map(|attempt| format!("{} in {} ms", attempt.outcome, attempt.took.as_millis()));
    let outcomes: Vec<_> = outcomes.collect();
    format!("all attempts: {}; pods got {reached}", outcomes.join(", "))
}

/// The attempts that a cell takes, from the calling thread's namespace.
pub(super) fn attempt_all(row: &Row, rounds: usize, waits: Waits) -> Result<Vec<Attempt>> {
    let (wanted, deadline) = match row.expect {
        Expect::Answered => ((rounds * row.endpoints.len()).max(4), waits.limit(SILENCE)),
        Expect::Refused => (2, waits.limit(SILENCE)),
        // It would have answered long before, on slow machines too.
        Expect::Silent | Expect::Lost => (2, BEFORE_RETRANSMISSION),
        Expect::Unanswered => (1, AT_ONCE * 5),
    };
    let mut attempts = Vec::new();
    for _ in 0..wanted {
        crate::stop::check()?;
        attempts.push(client::attempt(row.protocol, row.target, deadline));
        // Two silent attempts are sufficient.
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

/// A short text for the matrix, or the mistake.
fn judge(row: &Row, limits: Limits, attempts: &[Attempt], reached: u64) -> Result<String> {
    ensure!(!attempts.is_empty(), "no attempt was made");
    match row.expect {
        Expect::Answered => answered(row, limits.late, attempts),
        Expect::Refused => {
            for attempt in attempts {
                let ms = attempt.took.as_millis();
                ensure!(
                    attempt.outcome == Outcome::Refused,
                    "not refused but {}",
                    attempt.outcome
                );
                ensure!(attempt.took <= limits.at_once, "refused only after {ms} ms");
            }
            Ok("refused".to_owned())
        }
        Expect::Silent | Expect::Lost => {
            let mut loud = attempts.iter();
            if let Some(loud) = loud.find(|attempt| attempt.outcome != Outcome::Silent) {
                bail!("not silent but {}", loud.outcome);
            }
            if row.expect == Expect::Lost {
                ensure!(reached > 0, "silence, and no pod got anything either");
                return Ok("lost".to_owned());
            }
            ensure!(reached == 0, "silence, but pods got {reached} packets");
            Ok("silent".to_owned())
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

fn answered(row: &Row, late: Duration, attempts: &[Attempt]) -> Result<String> {
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
        let ms = attempt.took.as_millis();
        let Outcome::Answered { by, seen } = &attempt.outcome else {
            bail!("{} after answers by {met:?}, and {ms} ms", attempt.outcome);
        };
        ensure!(
            ready.contains(by),
            "answered by {by}, which is no ready endpoint"
        );
        ensure!(attempt.took < late, "answered by {by} only after {ms} ms");
        let hairpin = row.source == Some(Source::Hairpin) && *by == row.from.name();
        let from_node = hairpin || row.source == Some(Source::Node);
        let (right, whom) = match row.source {
            Some(Source::Sender) => (
                row.from.served_by().address(family) == *seen,
                "the node of the client",
            ),
            _ if from_node => (
                row.taken_by.all_addresses(family).contains(seen),
                "the node",
            ),
            _ => (is_address_of(row.from, family, *seen), "the client"),
        };
        ensure!(right, "{by} saw {seen}, which is not {whom}");
        if from_node {
            let port = attempt.port.unwrap_or(0);
            ensure!(
                (FIRST_PORT..FIRST_NODE_PORT).contains(&port),
                "{by} saw port {port}, which a node port or the node's own connections may have"
            );
        }
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
        Some(Source::Sender) => "sender",
        Some(Source::Node) | None => "node",
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
            rounds: 2,
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
            port: Some(1024),
            took: Duration::from_millis(1),
        }
    }

    fn verdict(row: &Row, attempts: &[Attempt]) -> String {
        verdict_after(row, attempts, 0)
    }

    fn verdict_after(row: &Row, attempts: &[Attempt], reached: u64) -> String {
        let limits = Limits {
            at_once: Duration::from_millis(90),
            late: Duration::from_millis(900),
        };
        match judge(row, limits, attempts, reached) {
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
    fn a_pod_that_dials_another_node_is_seen_with_the_address_of_its_own() {
        let mut row = row("pod-b3", Expect::Answered, Some(Source::Sender));
        row.endpoints = ["10.244.1.11:8080".parse().unwrap()].into();
        assert_eq!(
            verdict(&row, &[by("pod-a1", "192.168.50.12")]),
            "1/1 sender"
        );
        for wrong in ["10.244.2.13", "192.168.50.11", "10.244.2.1"] {
            let verdict = verdict(&row, &[by("pod-a1", wrong)]);
            assert!(verdict.contains("not the node of the client"), "{verdict}");
        }
    }

    #[test]
    fn what_is_masqueraded_to_a_port_of_the_nodes_own_connections_may_be_lost() {
        let row = row("outside", Expect::Answered, Some(Source::Node));
        let mut attempts = ["pod-a1", "pod-b1"].map(|pod| by(pod, "192.168.50.11"));
        attempts[1].port = Some(32_768);
        assert!(verdict(&row, &attempts).contains("pod-b1 saw port 32768"));
    }

    #[test]
    fn an_answer_after_a_retransmission_is_no_answer() {
        let row = row("pod-a3", Expect::Answered, Some(Source::Client));
        let mut late = by("pod-a1", "10.244.1.13");
        late.took = Duration::from_millis(1003);
        assert!(verdict(&row, &[late]).contains("only after 1003 ms"));
    }

    #[test]
    fn silence_is_only_silence_when_no_pod_got_anything() {
        let attempts = [Attempt {
            outcome: Outcome::Silent,
            port: None,
            took: Duration::from_millis(900),
        }];
        let silent = row("outside", Expect::Silent, None);
        assert_eq!(verdict_after(&silent, &attempts, 0), "silent");
        assert!(verdict_after(&silent, &attempts, 2).contains("pods got 2"));
        let lost = row("outside", Expect::Lost, None);
        assert_eq!(verdict_after(&lost, &attempts, 2), "lost");
        assert!(verdict_after(&lost, &attempts, 0).contains("no pod got anything"));
    }

    #[test]
    fn a_late_refusal_and_silence_are_no_refusal_at_once() {
        let row = row("pod-a3", Expect::Refused, None);
        let after = |outcome, ms| {
            [Attempt {
                outcome,
                port: None,
                took: Duration::from_millis(ms),
            }]
        };
        assert_eq!(verdict(&row, &after(Outcome::Refused, 3)), "refused");
        assert!(verdict(&row, &after(Outcome::Refused, 1003)).contains("only after 1003 ms"));
        assert!(verdict(&row, &after(Outcome::Silent, 2000)).contains("silence"));
        assert!(verdict(&row, &[]).contains("no attempt"));
    }
}
