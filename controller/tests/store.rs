//! Properties of the store: for any plan that an agent holds, any updates while it is served, and any history that the
//! store keeps, the batches lead to the plan of its node.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "store/history.rs"]
mod history;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use portolan_controller::store::{Begin, Held, HistoryLimits, Outdated, Store, Walk};
use portolan_plan::{
    Backend, Entry, EntryKey, Family, Frontend, FrontendKind, Head, HeadPort, ListChoice, ListKey,
    ListUse, Local, LocalEndpoint, NodeEntry, NodePlan, PlanHash, Protocol, Scope, ScopeKind,
    ServiceId, StagedChanges,
};
use portolan_planner::{PlannedService, Update};
use portolan_proto::item;
use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::smallvec;

/// The possible nodes; the plans of the first few are followed.
const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];
const FOLLOWED: usize = 3;
const ZONES: [&str; 2] = ["east", "west"];
const SERVICES: u8 = 6;

/// A generated plan of a Service.
#[derive(Debug, Clone)]
struct Shape {
    scope: ScopeKind,
    /// Nodes whose head refers to their own list.
    own: Vec<usize>,
    /// The zone whose nodes' head refers to their own list, except for the nodes above.
    own_of_zone: Option<usize>,
    /// Nodes with endpoints.
    homes: Vec<usize>,
    /// Whether the other nodes answer its health checks.
    checked: bool,
    /// A seed for the contents of each list.
    seed: u16,
    /// Whether its lists are long enough for patches.
    large: bool,
    critical: bool,
}

/// A step of a test.
#[derive(Debug, Clone)]
enum Step {
    Service(u8, Option<Shape>),
    /// A node with a zone and an address.
    Node(usize, Option<(Option<usize>, u8)>),
    /// The agent of a node receives its whole batch.
    Served(usize),
    /// It receives a number of chunks of some bytes each, but not the end of the batch.
    Pieces(usize, usize, u8),
    /// It reconnects with the plan it holds.
    Returns(usize),
    /// It rejects its plan.
    Rejects(usize),
}

fn shape() -> impl Strategy<Value = Shape> {
    let scope = prop_oneof![
        Just(ScopeKind::Cluster),
        Just(ScopeKind::Zone),
        Just(ScopeKind::Node)
    ];
    let nodes = || vec(0..NODES.len(), 0..3);
    let parts = (
        scope,
        nodes(),
        nodes(),
        any::<u16>(),
        any::<bool>(),
        any::<bool>(),
        prop::option::weighted(0.3, 0..ZONES.len()),
        any::<bool>(),
    );
    parts.prop_map(|parts| {
        let (scope, own, homes, seed, large, critical, own_of_zone, checked) = parts;
        Shape {
            scope,
            own,
            own_of_zone,
            homes,
            checked,
            seed,
            large,
            critical,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SERVICES, prop::option::weighted(0.8, shape())).prop_map(|(s, p)| Step::Service(s, p)),
        1 => (0..NODES.len(), prop::option::weighted(0.8, (prop::option::of(0..ZONES.len()), 1u8..3)))
            .prop_map(|(number, node)| Step::Node(number, node)),
        4 => (0..FOLLOWED).prop_map(Step::Served),
        3 => (0..FOLLOWED, 1usize..400, 1u8..4)
            .prop_map(|(node, bytes, count)| Step::Pieces(node, bytes, count)),
        1 => (0..FOLLOWED).prop_map(Step::Returns),
        1 => (0..FOLLOWED).prop_map(Step::Rejects),
    ]
}

/// Histories that forget nothing, or some states, or all of them, or some changes as well.
fn limits() -> impl Strategy<Value = HistoryLimits> {
    let bytes = prop_oneof![Just(0), Just(20_000), Just(usize::MAX)];
    let names = prop_oneof![Just(8), Just(usize::MAX)];
    (bytes, names).prop_map(|(bytes, names)| HistoryLimits { bytes, names })
}

fn node(number: usize, zone: Option<usize>) -> NodeEntry {
    NodeEntry {
        name: NODES[number].into(),
        zone: zone.map(|zone| ZONES[zone].into()),
        ..NodeEntry::default()
    }
}

fn service(number: u8) -> ServiceId {
    ServiceId::new("shop", format!("s{number}"))
}

fn head(scope: ScopeKind, critical: bool) -> Arc<Head> {
    let choice = ListChoice {
        scope,
        ..ListChoice::default()
    };
    let port = HeadPort {
        name: "http".into(),
        frontends: smallvec![Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some(Ipv4Addr::new(10, 96, 0, 1).into()),
            port: 80,
        }],
        internal: ListUse {
            ipv4: choice,
            ipv6: choice,
            ..ListUse::default()
        },
        ..HeadPort::default()
    };
    Arc::new(Head {
        boot_critical: critical,
        ports: smallvec![port],
        ..Head::default()
    })
}

