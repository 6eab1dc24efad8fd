//! A pass over the changed part writes the same as a pass over everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{
    Backend, BackendList, Entry, EntryKey, Family, Frontend, FrontendKind, Head, HeadPort, ListKey,
    ListUse, NodeEntry, NodePlan, Protocol, Scope as ListScope, ServiceId, strategies,
};
use portolan_reconcile::{
    Desired, HostAddress, HostNetwork, ModelKernel, Observed, Op, Owned, Phase, Scope, SetEntry,
    SetId, SetRole, Shared, diff, draining, leaves_stale_flows,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use smallvec::smallvec;

use super::drains::connect;
use super::{empty_kernel, host, pass, plan};

type Entries = Vec<(EntryKey, Entry)>;

/// A second plan with some Services of the first plan and some of another.
fn mixed(first: &Entries, other: Entries, takes: &[bool]) -> Entries {
    let mut choices = BTreeMap::new();
    let mut takes = takes.iter().cycle();
    let services = first.iter().chain(&other);
    for service in services.filter_map(|(key, _)| key.service()) {
        let fresh = || takes.next() == Some(&true);
        choices.entry(service.clone()).or_insert_with(fresh);
    }
    let is_new = |key: &EntryKey| key.service().is_some_and(|service| choices[service]);
    let kept = first.iter().filter(|(key, _)| !is_new(key)).cloned();
    kept.chain(other.into_iter().filter(|(key, _)| is_new(key)))
        .collect()
}

/// The Services whose entries differ between the plans.
fn touched(first: &NodePlan, second: &NodePlan) -> BTreeSet<ServiceId> {
    let (a, b): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (first.entries().collect(), second.entries().collect());
    let keys = a.keys().chain(b.keys());
    let differ = keys.filter(|key| a.get(*key) != b.get(*key));
    differ.filter_map(|key| key.service()).cloned().collect()
}

/// A host that may also have one of the Services' addresses.
fn hosts() -> impl Strategy<Value = HostNetwork> {
    let external = HostAddress::on("eth1", "198.51.100.1/32".parse().unwrap());
    let mut both = host();
    both.addresses.push(external);
    prop_oneof![4 => Just(host()), 1 => Just(both)]
}

fn sets(phases: Vec<(Phase, Vec<Op>)>) -> BTreeMap<Phase, BTreeSet<String>> {
    let text = |op: Op| format!("{op:?}");
    let phase = |(phase, ops): (Phase, Vec<Op>)| (phase, ops.into_iter().map(text).collect());
    phases.into_iter().map(phase).collect()
}

/// The kernel in force, and its plan.
struct InForce {
    kernel: ModelKernel,
    owned: Owned,
    plan: NodePlan,
    desired: Desired,
}

fn in_force(entries: [Entries; 2], host: &HostNetwork, busy: &[bool]) -> InForce {
    let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
    kernel.state.host = host.clone();
    let [first, second] = entries.map(plan);
    let before = Desired::new(&first, host).unwrap();
    pass(&mut kernel, &before, &mut owned, |_| {});
    connect(&mut kernel, busy);
    let desired = Desired::new(&second, host).unwrap();
    pass(&mut kernel, &desired, &mut owned, |_| {});
    owned.release(&kernel.state, &desired, &Scope::Everything);
    InForce {
        kernel,
        owned,
        plan: second,
        desired,
    }
}

fn of_scope<T: Clone>(
    all: BTreeMap<portolan_reconcile::VirtualServerKey, T>,
    scope: &Scope,
) -> BTreeMap<portolan_reconcile::VirtualServerKey, T> {
    all.into_iter()
        .filter(|(server, _)| scope.contains(server))
        .collect()
}

/// Applies the second plan as a part, and compares the result with a pass over everything. Returns false if the part
/// is not enough to decide.
fn follow(at: InForce, second: &NodePlan, host: &HostNetwork) -> Result<bool, TestCaseError> {
    let InForce {
        mut kernel,
        mut owned,
        plan: first,
        desired,
    } = at;
    let services = touched(&first, second);
    let whole = Desired::new(second, host).unwrap();
    let before = Desired::new(&first.part(&services), host).unwrap();
    let after = Desired::new(&second.part(&services), host).unwrap();
    let mut shared = Shared::of(&desired);
    let mut shadow = kernel.state.clone();
    let Some(part) = shared.narrow(&mut shadow, &before, after) else {
        prop_assert_eq!(shadow, kernel.state, "nothing was taken out");
        return Ok(false);
    };
    prop_assert_eq!(&shared, &Shared::of(&whole));
    owned.claim(&part.desired);
    let mut all = owned.clone();
    prop_assert!(!all.claim(&whole), "the part claims all that is new");
    let phases = diff(&part.observed, &part.desired, &owned);
    let full = diff(&kernel.state, &whole, &owned);
    prop_assert_eq!(sets(phases.clone()), sets(full));
    let mut observed = part.observed;
    for op in phases.iter().flat_map(|(_, ops)| ops) {
        kernel.apply(op).unwrap();
        observed.note(op);
        prop_assert_eq!(
            leaves_stale_flows(op, &part.desired),
            leaves_stale_flows(op, &whole)
        );
    }
    prop_assert_eq!(
        of_scope(draining(&observed, &part.desired, &owned), &part.scope),
        of_scope(draining(&kernel.state, &whole, &owned), &part.scope)
    );
    owned.release(&observed, &part.desired, &part.scope);
    all.release(&kernel.state, &whole, &Scope::Everything);
    prop_assert_eq!(owned, all);
    shadow.join(observed);
    let known = |state: &Observed| Observed {
        // Schedulers in use are known without being listed here.
        loaded_schedulers: BTreeSet::new(),
        ..state.clone()
    };
    prop_assert_eq!(known(&shadow), known(&kernel.state));
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn following_a_difference_is_following_the_plan(
        entries in prop::array::uniform3(strategies::entries()),
        host in hosts(),
        takes in prop::collection::vec(any::<bool>(), 1..8),
        busy in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let [zeroth, first, other] = entries;
        let second = plan(mixed(&first, other, &takes));
        follow(in_force([zeroth, first], &host, &busy), &second, &host)?;
    }
}

/// Ensures that the law above is meaningful: typical changes can be applied as a part, and only addresses of the node
/// that Services also use may prevent it.
#[test]
fn most_differences_can_be_applied_as_a_part() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut narrowed, cases) = (0, 200);
    let strategy = (
        prop::array::uniform3(strategies::entries()),
        prop::collection::vec(any::<bool>(), 1..8),
    );
    for _ in 0..cases {
        let ([zeroth, first, other], takes) = strategy.new_tree(&mut runner).unwrap().current();
        let second = plan(mixed(&first, other, &takes));
        let at = in_force([zeroth, first], &host(), &[false]);
        narrowed += usize::from(follow(at, &second, &host()).unwrap());
    }
    assert!(narrowed * 10 >= cases * 8, "only {narrowed} of {cases}");
}

