//! Restarts do not affect traffic: new connections at a steady rate from every kind of client,
//! while the controller and the agents are killed and restarted at random times.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::packet_path::cluster_manifests;
use super::{Checks, Scenario, Stage};
use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::console::Table;
use crate::files::CLUSTER;
use crate::harness;
use crate::harness::loads::{Finished, Loads};
use crate::manifests::Manifests;
use crate::topology::Network;
use crate::topology::world::{Node, Resident};
use crate::traffic::Protocol;
use crate::traffic::load::Rate;
use crate::{waits, witness};

type Lab<'a> = harness::Lab<'a, Manifests>;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "restarts",
    shows: "no connection fails while controller and agents are killed several times each",
    run,
};

/// A load that reaches less than this share of its rate has shown nothing.
const ENOUGH: f64 = 0.9;

/// Connections of each client per second. An emulated machine makes 43 beside other work, all clients together 260.
const PER_SECOND: u32 = 20;

/// Duration, and number of kills of each program.
#[derive(Debug, Clone, Copy)]
struct Form {
    lasts: Duration,
    kills: u32,
}

const SHORT: Form = Form {
    lasts: Duration::from_secs(24),
    kills: 4,
};
const LONG: Form = Form {
    lasts: Duration::from_secs(60),
    kills: 10,
};