/// Many backends of which few depend on the seed, or few that all do.
fn backends(seed: u16, large: bool) -> impl Iterator<Item = Backend> {
    let [high, low] = seed.to_be_bytes();
    let fixed = (0..if large { 400u16 } else { 0 }).map(|number| {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 1, high, low)
    });
    let own = (0..low % 4).map(move |number| Ipv4Addr::new(10, 2, high, low ^ number));
    fixed.chain(own).map(|address| Backend {
        address: address.into(),
        port: 8080,
        weight: 1,
    })
}

fn planned(id: &ServiceId, shape: &Shape) -> PlannedService {
    let own = shape.own.iter().map(|node| (NODES[*node].into(), 1));
    let mut lists = BTreeMap::new();
    let scopes = [Scope::Cluster].into_iter();
    let scopes = scopes.chain(ZONES.map(|zone| Scope::Zone(zone.into())));
    let scopes = scopes.chain(NODES.map(|node| Scope::Node(node.into())));
    for (place, scope) in scopes.enumerate() {
        let key = ListKey {
            service: id.clone(),
            port: "http".into(),
            family: Family::Ipv4,
            scope,
        };
        let seed = shape.seed.wrapping_add(u16::try_from(place).unwrap());
        lists.insert(key, Arc::new(backends(seed, shape.large).collect()));
    }
    let local = |node: &usize| {
        let endpoint = LocalEndpoint {
            address: Ipv4Addr::new(10, 3, 0, shape.seed.to_be_bytes()[1]).into(),
            protocol: Protocol::Tcp,
            port: 8080,
        };
        let local = Local {
            endpoints: [endpoint].into(),
            health: None,
        };
        (NODES[*node].into(), Arc::new(local))
    };
    PlannedService {
        id: id.clone(),
        heads: vec![
            head(shape.scope, shape.critical),
            head(ScopeKind::Node, shape.critical),
        ],
        head_of_zone: shape
            .own_of_zone
            .map(|zone| (ZONES[zone].into(), 1))
            .into_iter()
            .collect(),
        head_of_node: own.collect(),
        lists,
        locals: shape.homes.iter().map(local).collect(),
        elsewhere: shape.checked.then(Arc::default),
        hints: Vec::new(),
        warnings: Vec::new(),
    }
}

/// An agent that stores its plan as real agents do.
#[derive(Debug)]
struct Agent {
    node: &'static str,
    plan: NodePlan,
    held: Held,
    open: Option<(Walk, StagedChanges)>,
}

impl Agent {
    fn new(node: &'static str) -> Self {
        Self {
            node,
            plan: NodePlan::default(),
            held: Held::Nothing,
            open: None,
        }
    }

