//! New connections to all Services, and long-lived connections.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Checks, LAST_MOVES, LASTS, Lab};
use crate::harness::clients_of;
use crate::harness::loads::Loads;
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::Protocol;
use crate::traffic::line::Line;
use crate::traffic::load::Rate;
use crate::waits::ANSWER;

const POD: Resident = Resident::Pod(Node::A.pod(3));
/// Client, Service and connections per second: 68 per second in total. That is a third of the rate on hardware: with
/// more, the guest's two emulated processors have no time left for the programs under test.
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

/// Starts all loads: the second of these when a load balancer moves external clients to the other node.
pub(super) fn start_loads(lab: &Lab<'_>, start: Instant) -> Result<[Loads; 2]> {
    let (first, rest) = (LAST_MOVES, LASTS.saturating_sub(LAST_MOVES));
    let mut loads = [Loads::at(start), Loads::at(start + first)];
    let here = |node| (Resident::Outside, Target::Here(node), AT_NODES);
    let parts = [(here(Node::A), 0, first), (here(Node::B), 1, rest)];
    let whole = LOADS.map(|load| (load, 0, LASTS));
    for ((client, target, per_second), begins, lasts) in whole.into_iter().chain(parts) {
        let rate = Rate {
            protocol: Protocol::Tcp,
            targets: Family::ALL.map(|family| target.at(family, 80)).into(),
            per_second,
            lasts,
            deadline: DEADLINE,
        };
        let name = format!("{} -> {}", client.name(), target.name());
        loads[begins].add(name, lab.topology.of(client)?, rate)?;
    }
    Ok(loads)
}

/// Waits for the end of all, and judges each.
pub(super) fn finish_loads(loads: [Loads; 2], lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let mut all = 0;
    for load in loads {
        for load in load.finish()? {
            all += load.tally.made;
            lab.line(&load.summary("new connections"));
            let what = format!("{}: no new connection fails (S-117, S-186)", load.name);
            checks.check(&what, load.none_failed(ENOUGH));
        }
    }
    lab.line(&format!(
        "{:.0} new connections a second in all",
        f64::from(all) / LASTS.as_secs_f64()
    ));
    Ok(())
}

/// A connection that stays.
pub(super) struct Call {
    line: Line,
    words: String,
    /// The name in the answer.
    pub(super) by: String,
}

impl Call {
    pub(super) fn lives(&mut self) -> Result<()> {
        self.line.lives().with_context(|| self.words.clone())
    }
}

/// Opens `count` connections to the `lines` port of a Service, from each client and family in turn.
pub(super) fn call(lab: &Lab<'_>, target: Target, count: usize) -> Result<Vec<Call>> {
    let deadline = lab.limit(ANSWER);
    let clients = clients_of(Node::A);
    let from = clients.into_iter().cycle().take(count).enumerate();
    let call = |(number, client): (usize, Resident)| {
        let family = Family::ALL[number / clients.len() % Family::ALL.len()];
        let to = target.at(family, 7000);
        let mut line = Line::open(lab.topology.of(client)?, to, deadline)?;
        let by = line.name()?;
        ensure!(!by.is_empty(), "{to} answers without a name");
        let words = format!("{} -> {by} over {family}", client.name());
        Ok(Call { line, words, by })
    };
    from.map(call).collect()
}