/// A Service with this frontend and one endpoint.
fn service(name: &str, kind: FrontendKind, address: Option<&str>, port: u16) -> Entries {
    let service = ServiceId::new("default", name);
    let frontend = |kind, address: Option<&str>, port| Frontend {
        kind,
        address: address.map(|address| address.parse().unwrap()),
        port,
    };
    // Node ports exist only in the families of cluster IPs.
    let own = format!("10.96.0.{}", name.len());
    let cluster_ip = frontend(FrontendKind::ClusterIp, Some(own.as_str()), 80);
    let head = Head {
        ports: smallvec![HeadPort {
            frontends: smallvec![cluster_ip, frontend(kind, address, port)],
            external: Some(ListUse::default()),
            ..HeadPort::default()
        }],
        ..Head::default()
    };
    let key = ListKey {
        service: service.clone(),
        port: Arc::default(),
        family: Family::Ipv4,
        scope: ListScope::Cluster,
    };
    let backend = Backend {
        address: [10, 244, 1, 7].into(),
        port: 8080,
        weight: 1,
    };
    let list = BackendList::new(vec![backend]);
    vec![
        (EntryKey::Head(service), Entry::Head(head.into())),
        (EntryKey::List(key), Entry::List(list.into())),
    ]
}

fn node() -> Entries {
    let node = NodeEntry {
        name: strategies::NODE.into(),
        addresses: vec![[192, 168, 50, 1].into()],
        ..NodeEntry::default()
    };
    vec![(EntryKey::Node, Entry::Node(node.into()))]
}

/// Whether the change from the first Services to the second can be applied as a part.
fn is_narrowed(first: &[&Entries], second: &[&Entries], change: impl Fn(&mut InForce)) -> bool {
    let all = |services: &[&Entries]| -> Entries {
        let services = services.iter().flat_map(|entries| entries.iter().cloned());
        node().into_iter().chain(services).collect()
    };
    let mut at = in_force([all(first), all(first)], &host(), &[false]);
    change(&mut at);
    follow(at, &plan(all(second)), &host()).unwrap()
}

/// An external address may be one of the node's addresses that the planner does not know.
#[test]
fn a_frontend_claimed_by_two_services_needs_a_full_pass() {
    let ports = service("ports", FrontendKind::NodePort, None, 30080);
    let named = |port| {
        service(
            "by-name",
            FrontendKind::ExternalIp,
            Some("192.168.50.1"),
            port,
        )
    };
    let (same, other) = (named(30080), named(30081));
    let nothing = |_: &mut InForce| {};
    assert!(is_narrowed(&[&ports], &[&ports, &other], nothing));
    assert!(is_narrowed(&[&ports, &other], &[&ports], nothing));
    assert!(
        !is_narrowed(&[&ports], &[&ports, &same], nothing),
        "the collision appears"
    );
    assert!(
        !is_narrowed(&[&ports, &same], &[&ports], nothing),
        "the collision disappears"
    );
}

/// An entry that exists although no Service was known to need it belongs to another program.
#[test]
fn unexpected_entries_and_full_sets_need_a_full_pass() {
    let (one, two) = (
        service("one", FrontendKind::ExternalIp, Some("198.51.100.1"), 80),
        service("second", FrontendKind::ExternalIp, Some("198.51.100.2"), 80),
    );
    let entry = SetEntry::AddressPort {
        address: [198, 51, 100, 2].into(),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let masq = SetId {
        role: SetRole::Masq,
        family: Family::Ipv4,
    };
    let foreign = |at: &mut InForce| {
        let set = at.kernel.state.sets.get_mut(&masq).unwrap();
        set.entries.insert(entry);
    };
    assert!(is_narrowed(&[&one], &[&one, &two], |_| {}));
    assert!(!is_narrowed(&[&one], &[&one, &two], foreign));
    let full = |at: &mut InForce| {
        let set = at.kernel.state.sets.get_mut(&masq).unwrap();
        set.max_elements = u32::try_from(set.entries.len()).unwrap();
    };
    assert!(
        !is_narrowed(&[&one], &[&one, &two], full),
        "the set must grow"
    );
    assert!(is_narrowed(&[&one, &two], &[&one], full));
}
