//! What fails around an agent: the lock of the tables is held, rules cannot be read, IPv6 is off,
//! the disk is full, kernel settings cannot be written, one operation is refused. Each is told as one
//! failure that names what to check, everything else works and follows the plan meanwhile, and once it
//! is over the agent says by itself that the plan is in force.

mod node;
mod tables;

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use super::extra::{Extra, cluster_ip};
use super::{Checks, Scenario, Stage};
use crate::files::{CLUSTER, SCHEDULERS};
use crate::harness::{self, proxy_config};
use crate::topology::Network;
use crate::topology::world::{Family, Node};
use crate::waits::{ANSWER, LATER, SOON};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "faults",
    shows: "what fails is told once, all else is served and follows the plan, and it heals by itself",
    run,
};

/// The node on which things fail.
const NODE: Node = Node::A;
/// The Service that is there from the beginning.
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
    lab.run_parts(
        checks,
        &[
            ("an operation that is refused", node::refused),
            ("read-only settings", node::read_only),
            ("a full disk", node::full_disk),
            ("rules that cannot be read", tables::not_read),
            ("the lock of the older tables", tables::locked),
            ("IPv6 that is off", node::without_ipv6),
        ],
    )
}

fn file(number: u8) -> String {
    format!("extra-{number}.yaml")
}

/// What an agent called an error, each once, without the figures that change from try to try.
fn errors(said: &str) -> BTreeSet<String> {
    let lines = said
        .lines()
        .filter_map(|line| Some(line.split_once("ERROR ")?.1));
    let causes = lines.filter(|line| !line.contains("the plan is not in force"));
    causes
        .map(|line| line.split(" (and ").next().unwrap_or(line).to_owned())
        .collect()
}

impl Lab<'_> {
    /// Waits until the agent has told one failure and no other, with these words in it.
    fn fails_once(&self, end: usize, words: &[&str]) -> Result<()> {
        let told = "the plan is not in force; trying again";
        self.wait_logged(NODE, end, &[told], SOON)?;
        self.told_once(end, words)
    }

    /// Whether it has told one failure and no other.
    fn told_once(&self, end: usize, words: &[&str]) -> Result<()> {
        let told = errors(&self.log_since(NODE, end)?);
        ensure!(
            told.len() == 1,
            "it told {} failures: {told:#?}",
            told.len()
        );
        let missing = words
            .iter()
            .find(|words| !told.iter().any(|told| told.contains(**words)));
        match missing {
            None => Ok(()),
            Some(words) => bail!("no {words:?} in {told:?}"),
        }
    }

    /// Waits until the agent says by itself that the plan is in force, within the time between tries.
    fn heals(&self, end: usize) -> Result<()> {
        self.eventually("the plan to be in force", LATER + SOON, || {
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

    /// Waits until a Service is served, and asks for the first one.
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
    fn errors_are_told_apart_without_their_figures() {
        let said = "1 ERROR a: refused (and 3 more like this)\n2 ERROR a: refused (and 4 more like this)\n\
                    3 ERROR the plan is not in force; trying again failed=4\n4 INFO applied\n\
                    5 ERROR b: lost\n";
        let told: Vec<_> = errors(said).into_iter().collect();
        assert_eq!(told, ["a: refused", "b: lost"]);
    }
}
