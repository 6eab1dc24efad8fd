//! UDP clients that keep their port while their endpoint is replaced, moves, is removed, returns or appears: their
//! datagrams reach a current endpoint, at once or, if it replaces another, a second later. Flows stay with their endpoint
//! over restarts. Other conntrack entries are kept, and flows are searched only if UDP changed.

mod changes;
mod kept;
mod manifests;
mod slow;
mod tracked;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use self::manifests::{Endpoint, slices};
use self::tracked::Tracked;
use super::{Checks, Scenario, Stage};
use crate::files::{CLUSTER, UDP};
use crate::harness::{self, clients_of};
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;
use crate::traffic::sender::Sender;
use crate::traffic::server::Server;
use crate::waits::SOON;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "udp",
    shows: "UDP clients that keep their port reach new backends with the next datagram",
    run,
};

/// The node whose clients send.
const NODE: Node = Node::A;
/// Clients whose datagrams it handles.
const CLIENTS: [Resident; 3] = clients_of(NODE);
/// The node port of the Service `talk`, and the port of an outside server.
const NODE_PORT: u16 = 30110;
/// The client port of entries that no datagram created.
const MADE_UP: u16 = 4711;
/// The log line of the agent after each search for flows.
const LOOKED: &str = "searched for stale UDP flows";
/// How long to wait for an answer that must not arrive; it would arrive at once.
const NO_ANSWER: Duration = Duration::from_millis(100);
/// An answer on hardware takes much less.
const ANSWER: Duration = Duration::from_secs(2);

const A1: Pod = Node::A.pod(1);
const B1: Pod = Node::B.pod(1);
const ON_A1: Endpoint = Endpoint {
    pod: A1,
    port: 5353,
};
const ON_B1: Endpoint = Endpoint {
    pod: B1,
    port: 5353,
};
/// The same pod, which serves on another port now.
const MOVED: Endpoint = Endpoint {
    pod: B1,
    port: 5454,
};

/// Clients that were there before the programs, and the Services that are in force.
struct Clients {
    services: String,
    senders: Vec<(Resident, Sender)>,
}

type Lab<'a> = harness::Lab<'a, Clients>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let clients = Clients {
        services: stage.files.text(UDP)?,
        senders: Vec::new(),
    };
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(clients);
    // No entry expires during this part, even on a slow machine.
    lab.node(NODE)?.set(&[
        ("net/netfilter/nf_conntrack_udp_timeout".to_owned(), "3600"),
        (
            "net/netfilter/nf_conntrack_udp_timeout_stream".to_owned(),
            "3600",
        ),
    ])?;
    lab.servers.pods = serve(&lab.topology)?;
    lab.write("nodes.yaml", &stage.files.text(CLUSTER[0])?)?;
    lab.write("services.yaml", &lab.state.services)?;
    lab.write("talk.yaml", &slices("talk", &[ON_A1]))?;
    lab.write("late.yaml", &slices("late", &[]))?;
    lab.write("plain.yaml", &slices("plain", &[ON_A1]))?;
    let others = Others::make(&lab)?;
    lab.run_parts(
        checks,
        &[
            ("clients from before the agent", changes::before_the_agent),
            ("endpoints that are replaced", changes::replaced),
            ("no endpoint for a while", changes::outage),
            ("a new address", changes::new_address),
            ("a first endpoint", changes::first_endpoint),
            ("no search without a reason", changes::quiet),
            ("slow servers", slow::requests_in_flight),
            ("flows over restarts", kept::over_restarts),
            ("fragments", kept::fragments),
        ],
    )?;
    others.check(&lab, checks)
}

