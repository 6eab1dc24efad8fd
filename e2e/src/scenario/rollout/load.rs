//! New connections to all of the Services, and connections that stay.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::{Checks, LAST_MOVES, LASTS, Scene};
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::Protocol;
use crate::traffic::line::Line;
use crate::traffic::load::{Load, Rate};

const POD: Resident = Resident::Pod(Pod {
    node: Node::A,
    number: 3,
});
/// Who connects, to which Service, how often a second: 68 in all, at every moment. That is a third of
/// what hardware is asked for: with more, the guest's two emulated processors have no time left for the
/// programs that have to follow.
const LOADS: [(Resident, Target, u32); 8] = [
    (POD, Target::Roll, 10),
    (Resident::Node(Node::B), Target::Roll, 10),
    (Resident::Outside, Target::Roll, 10),
    (POD, Target::Flap, 7),
    (Resident::Node(Node::A), Target::Flap, 7),
    (Resident::Outside, Target::Flap, 7),
    (POD, Target::Zoned, 5),
    (Resident::Node(Node::B), Target::Zoned, 5),
];
const AT_NODES: u32 = 7;
/// A load that reaches less than this share of its rate has shown nothing.
const ENOUGH: f64 = 0.5;
/// No attempt is tried again, and what was sent again counts as failed: the first comes after a second.
const DEADLINE: Duration = Duration::from_millis(950);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Roll,
    Flap,
    Zoned,
    /// The node port of policy Local.
    Here(Node),
}

impl Target {
    pub(super) fn at(self, family: Family, port: u16) -> SocketAddr {
        let number: u8 = match self {
            Self::Roll => 1,
            Self::Flap => 2,
            Self::Zoned => 3,
            Self::Here(node) => return (node.address(family), 30094).into(),
        };
        let address: IpAddr = match family {
            Family::IPv4 => [10, 96, 4, number].into(),
            Family::IPv6 => [0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x400 + u16::from(number)].into(),
        };
        (address, port).into()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Roll => "the one that is rolled",
            Self::Flap => "the one that flaps",
            Self::Zoned => "the one with hints",
            Self::Here(Node::A) => "node-a, until its last endpoint leaves",
            Self::Here(Node::B) => "node-b, from then on",
        }
    }
}

/// Everybody who connects.
pub(super) struct Loads {
    running: Vec<(Resident, Target, Rate, Load)>,
}

impl Loads {
    pub(super) fn start(scene: &Scene<'_>, start: Instant) -> Result<Self> {
        // A balancer moves outsiders from one node to the other.
        let (first, rest) = (LAST_MOVES, LASTS.saturating_sub(LAST_MOVES));
        let here = |node| (Resident::Outside, Target::Here(node), AT_NODES);
        let parts = [
            (here(Node::A), Duration::ZERO, first),
            (here(Node::B), first, rest),
        ];
        let whole = LOADS.map(|load| (load, Duration::ZERO, LASTS));
        let mut running = Vec::new();
        for ((client, target, per_second), after, lasts) in whole.into_iter().chain(parts) {
            let rate = Rate {
                protocol: Protocol::Tcp,
                targets: Family::ALL.map(|family| target.at(family, 80)).into(),
                per_second,
                lasts,
                deadline: scene.stage.waits.limit(DEADLINE),
            };
            let load = Load::start(scene.topology.of(client)?, &rate, start + after)?;
            running.push((client, target, rate, load));
        }
        Ok(Self { running })
    }

    /// Waits for the end of all, and judges each.
    pub(super) fn finish(self, scene: &Scene<'_>, checks: &mut Checks) -> Result<()> {
        let mut all = 0;
        for (client, target, rate, load) in self.running {
            let tally = load.finish()?;
            all += tally.made;
            let (client, target, failed) = (client.name(), target.name(), tally.failures.len());
            scene.stage.console.line(&format!(
                "{client} -> {target}: {} of {} new connections, {failed} failed, slowest {} ms",
                tally.made,
                rate.wanted(),
                tally.slowest.as_millis()
            ));
            let made = f64::from(tally.made) >= ENOUGH * f64::from(rate.wanted());
            let result = match tally.failures.first() {
                Some((when, to, how)) => Err(anyhow!(
                    "{failed} failed, the first after {:.3} s to {to}: {how}",
                    when.as_secs_f64()
                )),
                None if !made => Err(anyhow!("only {} were made", tally.made)),
                None => Ok(()),
            };
            let what = format!("{client} -> {target}: no new connection fails (S-117, S-186)");
            checks.check(&what, result);
        }
        scene.stage.console.line(&format!(
            "{:.0} new connections a second in all",
            f64::from(all) / LASTS.as_secs_f64()
        ));
        Ok(())
    }
}

/// A connection that stays.
pub(super) struct Call {
    line: Line,
    words: String,
    /// Who answers, as it says itself.
    pub(super) by: String,
}

impl Call {
    pub(super) fn lives(&mut self) -> Result<()> {
        self.line.lives().with_context(|| self.words.clone())
    }
}

/// So many connections to a Service's lines, by turns of every client and family.
pub(super) fn call(scene: &Scene<'_>, target: Target, count: usize) -> Result<Vec<Call>> {
    let deadline = scene.stage.waits.limit(Duration::from_secs(3));
    let clients = [POD, Resident::Node(Node::A), Resident::Outside];
    let from = clients.into_iter().cycle().take(count).enumerate();
    let call = |(number, client): (usize, Resident)| {
        let family = Family::ALL[number / clients.len() % Family::ALL.len()];
        let to = target.at(family, 7000);
        let mut line = Line::open(scene.topology.of(client)?, to, deadline)?;
        let by = line.name()?;
        ensure!(!by.is_empty(), "{to} answers without a name");
        let words = format!("{} -> {by} over {family}", client.name());
        Ok(Call { line, words, by })
    };
    from.map(call).collect()
}
