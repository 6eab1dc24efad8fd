//! UDP clients that keep their port, while what they send to is replaced, moves, goes away, comes
//! back and appears: the next datagram always reaches who is there. What else the kernel tracks stays,
//! and nothing is looked at unless UDP changed.

mod changes;
mod manifests;
mod tracked;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use self::manifests::{Endpoint, slices};
use self::tracked::Tracked;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::{CLUSTER, UDP};
use crate::namespace::Namespace;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;
use crate::traffic::sender::Sender;
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "udp",
    shows: "UDP clients that keep their port reach new backends with the next datagram",
    run,
};

/// Clients whose datagrams node-a handles.
const CLIENTS: [Resident; 3] = [
    Resident::Pod(Pod {
        node: Node::A,
        number: 3,
    }),
    Resident::Node(Node::A),
    Resident::Outside,
];
/// The port of the Service `talk` on every node, and of a server of somebody else.
const NODE_PORT: u16 = 30110;
/// A client of entries that nobody's datagrams made.
const MADE_UP: u16 = 4711;
/// What the agent says whenever it has looked at flows.
const LOOKED: &str = "looked for stale UDP flows";
/// An answer on hardware takes much less.
const ANSWER: Duration = Duration::from_secs(2);

const A1: Pod = Pod {
    node: Node::A,
    number: 1,
};
const B1: Pod = Pod {
    node: Node::B,
    number: 1,
};
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

/// The lab with its programs, and clients that were there before them.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    services: String,
    senders: Vec<(Resident, Sender)>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let node = topology.node(Node::A)?;
    // Nothing goes by itself while this lasts, also where it lasts long.
    node.set(&[
        ("net/netfilter/nf_conntrack_udp_timeout".to_owned(), "3600"),
        (
            "net/netfilter/nf_conntrack_udp_timeout_stream".to_owned(),
            "3600",
        ),
    ])?;
    let _servers = serve(&topology)?;
    let services = stage.files.text(UDP)?;
    let texts = [
        ("nodes.yaml", stage.files.text(CLUSTER[0])?),
        ("services.yaml", services.clone()),
        ("talk.yaml", slices("talk", Some(ON_A1))),
        ("late.yaml", slices("late", None)),
        ("plain.yaml", slices("plain", Some(ON_A1))),
    ];
    let texts = texts.map(|(name, text)| (name.to_owned(), text));
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
        services,
        senders: Vec::new(),
    };
    let others = Others::make(&scene)?;
    changes::run(&mut scene, checks)?;
    others.check(&scene, checks)
}

/// Every pod that is an endpoint at some time, and a server of somebody else on a node port's number.
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

/// The frontends of `talk` that are there from the beginning.
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

impl Scene<'_> {
    fn node(&self) -> Result<&Namespace> {
        self.topology.node(Node::A)
    }

    /// Puts a manifest in force on both nodes.
    fn put(&mut self, name: &str, text: &str) -> Result<()> {
        let mut before = BTreeMap::new();
        for node in Node::ALL {
            before.insert(node, self.cluster.applied(node)?.len());
        }
        self.cluster.write_manifest(name, text)?;
        for (node, batches) in before {
            self.cluster.wait_applied(node, batches)?;
        }
        Ok(())
    }

    fn lead(&mut self, service: &str, to: Option<Endpoint>) -> Result<()> {
        self.put(&format!("{service}.yaml"), &slices(service, to))
    }

    /// How often the agent of node-a has looked at flows.
    fn looks(&self) -> Result<usize> {
        Ok(self.cluster.said(Node::A)?.matches(LOOKED).count())
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
        let deadline = self.stage.waits.limit(ANSWER);
        let mut outcomes = Vec::new();
        for (client, sender) in of_family(senders, family) {
            crate::stop::check()?;
            outcomes.push((client, sender, sender.ask(deadline)?));
        }
        let tracked = tracked::all(self.node()?)?;
        ensure!(!outcomes.is_empty(), "nobody sends");
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

    /// Sends from each, and says whether nobody translates what is sent.
    fn lost(&self, family: Family, senders: &[(Resident, Sender)]) -> Result<()> {
        for (_, sender) in of_family(senders, family) {
            sender.send()?;
        }
        let waits = self.stage.waits;
        let (limit, every) = (Duration::from_secs(5), Duration::from_millis(50));
        let mut missing = String::new();
        let result = waits.until(
            "datagrams to be tracked as they were sent",
            limit,
            every,
            || {
                let tracked = tracked::all(self.node()?)?;
                for (client, sender) in of_family(senders, family) {
                    let flow = flow_of(&tracked, sender)?;
                    if flow.is_none_or(|flow| flow.reply_source != flow.destination) {
                        missing = format!("{} to {}: {flow:?}", client.name(), sender.target());
                        return Ok(None);
                    }
                }
                Ok(Some(()))
            },
            String::new,
        );
        result.map_err(|error| error.context(missing))
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

/// What is tracked beside flows to UDP frontends, and has to stay.
struct Others {
    /// Clients of a server outside that has the number of a node port.
    senders: Vec<(Resident, Sender)>,
    before: BTreeSet<Tracked>,
}

impl Others {
    fn make(scene: &Scene<'_>) -> Result<Self> {
        let node = scene.node()?;
        let mut senders = Vec::new();
        for family in Family::ALL {
            let outside = (Resident::Outside.address(family), NODE_PORT).into();
            for (client, sender) in scene.open(&[outside])? {
                if client != Resident::Outside {
                    let outcome = sender.ask(scene.stage.waits.limit(ANSWER))?;
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
        others.before = others.now(scene)?;
        ensure!(others.before.len() == 16, "{:?}", others.before);
        Ok(others)
    }

    fn now(&self, scene: &Scene<'_>) -> Result<BTreeSet<Tracked>> {
        let mut sources = BTreeSet::new();
        for (_, sender) in &self.senders {
            sources.insert((sender.source()?, sender.target()));
        }
        let mut tracked = tracked::all(scene.node()?)?;
        tracked.retain(|flow| match &*flow.protocol {
            "udp" => sources.contains(&(flow.source, flow.destination)),
            _ => flow.source.port() == MADE_UP,
        });
        Ok(tracked.into_iter().collect())
    }

    fn check(&self, scene: &Scene<'_>, checks: &mut Checks) -> Result<()> {
        let now = self.now(scene)?;
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
            let result = if gone.is_empty() && !before.is_empty() {
                Ok(())
            } else {
                Err(anyhow::anyhow!(
                    "of {} there are gone {gone:?}",
                    before.len()
                ))
            };
            checks.check(what, result);
        }
        Ok(())
    }
}