/// Every pod that is an endpoint at some time, and an outside server on the number of a node port.
fn serve(topology: &Topology) -> Result<Vec<Server>> {
    let servers = [
        (
            Resident::Pod(A1),
            "pod-a1",
            vec![(Protocol::Udp, 5353), (Protocol::Tcp, 8080)],
        ),
        (
            Resident::Pod(B1),
            "pod-b1",
            vec![(Protocol::Udp, 5353), (Protocol::Tcp, 8080)],
        ),
        (
            Resident::Pod(B1),
            "pod-b1-moved",
            vec![(Protocol::Udp, 5454)],
        ),
        (
            Resident::Outside,
            "elsewhere",
            vec![(Protocol::Udp, NODE_PORT)],
        ),
    ];
    let start = |(who, name, ports): &(Resident, &str, Vec<_>)| {
        Server::start(topology.of(*who)?, name, ports)
    };
    servers.iter().map(start).collect()
}

/// The frontends of `talk` that exist from the start.
fn frontends(family: Family) -> [SocketAddr; 3] {
    let node_port = (Node::A.address(family), NODE_PORT).into();
    match family {
        Family::IPv4 => [
            ([10, 96, 3, 1], 53).into(),
            ([203, 0, 113, 71], 53).into(),
            node_port,
        ],
        Family::IPv6 => [
            ([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x301], 53).into(),
            balancer(family, 0x71),
            node_port,
        ],
    }
}

/// An external address: the last part reads the same in both families.
fn balancer(family: Family, last: u8) -> SocketAddr {
    match family {
        Family::IPv4 => ([203, 0, 113, last / 16 * 10 + last % 16], 53).into(),
        Family::IPv6 => ([0x2001, 0xdb8, 0x113, 0, 0, 0, 0, last.into()], 53).into(),
    }
}

impl Lab<'_> {
    fn lead(&self, service: &str, to: Option<Endpoint>) -> Result<()> {
        self.put(&format!("{service}.yaml"), &slices(service, to.as_slice()))
    }

    /// Number of flow searches of the agent of node-a.
    fn looks(&self) -> Result<usize> {
        Ok(self.cluster.said(NODE)?.matches(LOOKED).count())
    }

    /// Every client of node-a to these addresses.
    fn open(&self, targets: &[SocketAddr]) -> Result<Vec<(Resident, Sender)>> {
        let mut senders = Vec::new();
        for client in CLIENTS {
            for target in targets {
                let namespace = self.topology.of(client)?;
                senders.push((client, Sender::open(namespace, *target)?));
            }
        }
        Ok(senders)
    }

    /// Whether the next datagram of each is answered by this name, and is tracked as going there.
    fn reach(
        &self,
        family: Family,
        senders: &[(Resident, Sender)],
        name: &str,
        endpoint: Endpoint,
    ) -> Result<()> {
        let deadline = self.limit(ANSWER);
        let mut outcomes = Vec::new();
        for (client, sender) in of_family(senders, family) {
            crate::stop::check()?;
            outcomes.push((client, sender, sender.ask(deadline)?));
        }
        let tracked = tracked::all(&self.node(NODE)?)?;
        ensure!(!outcomes.is_empty(), "no client sends");
        for (client, sender, outcome) in outcomes {
            let flow = flow_of(&tracked, sender)?;
            let (client, to) = (client.name(), sender.target());
            ensure!(
                matches!(&outcome, Outcome::Answered { by, .. } if by == name),
                "{client} to {to}: {outcome}; tracked is {flow:?}"
            );
            let reply_source = flow.map(|flow| flow.reply_source);
            ensure!(
                reply_source == Some(endpoint.at(family)),
                "{client} to {to}: answered by {name}, and tracked is {flow:?}"
            );
        }
        Ok(())
    }

    /// Sends from each client that was answered before, and checks that none is answered now.
    fn unanswered(&self, family: Family) -> Result<()> {
        let deadline = self.limit(NO_ANSWER);
        for (client, sender) in of_family(&self.state.senders, family) {
            crate::stop::check()?;
            let outcome = sender.ask(deadline)?;
            let (client, to) = (client.name(), sender.target());
            let is_answered = matches!(outcome, Outcome::Answered { .. });
            ensure!(!is_answered, "{client} to {to}: {outcome}");
        }
        Ok(())
    }

    /// Sends from each client, and checks that the datagrams are not translated.
    fn lost(&self, family: Family, senders: &[(Resident, Sender)]) -> Result<()> {
        for (_, sender) in of_family(senders, family) {
            sender.send()?;
        }
        self.stage
            .waits
            .eventually("datagrams to be tracked as they were sent", SOON, || {
                let tracked = tracked::all(&self.node(NODE)?)?;
                for (client, sender) in of_family(senders, family) {
                    let flow = flow_of(&tracked, sender)?;
                    ensure!(
                        flow.is_some_and(|flow| flow.reply_source == flow.destination),
                        "{} to {}: {flow:?}",
                        client.name(),
                        sender.target()
                    );
                }
                Ok(())
            })
    }
}

