//! Failures around an agent: the xtables lock is held, rules cannot be read, IPv6 is off, the disk is full, kernel
//! settings cannot be written, an endpoint is refused, a tool hangs. Each is logged as one failure that names what to
//! check, or with its Service. In the long form the agent itself hangs, too.
//! Everything else works and follows the plan meanwhile, and once the cause is gone, the agent applies the plan
//! without help.

mod hangs;
mod node;
mod owned;
mod tables;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::extra::{Extra, cluster_ip};
use super::{Checks, Scenario, Stage};
use crate::dataplane::Dataplane;
use crate::files::{CLUSTER, SCHEDULERS};
use crate::harness::{self, proxy_config};
use crate::topology::Network;
use crate::topology::world::{Family, Node};
use crate::waits::{ANSWER, LATER, SOON};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "faults",
    shows: "a failure is logged once, everything else follows the plan, and the agent recovers by \
        itself",
    run,
};

/// The node on which things fail.
const NODE: Node = Node::A;
/// The Service that exists from the start.
const FIRST: u8 = 0;

/// The number of the newest Service.
struct Newest(u8);

type Lab<'a> = harness::Lab<'a, Newest>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(Newest(FIRST));
    lab.serve_pods()?;
    lab.write("settings.yaml", &proxy_config(&["sync: {period: 2s}"]))?;
    lab.write(&file(FIRST), &Extra::new(FIRST).manifest())?;
    lab.add_files([CLUSTER[0]].into_iter().chain(SCHEDULERS))?;
    lab.start()?;
    let read_only: Part = ("read-only settings", node::read_only);
    let without_ipv6: Part = ("IPv6 that is off", node::without_ipv6);
    match stage.dataplane {
        Dataplane::Ipvs => lab.run_parts(
            checks,
            &[
                ("an endpoint that is refused", node::refused),
                read_only,
                ("a full disk", node::full_disk),
                ("rules that cannot be read", tables::not_read),
                ("the lock of the older tables", tables::locked),
                ("a tool that hangs", hangs::tool),
                ("an agent that hangs", hangs::agent),
                without_ipv6,
            ],
        ),
        // It starts no tool, needs no record, and a map takes every endpoint.
        Dataplane::Nftables => lab.run_parts(
            checks,
            &[
                read_only,
                ("a full disk", node::full_disk_of_plans),
                ("a table of another program", owned::run),
                without_ipv6,
            ],
        ),
    }
}

type Part = (&'static str, fn(&mut Lab<'_>, &mut Checks) -> Result<()>);

fn file(number: u8) -> String {
    format!("extra-{number}.yaml")
}

/// The errors that an agent logged, each once, without the numbers that change from retry to retry.
fn errors(said: &str) -> BTreeSet<String> {
    let lines = said
        .lines()
        .filter_map(|line| Some(line.split_once("ERROR ")?.1));
    let causes = lines.filter(|line| !line.contains("the plan is not fully in force"));
    causes
        .map(|line| line.split(" (and ").next().unwrap_or(line).to_owned())
        .collect()
}

impl Lab<'_> {
    /// Waits until the agent has logged one failure with these words, and no other.
    fn fails_once(&self, end: usize, words: &[&str]) -> Result<()> {
        let error = "the plan is not fully in force; retrying";
        self.wait_logged(NODE, end, &[error], SOON)?;
        self.logged_once(end, words)
    }

    /// Checks that it has logged one failure with these words, and no other.
    fn logged_once(&self, end: usize, words: &[&str]) -> Result<()> {
        let failures = errors(&self.log_since(NODE, end)?);
        ensure!(
            failures.len() == 1,
            "it logged {} failures: {failures:#?}",
            failures.len()
        );
        let missing = words
            .iter()
            .find(|words| !failures.iter().any(|failure| failure.contains(**words)));
        match missing {
            None => Ok(()),
            Some(words) => bail!("no {words:?} in {failures:?}"),
        }
    }

    /// Waits until the agent logs that the plan is in force, within its retry interval.
    fn heals(&self, end: usize) -> Result<()> {
        self.heals_within(end, LATER + SOON)
    }

    /// The same within another time.
    fn heals_within(&self, end: usize, limit: Duration) -> Result<()> {
        self.eventually("the plan to be in force", limit, || {
            let log = self.log_since(NODE, end)?;
            let last = log.lines().rfind(|line| line.contains("operations="));
            ensure!(last.is_some_and(|line| !line.contains("ERROR")), "{log}");
            Ok(())
        })
    }

    /// A new Service is served while something fails, and those that were there are, too.
    fn follows(&mut self, families: &[Family]) -> Result<()> {
        self.state.0 += 1;
        let number = self.state.0;
        self.write(&file(number), &Extra::new(number).manifest())?;
        self.served(number, families)
    }

    /// Waits until a Service is served, and connects to the first one.
    fn served(&self, number: u8, families: &[Family]) -> Result<()> {
        self.eventually("a new Service to be served", SOON, || {
            self.answers(number, families)
        })?;
        self.answers(FIRST, families)
    }

    /// Whether every kind of client is answered.
    fn answers(&self, number: u8, families: &[Family]) -> Result<()> {
        families.iter().try_for_each(|family| {
            self.all_are_answered(NODE, cluster_ip(number, *family)?, ANSWER)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_compared_without_their_numbers() {
        let said = "1 ERROR a: refused (and 3 more like this)\n2 ERROR a: refused (and 4 more like this)\n\
                    3 ERROR the plan is not fully in force; retrying failed=4\n4 INFO the plan is in force\n\
                    5 ERROR b: lost\n";
        let failures: Vec<_> = errors(said).into_iter().collect();
        assert_eq!(failures, ["a: refused", "b: lost"]);
    }
}