    /// Receives one chunk; false if there is none left. If the rest is unknown, the batch begins again.
    fn take(&mut self, store: &Store, bytes: usize) -> bool {
        let Some((mut walk, mut staged)) = self.open.take().or_else(|| {
            let walk = store.begin(self.node, self.held.clone())?;
            let staged = match walk.begin() {
                Begin::Nothing => StagedChanges::snapshot(),
                Begin::Buckets(buckets) => StagedChanges::of_buckets(*buckets),
                Begin::Position(_) => StagedChanges::delta(),
            };
            Some((walk, staged))
        }) else {
            return false;
        };
        let items = match store.more(&mut walk, bytes) {
            Ok(items) => items,
            Err(Outdated) => {
                let is_delta = matches!(walk.begin(), Begin::Position(_));
                assert!(is_delta && !walk.is_repeated(), "{walk:?} is outdated");
                return true;
            }
        };
        let mut reader = item::Reader::default();
        for bytes in items {
            let held = |key: &EntryKey| match self.plan.held(key)? {
                (hash, Some(Entry::List(list))) => Some((hash, list.clone())),
                _ => None,
            };
            let Some((change, problem)) = reader.read(bytes, held).unwrap() else {
                continue;
            };
            assert_eq!(problem, None);
            staged.push(change);
        }
        if !walk.is_done() {
            self.open = Some((walk, staged));
            return true;
        }
        self.plan.apply(staged, walk.end().hash()).unwrap();
        self.held = Held::Sent(walk.end());
        false
    }
}

fn publish(store: &Store, step: &Step) {
    let mut update = Update::default();
    match step {
        Step::Service(number, shape) => {
            let id = service(*number);
            let planned = shape.as_ref().map(|shape| Arc::new(planned(&id, shape)));
            update.services.insert(id, planned);
        }
        Step::Node(number, of) => {
            let entry = of.map(|(zone, address)| {
                Arc::new(NodeEntry {
                    addresses: [Ipv4Addr::new(192, 168, 0, address).into()]
                        .into_iter()
                        .collect(),
                    ..node(*number, zone)
                })
            });
            update.nodes.insert(NODES[*number].into(), entry);
        }
        Step::Served(_) | Step::Pieces(..) | Step::Returns(_) | Step::Rejects(_) => return,
    }
    store.publish(update);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Nodes of one zone and of several, named by a Service or not. Only a batch from a plan that was sent can become
    /// outdated, and the next one cannot.
    #[test]
    fn every_way_leads_to_the_plan_of_the_node(limits in limits(), steps in vec(step(), 1..50)) {
        let store = Store::with_limits(limits);
        let mut agents: Vec<_> = NODES.into_iter().map(Agent::new).collect();
        for node in 0..FOLLOWED {
            publish(&store, &Step::Node(node, Some((Some(node / 2), 1))));
        }
        for step in &steps {
            publish(&store, step);
            match *step {
                Step::Pieces(node, bytes, count) => {
                    for _ in 0..count {
                        if !agents[node].take(&store, bytes) {
                            break;
                        }
                    }
                }
                Step::Served(node) => while agents[node].take(&store, 1000) {},
                Step::Returns(node) => {
                    let agent = &mut agents[node];
                    agent.open = None;
                    let (hash, buckets) = (agent.plan.hash(), agent.plan.bucket_hashes());
                    agent.held = Held::Reported(hash, Some(buckets));
                }
                Step::Rejects(node) => {
                    agents[node].open = None;
                    agents[node].held = Held::Unknown;
                }
                Step::Service(..) | Step::Node(..) => {}
            }
        }
        for agent in &mut agents {
            while agent.take(&store, 1000) {}
            // The incomplete batch was of an older version.
            while agent.take(&store, 1000) {}
            if let Some(wanted) = store.plan(agent.node) {
                prop_assert_eq!(&agent.plan, &wanted);
                let held = Held::Reported(wanted.hash(), Some(wanted.bucket_hashes()));
                let walk = store.begin(agent.node, held).unwrap();
                prop_assert!(walk.is_done(), "an up-to-date agent is sent nothing");
            }
        }
    }
}

