//! Tests which differences count as drift, which are left alone, and how they are counted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "drift/hand.rs"]
mod hand;

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_plan::{
    Dataplane, Entry, EntryHash, EntryKey, Family, Frontend, NodeEntry, NodePlan, strategies,
};
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{
    Desired, DriftCount, DriftKind, DriftLedger, Drifted, HostAddress, HostNetwork, ModelKernel,
    Observed, ObservedScope, Owned, SetEntry, SetId, SetRole, Timeouts, diff, drift, in_words,
    leave,
};
use proptest::prelude::*;

use hand::{Hand, hands, index};

fn host() -> HostNetwork {
    let on = |text: &str| HostAddress::on("eth0", text.parse().unwrap());
    HostNetwork {
        addresses: vec![on("192.168.50.1/24"), on("fd00:50::1/64")],
        ..HostNetwork::default()
    }
}

fn example() -> Desired {
    let document: portolan_plan::PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    Desired::new(&document.into_plan().unwrap(), &host()).unwrap()
}

/// A plan like those of the planner: no two Services share an address, port and protocol (S-14).
fn desired(entries: Vec<(EntryKey, Entry)>) -> Desired {
    let mut taken = BTreeSet::new();
    let mut unique = |entry| {
        let head = match entry {
            Entry::Head(head) => head,
            Entry::Node(node) => {
                let mut node = NodeEntry::clone(&node);
                node.settings.dataplane = Dataplane::Ipvs;
                return Entry::Node(node.into());
            }
            entry => return entry,
        };
        let mut head = portolan_plan::Head::clone(&head);
        for port in &mut head.ports {
            let protocol = port.protocol;
            let mut free = |f: &mut Frontend| taken.insert((f.address, f.port, protocol));
            port.frontends.retain(|frontend| free(frontend));
        }
        Entry::Head(head.into())
    };
    let entries = entries.into_iter().map(|(key, entry)| {
        let entry = unique(entry);
        (key, EntryHash::default(), entry)
    });
    let plan = NodePlan::from_entries(entries.collect::<Vec<_>>());
    Desired::new(&plan, &host()).unwrap()
}

/// A programmed node, and the virtual servers that Portolan owns there.
struct Node {
    kernel: ModelKernel,
    owned: Owned,
}

impl Node {
    fn programmed(desired: &Desired) -> Self {
        let mut kernel = ModelKernel::default();
        kernel.state.host = host();
        let mut node = Self {
            kernel,
            owned: Owned::default(),
        };
        let mut left = node.kernel.state.clone();
        node.write(&mut left, desired);
        node
    }

    /// Writes the operations that lead from the believed kernel state to the plan.
    fn write(&mut self, believed: &mut Observed, desired: &Desired) -> usize {
        self.owned.claim(desired);
        let mut written = 0;
        for (phase, ops) in diff(believed, desired, &self.owned) {
            for op in ops {
                let done = self.kernel.apply(&op);
                done.unwrap_or_else(|refusal| panic!("{phase:?}: {op}: {refusal}"));
                believed.note(&op);
                written += 1;
            }
        }
        written
    }

    fn drift(&self, left: &Observed, desired: &Desired) -> BTreeSet<Drifted> {
        drift(left, &self.kernel.state, &self.owned, desired)
    }
}

