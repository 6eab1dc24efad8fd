//! Traffic does not notice restarts: new connections at a steady rate from every kind of client
//! while the controller and the agents are killed and started again at random moments.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::packet_path::{POD_PORTS, cluster_files};
use super::{Checks, Scenario, Stage};
use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::console::{Console, Table};
use crate::manifests::Manifests;
use crate::topology::world::{Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::Protocol;
use crate::traffic::load::{Load, Rate, Tally};
use crate::traffic::server::Server;
use crate::{waits, witness};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "restarts",
    shows: "no connection fails while controller and agents are killed ten times each",
    run,
};

const LASTS: Duration = Duration::from_secs(60);
const PER_SECOND: u32 = 50;
const KILLS: u32 = 10;
/// A load that reaches less than this share of its rate has shown nothing.
const ENOUGH: f64 = 0.9;

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
    witness::require_ipvs()?;
    let (manifests, texts) = cluster_files(&stage.files)?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _servers = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let mut cluster = Cluster::new(&topology, stage.waits, texts)?;
    cluster.start()?;
    for node in Node::ALL {
        cluster.wait_programmed(node, &manifests.virtual_servers())?;
    }
    let before = Node::ALL
        .map(|node| topology.node(node).and_then(witness::everything))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    stage
        .console
        .line(&format!("seed {} (repeat with --seed {0})", stage.seed));
    let disturbed = disturb(stage, &topology, &mut cluster, &manifests)?;
    judge(stage.console, checks, &disturbed.loads, &disturbed.acts);
    for (node, before) in Node::ALL.into_iter().zip(before) {
        let what = format!("after the last restart {} is as it was", node.name());
        let settled = cluster.wait_virtual_servers(node, &manifests.virtual_servers());
        let same = || witness::must_equal(&before, &witness::everything(topology.node(node)?)?);
        checks.check(&what, settled.and_then(|()| same()));
    }
    Ok(())
}

/// Everything that was sent and done.
struct Disturbed {
    loads: Vec<Finished>,
    acts: Vec<(Program, Act)>,
}

/// A load, in words, with what came of it.
struct Finished {
    name: String,
    rate: Rate,
    tally: Tally,
}

fn disturb(
    stage: &Stage,
    topology: &Topology,
    cluster: &mut Cluster<'_>,
    manifests: &Manifests,
) -> Result<Disturbed> {
    let clients = [
        Resident::Pod(Pod {
            node: Node::A,
            number: 3,
        }),
        Resident::Node(Node::B),
        Resident::Outside,
    ];
    // A little later than now, so that all loads begin together.
    let start = Instant::now() + Duration::from_millis(200);
    let mut loads = Vec::new();
    for client in clients {
        for (service, protocol) in [("web", Protocol::Tcp), ("dns", Protocol::Udp)] {
            let rate = Rate {
                protocol,
                targets: targets(manifests, service, protocol)?,
                per_second: PER_SECOND,
                lasts: LASTS,
                deadline: stage.waits.limit(Duration::from_secs(2)),
            };
            let name = format!("{} -> {service} {protocol}", client.name());
            loads.push((name, Load::start(topology.of(client)?, &rate, start)?, rate));
        }
    }
    let mut batches = BTreeMap::new();
    let mut acts = Vec::new();
    for (moment, program, act) in schedule(&mut Chance::from_seed(stage.seed)) {
        waits::sleep_until(start + moment)?;
        if let (Program::Agent(node), Act::Start) = (program, act) {
            batches.insert(node, cluster.applied(node)?.len());
        }
        disturb_once(cluster, program, act)
            .with_context(|| format!("{:.1} s after the start", moment.as_secs_f64()))?;
        acts.push((program, act));
    }
    let mut finished = Vec::new();
    for (name, load, rate) in loads {
        finished.push(Finished {
            name,
            tally: load.finish()?,
            rate,
        });
    }
    // The last of each has to come to its work as well.
    for (node, batches) in batches {
        cluster.wait_applied(node, batches)?;
    }
    Ok(Disturbed {
        loads: finished,
        acts,
    })
}

fn targets(manifests: &Manifests, service: &str, protocol: Protocol) -> Result<Vec<SocketAddr>> {
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

fn disturb_once(cluster: &mut Cluster<'_>, program: Program, act: Act) -> Result<()> {
    match (program, act) {
        (Program::Controller, Act::Kill) => cluster.kill_controller(),
        (Program::Controller, Act::Start) => cluster.start_controller(),
        (Program::Agent(node), Act::Kill) => cluster.kill_agent(node),
        (Program::Agent(node), Act::Start) => cluster.start_agent(node),
    }
    .map_err(|error| cluster.with_logs(&error))
}

/// Ten kills of each program, each in a slot of its own and at a random moment of it, down for a
/// random time; in order.
fn schedule(chance: &mut Chance) -> Vec<(Duration, Program, Act)> {
    let margin = Duration::from_secs(2);
    let slot = (LASTS - 2 * margin) / KILLS;
    let programs = [
        Program::Controller,
        Program::Agent(Node::A),
        Program::Agent(Node::B),
    ];
    let mut schedule = Vec::new();
    for program in programs {
        for number in 0..KILLS {
            let down = chance.between(Duration::from_millis(50), Duration::from_millis(1500));
            let kill = margin + slot * number + chance.between(Duration::ZERO, slot - down);
            schedule.push((kill, program, Act::Kill));
            schedule.push((kill + down, program, Act::Start));
        }
    }
    schedule.sort_by_key(|event| event.0);
    schedule
}

fn judge(console: Console, checks: &mut Checks, loads: &[Finished], acts: &[(Program, Act)]) {
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
    console.table(&table);
    for Finished { name, rate, tally } in loads {
        checks.check(
            &format!(
                "{name}: {} connections a second, none failed",
                rate.per_second
            ),
            {
                let reached = f64::from(tally.made) >= ENOUGH * f64::from(rate.wanted());
                match tally.failures.first() {
                    Some((when, target, how)) => Err(anyhow!(
                        "{} failed, the first after {:.3} s to {target}: {how}",
                        tally.failures.len(),
                        when.as_secs_f64(),
                    )),
                    None if !reached => Err(anyhow!(
                        "only {} of {} were made",
                        tally.made,
                        rate.wanted()
                    )),
                    None => Ok(()),
                }
            },
        );
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
        checks.check(&format!("{name} was killed {kills} times"), {
            if kills == KILLS as usize {
                Ok(())
            } else {
                Err(anyhow!("{KILLS} were meant"))
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_killed_ten_times_and_always_started_again_in_time() {
        for seed in 0..100 {
            let events = schedule(&mut Chance::from_seed(seed));
            assert!(events.is_sorted_by_key(|event| event.0));
            for program in [
                Program::Controller,
                Program::Agent(Node::A),
                Program::Agent(Node::B),
            ] {
                let own: Vec<_> = events.iter().filter(|event| event.1 == program).collect();
                assert_eq!(own.len(), 20, "seed {seed}");
                for (number, event) in own.iter().enumerate() {
                    let act = if number % 2 == 0 {
                        Act::Kill
                    } else {
                        Act::Start
                    };
                    assert_eq!(event.2, act, "seed {seed}");
                    assert!(event.0 < LASTS, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_disturbs_at_the_same_moments() {
        let moments = |seed| schedule(&mut Chance::from_seed(seed));
        assert_eq!(moments(42), moments(42));
        assert_ne!(moments(42), moments(43));
    }
}