/// The cost of a change to one of 400 backends is that of the backend, not of the list.
#[test]
fn a_change_of_a_large_list_costs_the_change() {
    let shape = |seed| Shape {
        scope: ScopeKind::Cluster,
        own: Vec::new(),
        own_of_zone: None,
        homes: Vec::new(),
        checked: false,
        seed,
        large: true,
        critical: false,
    };
    let store = Store::default();
    publish(&store, &Step::Node(0, Some((None, 1))));
    let mut agent = Agent::new(NODES[0]);
    let sizes = [1, 2].map(|seed| {
        publish(&store, &Step::Service(0, Some(shape(seed))));
        let mut walk = store.begin(NODES[0], agent.held.clone()).unwrap();
        let items = store.more(&mut walk, 10_000).unwrap();
        assert!(walk.is_done());
        while agent.take(&store, 1000) {}
        assert_eq!(agent.plan.hash(), store.plan(NODES[0]).unwrap().hash());
        items.iter().map(|item| item.len()).sum::<usize>()
    });
    assert!(sizes[0] > 1600 && sizes[1] < 120, "{sizes:?}");
}

/// Reconnecting to a restarted controller costs only the changes since.
#[test]
fn an_agent_with_an_old_plan_is_sent_the_buckets_that_differ() {
    let shape = |seed| Shape {
        scope: ScopeKind::Cluster,
        own: Vec::new(),
        own_of_zone: None,
        homes: vec![0],
        checked: false,
        seed,
        large: false,
        critical: false,
    };
    let fill = |last: u16| {
        let store = Store::default();
        publish(&store, &Step::Node(0, Some((None, 1))));
        for number in 0..100 {
            let seed = if number == 99 { last } else { 1 };
            publish(&store, &Step::Service(number, Some(shape(seed))));
        }
        store
    };
    let mut agent = Agent::new(NODES[0]);
    let first = fill(1);
    while agent.take(&first, 1000) {}
    let second = fill(2);
    let held = |buckets| Held::Reported(agent.plan.hash(), buckets);
    let cost = |held| {
        let mut walk = second.begin(NODES[0], held).unwrap();
        let mut bytes = 0;
        while !walk.is_done() {
            let items = second.more(&mut walk, 1000).unwrap();
            bytes += items.iter().map(|item| item.len()).sum::<usize>();
        }
        bytes
    };
    let (buckets, whole) = (
        cost(held(Some(agent.plan.bucket_hashes()))),
        cost(held(None)),
    );
    assert!(buckets * 10 < whole, "{buckets} of {whole}");
    assert_eq!(
        cost(Held::Reported(second.plan(NODES[0]).unwrap().hash(), None)),
        0
    );
    assert_ne!(agent.plan.hash(), PlanHash::default());
}

/// Agents on nodes have a reserve of token reviews.
#[test]
fn the_addresses_of_nodes_with_a_plan_are_known() {
    let store = Store::default();
    let with = |number: usize, addresses: &[u8]| {
        let address = |last: &u8| Ipv4Addr::new(192, 168, 0, *last).into();
        let entry = NodeEntry {
            addresses: addresses.iter().map(address).collect(),
            ..node(number, None)
        };
        let mut update = Update::default();
        let entry = Some(Arc::new(entry));
        update.nodes.insert(NODES[number].into(), entry);
        store.publish(update);
    };
    let known = || {
        let is_known = |last: &u8| store.is_node_address(Ipv4Addr::new(192, 168, 0, *last).into());
        (0..9).filter(is_known).collect::<Vec<_>>()
    };
    assert_eq!(known(), [0_u8; 0]);
    with(0, &[1, 2]);
    with(1, &[2, 3]);
    assert_eq!(known(), [1, 2, 3]);
    with(0, &[4]);
    assert_eq!(known(), [2, 3, 4], "another node has the second address");
    publish(&store, &Step::Node(1, None));
    assert_eq!(known(), [4]);
}