/// Checks that the state matches the plan, apart from draining real servers, which are removed when their connections
/// have ended; that is not modelled here.
fn agrees(state: &Observed, desired: &Desired) {
    for (key, wanted) in &desired.virtual_servers {
        let mut held = state.virtual_servers[key].clone();
        let stays =
            |(backend, weight): &(_, u32)| *weight > 0 || wanted.real_servers.contains_key(backend);
        held.real_servers = held.real_servers.iter().filter(stays).collect();
        assert_eq!(held, *wanted, "{key}");
    }
    for (key, held) in &state.virtual_servers {
        let rests = desired.resting.contains(key) && held.real_servers.iter().all(|(_, w)| w == 0);
        assert!(desired.virtual_servers.contains_key(key) || rests, "{key}");
    }
    assert_eq!(state.routes, desired.routes);
    for (id, set) in &desired.sets {
        assert_eq!(state.sets[id].entries, set.entries, "{id}");
    }
    for rules in &desired.rules {
        assert_eq!(state.rules[&rules.family], rules.expected());
    }
    assert!(desired.timeouts.are_met_by(&state.timeouts), "S-105");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// S-107, S-184: all drift that was found is corrected, and none is found if no other program changed anything.
    #[test]
    fn found_drift_is_corrected_and_then_no_drift_remains(
        entries in strategies::entries(),
        hands in hands(),
    ) {
        let desired = desired(entries);
        let mut node = Node::programmed(&desired);
        let left = node.kernel.state.clone();
        prop_assert!(node.drift(&left, &desired).is_empty());
        for (hand, at) in hands {
            hand.acts(&mut node.kernel.state, at);
        }
        let mut ledger = DriftLedger::default();
        let drifted = node.drift(&left, &desired);
        prop_assert_eq!(drifted.is_empty(), node.kernel.state == left);
        ledger.note(ObservedScope::Everything, &drifted, BTreeSet::new());
        let mut believed = node.kernel.state.clone();
        node.write(&mut believed, &desired);
        agrees(&node.kernel.state, &desired);
        ledger.settle(&believed, &desired);
        for (kind, count) in ledger.counts() {
            let found = drifted.iter().filter(|what| what.kind() == kind).count() as u64;
            prop_assert_eq!(count, DriftCount { found, repaired: found, unrepaired: 0 });
        }
        prop_assert!(node.drift(&believed, &desired).is_empty());
    }

    /// If drift is only reported, it alone causes no operation.
    #[test]
    fn drift_left_alone_causes_no_operation_and_remains(
        entries in strategies::entries(),
        hands in hands(),
    ) {
        let desired = desired(entries);
        let mut node = Node::programmed(&desired);
        let mut left = node.kernel.state.clone();
        for (hand, at) in hands {
            hand.acts(&mut node.kernel.state, at);
        }
        let mut ledger = DriftLedger::default();
        // Drift is counted once, however often it is observed.
        for _ in 0..3 {
            let drifted = node.drift(&left, &desired);
            let mut believed = node.kernel.state.clone();
            let alone = leave(&mut believed, &left, &drifted, &desired);
            prop_assert_eq!(&alone, &drifted);
            ledger.note(ObservedScope::Everything, &drifted, alone);
            let before = node.kernel.state.clone();
            let written = node.write(&mut believed, &desired);
            prop_assert_eq!((written, &node.kernel.state), (0, &before));
            left = believed;
            let count = drifted.len() as u64;
            let total = |of: fn(&DriftCount) -> u64| ledger.counts().values().map(of).sum::<u64>();
            prop_assert_eq!(
                (total(|c| c.found), total(|c| c.repaired), total(|c| c.unrepaired)),
                (count, 0, count),
            );
        }
    }

    /// Changes of the plan are still written, in operations that fit the kernel's real state, and state that was
    /// never reached is attempted.
    #[test]
    fn with_drift_left_alone_a_new_plan_is_written_and_never_refused(
        first in strategies::entries(),
        second in strategies::entries(),
        hands in hands(),
    ) {
        let (first, second) = (desired(first), desired(second));
        let mut node = Node::programmed(&first);
        let left = node.kernel.state.clone();
        for (hand, at) in hands {
            hand.acts(&mut node.kernel.state, at);
        }
        let drifted = node.drift(&left, &second);
        let mut believed = node.kernel.state.clone();
        let alone = leave(&mut believed, &left, &drifted, &second);
        node.write(&mut believed, &second);
        agrees(&believed, &second);
        // Drift that was not left alone is corrected in the kernel itself.
        let still = drift(&believed, &node.kernel.state, &node.owned, &second);
        prop_assert!(still.is_subset(&alone), "{:?} beside {:?}", still, alone);
    }
}

