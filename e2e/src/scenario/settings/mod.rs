//! Every setting, changed while the agent runs: it takes effect on the node without a restart, and the node returns
//! to its first state once all settings are restored.

mod ports;
mod traffic;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::packet_path::external_files;
use super::{Checks, Scenario, Stage};
use crate::cluster::operations;
use crate::expectation::settings::{Hand, Row, Table};
use crate::files::{EXTERNAL, SETTINGS};
use crate::harness::{self, manifest_name, proxy_config};
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Node, Pod, Resident};
use crate::traffic::http;
use crate::traffic::line::{self, Line};
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "settings",
    shows: "every setting, changed while the agent runs, takes effect without a restart",
    run,
};

const NODE: Node = Node::A;
/// A Service of both nodes, whose endpoints are the first pod of each.
const SERVICE: &str = "10.96.1.1:80";
/// The file of settings.
const FILE: &str = "settings.yaml";
/// From a change to its effect. The plan on disk, which `doctor` reads, may be 10 s behind.
const SOON: Duration = Duration::from_secs(15);
/// Maximum delay of a log line.
const SLACK: Duration = Duration::from_millis(100);

type Lab<'a> = harness::Lab<'a, Table>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let table = Table::read(&stage.files.text(SETTINGS)?)?;
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(table);
    for pod in Pod::all() {
        line::serve(lab.topology.of(Resident::Pod(pod))?, &pod.name(), 8080)?;
    }
    lab.add_files(external_files())?;
    lab.write(FILE, &lab.state.base())?;
    // Where this kernel begins may be anywhere.
    lab.tool(NODE, Program::Ipvsadm, "--set 900 120 300")?;
    lab.cluster.start_controller()?;
    lab.cluster.start_agent(NODE)?;
    lab.cluster.wait_applied(NODE, 0)?;
    lab.run_parts(
        checks,
        &[
            ("every setting", every_setting),
            ("settings that others change", changed_by_others),
            ("an idle connection", traffic::idle),
            ("source ports", traffic::source_ports),
            ("ports to connect from", ports::connects),
        ],
    )
}

fn every_setting(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let agent = lab.cluster.agent_pid(NODE)?;
    lab.heading("settings that change while the agent runs");
    let before = lab.everything(NODE)?;
    for (setting, change) in lab.state.changes() {
        let shown = lab.show(change);
        checks.check(&format!("{setting}: {}", change.see), shown);
    }
    for (setting, elsewhere) in lab.state.elsewhere() {
        let (why, test) = (&elsewhere.why, &elsewhere.test);
        lab.line(&format!("{setting}: shown by {test}; {why}"));
    }
    let back = lab.is_again(&before);
    checks.check(
        "with the first settings the node is in its first state",
        back,
    );
    let still = lab.cluster.check_running();
    checks.check(
        "all of this without a restart",
        still.and_then(|()| {
            ensure!(lab.cluster.agent_pid(NODE)? == agent, "another process");
            Ok(())
        }),
    );
    Ok(())
}

/// The kernel sends no event for that, and the next reading of everything is an hour away.
fn changed_by_others(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    const TRACKED: &str = "net/ipv4/vs/conntrack";
    lab.heading("a kernel setting that another program changes");
    let applied = lab.cluster.applied(NODE)?.len();
    lab.write(FILE, &proxy_config(&["sync: {period: 1h}"]))?;
    lab.cluster.wait_applied(NODE, applied)?;
    lab.node(NODE)?.set(&[(TRACKED.to_owned(), "0")])?;
    let back = lab.eventually("the setting to be restored", SOON, || {
        let found = traffic::read(lab, TRACKED)?;
        ensure!(found == "1", "it is {found}");
        Ok(())
    });
    checks.check("it is restored within seconds", back);
    lab.write(FILE, &lab.state.base())
}