impl Form {
    fn of(stage: &Stage) -> Self {
        if stage.long { LONG } else { SHORT }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Controller,
    Agent(Node),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Kill,
    Start,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let manifests = cluster_manifests(&stage.files)?;
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(manifests);
    lab.serve_pods()?;
    lab.add_files(CLUSTER)?;
    lab.cluster.start()?;
    for node in Node::ALL {
        let wanted = lab.state.virtual_servers();
        lab.cluster.wait_programmed(node, &wanted)?;
    }
    lab.run_parts(checks, &[("kills under load", kills)])
}

fn kills(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let [a, b] = Node::ALL.map(|node| lab.everything(node));
    let before = [a?, b?];
    lab.line(&format!("seed {} (repeat with --seed {0})", lab.stage.seed));
    let disturbed = disturb(lab)?;
    judge(lab.stage, checks, &disturbed);
    for (node, before) in Node::ALL.into_iter().zip(before) {
        let what = format!("after the last restart {} is as it was", node.name());
        let wanted = lab.state.virtual_servers();
        let settled = lab.cluster.wait_virtual_servers(node, &wanted);
        let same = || witness::must_equal(&before, &lab.everything(node)?);
        checks.check(&what, settled.and_then(|()| same()));
    }
    Ok(())
}

/// Everything that was sent and done.
struct Disturbed {
    loads: Vec<Finished>,
    acts: Vec<(Program, Act)>,
}

fn disturb(lab: &mut Lab<'_>) -> Result<Disturbed> {
    let form = Form::of(lab.stage);
    let clients = [
        Resident::Pod(Node::A.pod(3)),
        Resident::Node(Node::B),
        Resident::Outside,
    ];
    // A little later than now, so that all loads begin together.
    let start = Instant::now() + Duration::from_millis(200);
    let mut loads = Loads::at(start);
    for client in clients {
        for (service, protocol) in [("web", Protocol::Tcp), ("dns", Protocol::Udp)] {
            let rate = Rate {
                protocol,
                targets: targets(&lab.state, service, protocol)?,
                per_second: PER_SECOND,
                lasts: form.lasts,
                deadline: lab.limit(Duration::from_secs(2)),
            };
            let name = format!("{} -> {service} {protocol}", client.name());
            loads.add(name, lab.topology.of(client)?, rate)?;
        }
    }
    let mut batches = BTreeMap::new();
    let mut acts = Vec::new();
    for (moment, program, act) in schedule(&mut Chance::from_seed(lab.stage.seed), form) {
        waits::sleep_until(start + moment)?;
        if let (Program::Agent(node), Act::Start) = (program, act) {
            batches.insert(node, lab.cluster.applied(node)?.len());
        }
        disturb_once(&mut lab.cluster, program, act)
            .with_context(|| format!("{:.1} s after the start", moment.as_secs_f64()))?;
        acts.push((program, act));
    }
    let loads = loads.finish()?;
    // The last of each has to come to its work as well.
    for (node, batches) in batches {
        lab.cluster.wait_applied(node, batches)?;
    }
    Ok(Disturbed { loads, acts })
}

pub(super) fn targets(
    manifests: &Manifests,
    service: &str,
    protocol: Protocol,
) -> Result<Vec<SocketAddr>> {
    let all = manifests.frontends();
    let right = all
        .iter()
        .filter(|f| f.service == service && f.protocol == protocol);
    let targets: Vec<_> = right.map(|frontend| frontend.address).collect();
    ensure!(
        !targets.is_empty(),
        "no manifest has a Service {service} over {protocol}"
    );
    Ok(targets)
}

fn disturb_once(cluster: &mut Cluster, program: Program, act: Act) -> Result<()> {
    match (program, act) {
        (Program::Controller, Act::Kill) => cluster.kill_controller(),
        (Program::Controller, Act::Start) => cluster.start_controller(),
        (Program::Agent(node), Act::Kill) => cluster.kill_agent(node),
        (Program::Agent(node), Act::Start) => cluster.start_agent(node),
    }
}

/// The kills of each program in order: each at a random time in its own slot, with a random
/// downtime.
fn schedule(chance: &mut Chance, form: Form) -> Vec<(Duration, Program, Act)> {
    let margin = Duration::from_secs(2);
    let slot = (form.lasts - 2 * margin) / form.kills;
    let programs = [
        Program::Controller,
        Program::Agent(Node::A),
        Program::Agent(Node::B),
    ];
    let mut schedule = Vec::new();
    for program in programs {
        for number in 0..form.kills {
            let down = chance.between(Duration::from_millis(50), Duration::from_millis(1500));
            let kill = margin + slot * number + chance.between(Duration::ZERO, slot - down);
            schedule.push((kill, program, Act::Kill));
            schedule.push((kill + down, program, Act::Start));
        }
    }
    schedule.sort_by_key(|event| event.0);
    schedule
}

fn judge(stage: &Stage, checks: &mut Checks, disturbed: &Disturbed) {
    let Disturbed { loads, acts } = disturbed;
    let wanted = Form::of(stage).kills;
    let mut table = Table::new(["LOAD", "WANTED", "MADE", "FAILED", "SLOWEST ms"]);
    for Finished { name, rate, tally } in loads {
        table.row([
            name.clone(),
            rate.wanted().to_string(),
            tally.made.to_string(),
            tally.failures.len().to_string(),
            tally.slowest.as_millis().to_string(),
        ]);
    }
    stage.console.table(&table);
    for load in loads {
        let what = format!(
            "{}: {} connections a second, none failed",
            load.name, load.rate.per_second
        );
        checks.check(&what, load.none_failed(ENOUGH));
    }
    for (name, program) in [
        ("the controller", Program::Controller),
        ("the agent of node-a", Program::Agent(Node::A)),
        ("the agent of node-b", Program::Agent(Node::B)),
    ] {
        let kills = acts
            .iter()
            .filter(|act| **act == (program, Act::Kill))
            .count();
        checks.require(
            &format!("{name} was killed {kills} times"),
            kills == wanted as usize,
            &format!("{wanted} were planned"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_killed_as_often_as_was_meant_and_always_started_again_in_time() {
        for (seed, form) in (0..100).flat_map(|seed| [(seed, SHORT), (seed, LONG)]) {
            let events = schedule(&mut Chance::from_seed(seed), form);
            assert!(events.is_sorted_by_key(|event| event.0));
            for program in [
                Program::Controller,
                Program::Agent(Node::A),
                Program::Agent(Node::B),
            ] {
                let own: Vec<_> = events.iter().filter(|event| event.1 == program).collect();
                assert_eq!(own.len(), 2 * form.kills as usize, "seed {seed}");
                for (number, event) in own.iter().enumerate() {
                    let act = if number % 2 == 0 {
                        Act::Kill
                    } else {
                        Act::Start
                    };
                    assert_eq!(event.2, act, "seed {seed}");
                    assert!(event.0 < form.lasts, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_disturbs_at_the_same_moments() {
        let moments = |seed| schedule(&mut Chance::from_seed(seed), SHORT);
        assert_eq!(moments(42), moments(42));
        assert_ne!(moments(42), moments(43));
    }
}