/// Each kind of drift is found and named, and nothing else.
#[test]
fn every_kind_of_drift_is_distinguished() {
    let desired = example();
    let cases: [(Hand, &[(DriftKind, usize)]); 12] = [
        (Hand::DeleteServer, &[(DriftKind::VirtualServer, 1)]),
        (Hand::EditServer, &[(DriftKind::VirtualServer, 1)]),
        (Hand::DeleteRealServer, &[(DriftKind::RealServer, 1)]),
        (Hand::AddRealServer, &[(DriftKind::RealServer, 1)]),
        (Hand::Weight, &[(DriftKind::Weight, 1)]),
        (Hand::FlushRules, &[(DriftKind::Rules, 46)]),
        (Hand::DeleteRoute, &[(DriftKind::Route, 1)]),
        (Hand::AddRoute, &[(DriftKind::Route, 1)]),
        (Hand::DeleteDevice, &[(DriftKind::Device, 1)]),
        (Hand::DeletePolicyRule, &[(DriftKind::PolicyRule, 1)]),
        (Hand::Setting, &[(DriftKind::KernelSetting, 1)]),
        (
            Hand::DestroySet,
            &[(DriftKind::Set, 1), (DriftKind::Rules, 46)],
        ),
    ];
    for (hand, wanted) in cases {
        let mut node = Node::programmed(&desired);
        let left = node.kernel.state.clone();
        let whole = (0..100).map(index).find(|at| {
            hand.acts(&mut node.kernel.state, *at);
            node.kernel.state != left
        });
        assert!(whole.is_some(), "{hand:?} changes nothing");
        let mut counts = std::collections::BTreeMap::new();
        for what in node.drift(&left, &desired) {
            *counts.entry(what.kind()).or_insert(0) += 1;
        }
        let counts: Vec<_> = counts.into_iter().collect();
        assert_eq!(counts, wanted, "{hand:?}");
    }
}

/// S-105: a change by another program to a timeout is drift only if the settings define the timeout.
#[test]
fn timeouts_that_settings_name_are_kernel_settings() {
    let mut desired = example();
    desired.timeouts.tcp = 7200;
    let mut node = Node::programmed(&desired);
    let left = node.kernel.state.clone();
    node.kernel.state.timeouts.udp = 17;
    assert_eq!(node.drift(&left, &desired), [].into());
    let by_hand = Timeouts {
        tcp: 5,
        ..Timeouts::default()
    };
    node.kernel.state.timeouts = by_hand;
    let drifted = node.drift(&left, &desired);
    assert_eq!(drifted, [Drifted::Timeouts].into());
    assert_eq!(in_words(&drifted), "1 kernel setting");
    let mut believed = node.kernel.state.clone();
    assert_eq!(node.write(&mut believed, &desired), 1);
    assert_eq!(node.kernel.state.timeouts.tcp, 7200);
}

/// Objects of other programs, and state that changes with the network or with time by design.
#[test]
fn changes_to_objects_of_other_programs_are_not_drift() {
    let desired = example();
    let mut node = Node::programmed(&desired);
    let foreign = "TCP 203.0.113.9:80".parse().unwrap();
    let any = node.kernel.state.virtual_servers.values().next().unwrap();
    let (any, mut other) = (any.clone(), any.clone());
    node.kernel.state.virtual_servers.insert(foreign, any);
    let left = node.kernel.state.clone();
    // The other program's virtual server changes, and is removed.
    other.scheduler = "wlc".into();
    node.kernel.state.virtual_servers.insert(foreign, other);
    assert_eq!(node.drift(&left, &desired), [].into(), "S-109");
    node.kernel.state.virtual_servers.remove(&foreign);
    // Connections are held and released.
    let set = SetId {
        role: SetRole::Hold,
        family: Family::Ipv4,
    };
    let entry = SetEntry::of("TCP 10.96.0.1:443".parse().unwrap());
    let hold = node.kernel.state.sets.get_mut(&set).unwrap();
    hold.entries.insert(entry);
    // Addresses change.
    node.kernel.state.host.addresses.clear();
    assert_eq!(node.drift(&left, &desired), [].into(), "S-37");
}