fn of_family(
    senders: &[(Resident, Sender)],
    family: Family,
) -> impl Iterator<Item = (Resident, &Sender)> {
    let all = senders.iter().map(|(client, sender)| (*client, sender));
    all.filter(move |(_, sender)| Family::of(sender.target().ip()) == family)
}

fn flow_of<'a>(tracked: &'a [Tracked], sender: &Sender) -> Result<Option<&'a Tracked>> {
    let (source, target) = (sender.source()?, sender.target());
    let mut all = tracked.iter().filter(|flow| flow.protocol == "udp");
    Ok(all.find(|flow| flow.source == source && flow.destination == target))
}

/// Conntrack entries beside flows to UDP frontends, which have to stay.
struct Others {
    /// Clients of a server outside that has the number of a node port.
    senders: Vec<(Resident, Sender)>,
    before: BTreeSet<Tracked>,
}

impl Others {
    fn make(lab: &Lab<'_>) -> Result<Self> {
        let node = &lab.node(NODE)?;
        let mut senders = Vec::new();
        for family in Family::ALL {
            let outside = (Resident::Outside.address(family), NODE_PORT).into();
            for (client, sender) in lab.open(&[outside])? {
                if client != Resident::Outside {
                    let outcome = sender.ask(lab.limit(ANSWER))?;
                    let answered =
                        matches!(&outcome, Outcome::Answered { by, .. } if by == "elsewhere");
                    ensure!(answered, "{} to {outside}: {outcome}", client.name());
                    senders.push((client, sender));
                }
            }
            let client = (Resident::Outside.address(family), MADE_UP).into();
            for frontend in frontends(family) {
                tracked::insert(node, "tcp", client, frontend)?;
                tracked::insert(node, "sctp", client, frontend)?;
            }
        }
        let mut others = Self {
            senders,
            before: BTreeSet::new(),
        };
        others.before = others.now(lab)?;
        ensure!(others.before.len() == 16, "{:?}", others.before);
        Ok(others)
    }

    fn now(&self, lab: &Lab<'_>) -> Result<BTreeSet<Tracked>> {
        let mut sources = BTreeSet::new();
        for (_, sender) in &self.senders {
            sources.insert((sender.source()?, sender.target()));
        }
        let mut tracked = tracked::all(&lab.node(NODE)?)?;
        tracked.retain(|flow| match &*flow.protocol {
            "udp" => sources.contains(&(flow.source, flow.destination)),
            _ => flow.source.port() == MADE_UP,
        });
        Ok(tracked.into_iter().collect())
    }

    fn check(&self, lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
        let now = self.now(lab)?;
        for (what, protocols) in [
            ("no TCP or SCTP entry was touched (S-123)", ["tcp", "sctp"]),
            (
                "no flow to an outside server on a node port's number was touched (S-131)",
                ["udp", "udp"],
            ),
        ] {
            let of = |all: &BTreeSet<Tracked>| -> BTreeSet<_> {
                let all = all.iter().cloned();
                all.filter(|flow| protocols.contains(&&*flow.protocol))
                    .collect()
            };
            let (before, now) = (of(&self.before), of(&now));
            let gone: Vec<_> = before.difference(&now).collect();
            checks.require(
                what,
                gone.is_empty() && !before.is_empty(),
                &format!("of {} there are gone {gone:?}", before.len()),
            );
        }
        Ok(())
    }
}