impl Lab<'_> {
    /// With the settings of the beginning, everything on the node is as it was then.
    fn is_again(&self, before: &BTreeMap<&'static str, String>) -> Result<()> {
        self.write(FILE, &self.state.base())?;
        self.eventually("the node to be as before", SOON, || {
            let mut now = self.everything(NODE)?;
            // A device that was made again has another number.
            now.remove("links");
            witness::must_equal(before, &now)
        })
    }

    /// Applies a change and checks its effect.
    fn show(&self, change: &Row) -> Result<()> {
        self.write(FILE, &self.state.base())?;
        // The pass that restores the first settings would correct the manual change, and count as one of the two
        // passes of `apart`.
        if change.by_hand.is_some() || change.apart.is_some() {
            self.wait_base()?;
        }
        let held = match change.by_hand {
            Some(hand) => self.do_by_hand(hand)?,
            None => Vec::new(),
        };
        self.until("before the change", change, |change, shown| {
            change.before.missing(shown)
        })?;
        let (first, second) = self.state.manifests(change);
        let applied = self.cluster.applied(NODE)?.len();
        self.write(FILE, &first)?;
        if let Some(second) = second {
            self.cluster.wait_applied(NODE, applied)?;
            self.write(FILE, &second)?;
        }
        self.until("after the change", change, |change, shown| {
            change.after.missing(shown)
        })?;
        if let Some(apart) = &change.apart {
            self.cluster.wait_applied(NODE, applied + 1)?;
            let wanted = Duration::from_secs(apart.seconds.into());
            let found = self.between_the_last_passes()?;
            ensure!(found + SLACK >= wanted, "{found:?} between the two");
        }
        drop(held);
        if change.by_hand == Some(Hand::EndpointLeaves) {
            self.put_endpoints(&self.stage.files.text(EXTERNAL[1])?)?;
        }
        Ok(())
    }

    fn until(
        &self,
        when: &str,
        change: &Row,
        missing: fn(&Row, &str) -> Option<String>,
    ) -> Result<()> {
        self.eventually(when, SOON, || {
            match missing(change, &self.see(&change.see)?) {
                None => Ok(()),
                Some(missing) => Err(anyhow!(missing)),
            }
        })
    }

    /// Returns the current output of `see`.
    fn see(&self, what: &str) -> Result<String> {
        let words: Vec<&str> = what.split(' ').collect();
        let [first, arguments @ ..] = words.as_slice() else {
            bail!("nothing to see");
        };
        let state = self.cluster.state_folder(NODE).display().to_string();
        let limit = self.limit(Duration::from_secs(2));
        self.topology.node(NODE)?.inside(|| match *first {
            "ipvsadm" => Program::Ipvsadm.run(arguments),
            "ipset" => Program::Ipset.run(arguments),
            "iptables-save" => Program::IptablesSave.run(arguments),
            "ip6tables-save" => Program::Ip6tablesSave.run(arguments),
            "nft" => Program::Nft.run(arguments),
            "ip" => Program::Ip.run(arguments),
            "sysctl" => traffic::value_of(&arguments.join("")),
            "doctor" => {
                let words = ["doctor", "--all", "-o", "json", "--state-dir", &state];
                Ok(Program::Agent.try_with_input(&words, "")?.output)
            }
            "get" => get(&arguments.join(""), limit),
            other => bail!("unknown way to observe a setting: {other:?}"),
        })
    }

    /// Waits until the settings of the beginning are in force, by the plan that was applied last.
    fn wait_base(&self) -> Result<()> {
        let plan: Value = serde_json::from_str(&self.cluster.plan(NODE, "json")?)?;
        let hash = plan["hash"].as_str().context("the plan has no hash")?;
        let last = || -> Result<String> {
            let said = self.cluster.said(NODE)?;
            let mut applied = said.lines().filter(|line| operations(line).is_some());
            Ok(applied.next_back().unwrap_or_default().to_owned())
        };
        self.eventually("the settings of the beginning", SOON, || {
            let last = last()?;
            ensure!(last.contains(hash), "{hash} is wanted, {last:?}");
            Ok(())
        })
    }

    /// Creates the state that the change acts on, and returns what has to live until the change was
    /// observed.
    fn do_by_hand(&self, hand: Hand) -> Result<Vec<Line>> {
        // Wait until the previous row's drift is corrected, or this change would be corrected with
        // it.
        self.eventually("the virtual server", SOON, || {
            let held = self.tool(NODE, Program::Ipvsadm, "-Sn")?;
            ensure!(
                held.contains(&format!("-A -t {SERVICE} ")),
                "it is not there"
            );
            Ok(())
        })?;
        match hand {
            Hand::ServerDeleted => {
                self.tool(NODE, Program::Ipvsadm, &format!("-D -t {SERVICE}"))?;
                Ok(Vec::new())
            }
            Hand::EndpointLeaves => {
                let limit = self.limit(Duration::from_secs(2));
                let client = self.topology.of(Resident::Outside)?;
                let open = || Line::open(client, SERVICE.parse()?, limit);
                // One for each of two endpoints, by `rr`, in any order.
                let lines = vec![open()?, open()?];
                let text = self.stage.files.text(EXTERNAL[1])?;
                // Another one has its place everywhere: an address that any endpoint has stays.
                let endpoint = "\"10.244.2.11\"";
                ensure!(
                    text.contains(endpoint),
                    "the manifest of endpoints is another"
                );
                let gone = text.replace(endpoint, "\"10.244.2.13\"");
                self.put_endpoints(&gone)?;
                Ok(lines)
            }
        }
    }

    fn put_endpoints(&self, text: &str) -> Result<()> {
        self.write(&manifest_name(EXTERNAL[1]), text)
    }

    /// Time between the starts of the last two passes that applied a plan, from the log.
    fn between_the_last_passes(&self) -> Result<Duration> {
        let said = self.cluster.said(NODE)?;
        let lines = said.lines().filter(|line| operations(line).is_some());
        let times = lines.map(began).collect::<Result<Vec<_>>>()?;
        let [.., first, second] = times.as_slice() else {
            bail!("the agent applied fewer than two plans");
        };
        // The first may have ended just before midnight.
        let day = Duration::from_secs(86_400);
        Ok(second.checked_sub(*first).unwrap_or(*second + day - *first))
    }
}