/// A draining real server is removed when its connections have ended. With a weight set by hand, it takes new
/// connections again.
#[test]
fn a_draining_real_server_is_not_drift_until_it_takes_connections_again() {
    let desired = example();
    let mut node = Node::programmed(&desired);
    let key = *desired.virtual_servers.keys().next().unwrap();
    let backend = portolan_reconcile::RealServerKey {
        address: IpAddr::from([10, 244, 9, 9]),
        port: 8080,
    };
    let weight = |node: &mut Node, weight: Option<u32>| {
        let held = node.kernel.state.virtual_servers.get_mut(&key).unwrap();
        match weight {
            Some(weight) => held.real_servers.insert(backend, weight),
            None => held.real_servers.remove(&backend),
        };
    };
    weight(&mut node, Some(0));
    let left = node.kernel.state.clone();
    weight(&mut node, None);
    assert_eq!(node.drift(&left, &desired), [].into(), "S-114");
    weight(&mut node, Some(1));
    let drifted = node.drift(&left, &desired);
    assert_eq!(drifted, [Drifted::Weight(key, backend)].into());
    assert_eq!(in_words(&drifted), "1 weight");
}

#[test]
fn words_and_rules_name_what_differs() {
    let desired = example();
    let mut node = Node::programmed(&desired);
    let left = node.kernel.state.clone();
    let state = &mut node.kernel.state;
    state
        .rules
        .insert(Family::Ipv6, ObservedRules::parse("*nat\nCOMMIT\n"));
    state.routes.clear();
    let key = *state.virtual_servers.keys().next().unwrap();
    state.virtual_servers.remove(&key);
    let drifted = node.drift(&left, &desired);
    let words = in_words(&drifted);
    assert_eq!(words, "1 virtual server, 23 chains or jumps, 4 routes");
    let jump = ("filter", "INPUT -j PORTOLAN-INPUT");
    let jump = Drifted::Rules(Family::Ipv6, jump.0.into(), jump.1.into());
    assert!(drifted.contains(&jump), "{drifted:?}");
}

/// S-159: a set of another type, created by another program before Portolan or in place of its set.
#[test]
fn a_set_of_another_type_is_recreated_before_rules_use_it() {
    let desired = example();
    let id = SetId {
        role: SetRole::Frontend,
        family: Family::Ipv4,
    };
    let mut node = Node::programmed(&desired);
    let left = node.kernel.state.clone();
    let other = portolan_reconcile::ObservedSet {
        kind: None,
        ..left.sets[&id].clone()
    };
    node.kernel.state.rules.clear();
    node.kernel.state.sets.insert(id, other);
    let drifted = node.drift(&left, &desired);
    assert!(drifted.contains(&Drifted::Set(id)), "{drifted:?}");
    let mut believed = node.kernel.state.clone();
    node.write(&mut believed, &desired);
    assert_eq!(node.kernel.state.sets, left.sets);
    assert_eq!(node.write(&mut believed, &desired), 0);
    // The kernel does not remove a set that rules use.
    node.kernel.state.sets.get_mut(&id).unwrap().kind = None;
    let replace = portolan_reconcile::SetOp::Replace {
        set: id,
        max_elements: 65_536,
        entries: Vec::new(),
    };
    let refused = node.kernel.apply(&replace.into());
    assert_eq!(refused, Err(portolan_reconcile::Refusal::InUse));
}

/// Drift whose repair the kernel refuses remains until a later pass corrects it.
#[test]
fn drift_that_could_not_be_corrected_remains() {
    let desired = example();
    let mut node = Node::programmed(&desired);
    let left = node.kernel.state.clone();
    let key = *desired.virtual_servers.keys().next().unwrap();
    node.kernel.state.virtual_servers.remove(&key);
    let mut ledger = DriftLedger::default();
    let drifted = node.drift(&left, &desired);
    let fresh = ledger.note(ObservedScope::Everything, &drifted, BTreeSet::new());
    assert_eq!(fresh, drifted);
    ledger.settle(&node.kernel.state, &desired);
    let count = |found, repaired, unrepaired| DriftCount {
        found,
        repaired,
        unrepaired,
    };
    assert_eq!(ledger.counts()[&DriftKind::VirtualServer], count(1, 0, 1));
    ledger.settle(&left, &desired);
    assert_eq!(ledger.counts()[&DriftKind::VirtualServer], count(1, 1, 0));
    assert!(!ledger.leaves_alone());
}