/// The status code and the body, or a text if the port does not listen.
fn get(target: &str, limit: Duration) -> Result<String> {
    let (address, path) = target
        .split_once('/')
        .context("an address without a path")?;
    let address: SocketAddr = address.parse()?;
    match http::get(address, &format!("/{path}"), limit) {
        Ok(response) => Ok(format!("{} {}", response.status, response.body)),
        Err(_) if http::refused(address, limit).is_ok() => Ok("refused".to_owned()),
        // A retry may give either result.
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// Start of the pass of a log line, since midnight.
fn began(line: &str) -> Result<Duration> {
    let rest = line.split_once("milliseconds=").map(|(_, rest)| rest);
    let digits = rest.and_then(|rest| rest.split(' ').next());
    let took = digits.and_then(|digits| digits.parse().ok());
    let took = took.with_context(|| format!("no duration in {line:?}"))?;
    let day = Duration::from_secs(86_400);
    let ended = time_of_day(line)?;
    let took = Duration::from_millis(took);
    Ok(ended.checked_sub(took).unwrap_or(ended + day - took))
}

/// The time in a line of the log, since midnight: `…T11:00:00.123456Z …`.
fn time_of_day(line: &str) -> Result<Duration> {
    let read = || {
        let text = line.split_once('T')?.1.split_once('Z')?.0;
        let (clock, fraction) = text.split_once('.')?;
        let mut seconds = 0_u64;
        for part in clock.split(':') {
            seconds = seconds * 60 + part.parse::<u64>().ok()?;
        }
        let micros: u64 = fraction.get(..6)?.parse().ok()?;
        Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
    };
    read().with_context(|| format!("no time in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_log_line_is_parsed() {
        let line = "2026-11-22T01:02:03.250000Z  INFO the plan is in force operations=1";
        assert_eq!(time_of_day(line).unwrap(), Duration::from_millis(3_723_250));
        assert!(time_of_day("the plan is in force").is_err());
        let line = format!("{line} milliseconds=250 more");
        assert_eq!(began(&line).unwrap(), Duration::from_secs(3723));
    }
}
