//! Laws of reconciliation, against a model kernel that refuses the same operations as the real one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "laws/dataplane.rs"]
mod dataplane;
#[path = "laws/draining.rs"]
mod drains;
#[path = "laws/fallback.rs"]
mod fallback;
#[path = "laws/part.rs"]
mod part;
#[path = "laws/successive.rs"]
mod successive;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_plan::{
    Backend, BackendList, Dataplane, Entry, EntryHash, EntryKey, Family, Frontend, NodeEntry,
    NodePlan, Protocol, strategies,
};
use portolan_reconcile::{
    BackendOrder, Departures, Desired, HostAddress, HostNetwork, LEFTOVER_SETS, ModelKernel,
    Observed, Op, Owned, Phase, PolicyAction, RealServers, Route, SetEntry, SetId, SetRole,
    VirtualServer, VirtualServerKey, cleanup, diff, draining, ready,
};
use proptest::prelude::*;

/// A plan like those of the planner: no two Services share an address, port and protocol (S-14), and no backend has
/// weight 0. IPVS serves Services.
fn plan(entries: Vec<(EntryKey, Entry)>) -> NodePlan {
    let mut taken = BTreeSet::new();
    let mut unique = |entry| {
        let head = match entry {
            Entry::Head(head) => head,
            Entry::List(list) => return Entry::List(weighted(&list).into()),
            Entry::Node(node) => return Entry::Node(served_by(Dataplane::Ipvs, &node)),
            entry @ Entry::Local(_) => return entry,
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
    NodePlan::from_entries(entries.collect::<Vec<_>>())
}

fn served_by(dataplane: Dataplane, node: &NodeEntry) -> Arc<NodeEntry> {
    let mut node = node.clone();
    node.settings.dataplane = dataplane;
    node.into()
}

fn weighted(list: &BackendList) -> BackendList {
    let weighted = |backend: &Backend| Backend {
        weight: backend.weight.max(1),
        ..*backend
    };
    BackendList::new(list.as_slice().iter().map(weighted).collect())
}

fn host() -> HostNetwork {
    let address = HostAddress::on("eth0", "192.168.50.1/24".parse().unwrap());
    HostNetwork {
        addresses: vec![address],
        ..HostNetwork::default()
    }
}

fn desired(entries: Vec<(EntryKey, Entry)>) -> Desired {
    Desired::new(&plan(entries), &host()).unwrap()
}

/// A virtual server of another program.
fn foreign() -> (VirtualServerKey, VirtualServer) {
    let address = IpAddr::from([203, 0, 113, 9]);
    let key = VirtualServerKey {
        address,
        port: 80,
        protocol: Protocol::Tcp,
    };
    let server = VirtualServer {
        scheduler: "wlc".into(),
        flags: 0,
        timeout: 0,
        real_servers: RealServers::new(),
    };
    (key, server)
}

fn empty_kernel() -> ModelKernel {
    let mut kernel = ModelKernel::default();
    kernel.state.host = host();
    let (key, server) = foreign();
    kernel.state.virtual_servers.insert(key, server);
    kernel
}

/// One pass of the agent: claims virtual servers, and writes all phases.
fn pass(
    kernel: &mut ModelKernel,
    desired: &Desired,
    owned: &mut Owned,
    mut after: impl FnMut(&Observed),
) -> usize {
    owned.claim(desired);
    let mut written = write(kernel, desired, owned, &mut after);
    for op in drained(
        kernel,
        desired,
        owned,
        &Departures::default(),
        Duration::ZERO,
    ) {
        kernel
            .apply(&op)
            .unwrap_or_else(|refusal| panic!("drained: {op}: {refusal}"));
        written += 1;
        after(&kernel.state);
    }
    written
}

/// The operations that remove real servers that have drained.
fn drained(
    kernel: &ModelKernel,
    desired: &Desired,
    owned: &Owned,
    departures: &Departures,
    now: Duration,
) -> Vec<Op> {
    let draining = draining(&kernel.state, desired, owned);
    let servers: Vec<_> = draining.keys().copied().collect();
    let connections = kernel.connections(&servers);
    departures.finish(&draining, &connections, &kernel.state, now)
}

fn write(
    kernel: &mut ModelKernel,
    desired: &Desired,
    owned: &Owned,
    mut after: impl FnMut(&Observed),
) -> usize {
    let phases = diff(&kernel.state, desired, owned);
    let mut written = 0;
    for (phase, ops) in phases {
        for op in ops {
            kernel
                .apply(&op)
                .unwrap_or_else(|refusal| panic!("{phase:?}: {op}: {refusal}"));
            written += 1;
            after(&kernel.state);
        }
    }
    written
}

fn has_backends(state: &Observed, server: &VirtualServerKey) -> bool {
    state.virtual_servers.get(server).is_some_and(takes)
}

/// Whether any real server takes new connections.
fn takes(server: &VirtualServer) -> bool {
    server.real_servers.iter().any(|(_, weight)| weight != 0)
}

fn answers(state: &Observed, key: &VirtualServerKey) -> bool {
    let family = Family::of(key.address);
    let id = SetId {
        role: SetRole::Frontend,
        family,
    };
    let VirtualServerKey {
        address,
        port,
        protocol,
    } = *key;
    let entry = SetEntry::AddressPort {
        address,
        protocol,
        port,
    };
    state
        .sets
        .get(&id)
        .is_some_and(|set| set.entries.contains(&entry))
}

/// I-6: captured frontends have a virtual server with backends, and rejected ones are not served.
fn sound(state: &Observed) {
    for (id, set) in state
        .sets
        .iter()
        .filter(|(id, _)| id.role == SetRole::Frontend)
    {
        for entry in &set.entries {
            let SetEntry::AddressPort {
                address,
                protocol,
                port,
            } = *entry
            else {
                panic!("{entry} in {id}")
            };
            let key = VirtualServerKey {
                address,
                port,
                protocol,
            };
            assert!(
                state.virtual_servers.contains_key(&key),
                "{key} is let through"
            );
        }
    }
    for (key, server) in &state.virtual_servers {
        assert!(!answers(state, key) || takes(server), "{key} is empty");
    }
    for rule in &state.policy {
        // The other two rules bypass the table.
        if let PolicyAction::Lookup { table, .. } = rule.action {
            let family = rule.family;
            let delivers = state.routes.contains(&Route::Deliver { family, table });
            assert!(delivers, "{rule} leads nowhere");
        }
    }
}

/// Whether packets to a frontend are marked and routed, and find a virtual server with real servers.
fn is_captured(state: &Observed, desired: &Desired, key: &VirtualServerKey) -> bool {
    let family = Family::of(key.address);
    let of_family = |rules: &&portolan_reconcile::rules::Rules| rules.family == family;
    let rules = desired.rules.iter().find(of_family);
    let has_rules = rules.is_none_or(|rules| state.rules.get(&family) == Some(&rules.expected()));
    answers(state, key)
        && has_backends(state, key)
        && has_rules
        && desired.routes.is_subset(&state.routes)
        && desired.policy.is_subset(&state.policy)
}

/// Whether clients that must not reach a served frontend are kept out (S-22, S-86).
fn is_guarded(state: &Observed, desired: &Desired) -> bool {
    let has = |state: &Observed, id: SetId, entry| {
        let set = state.sets.get(&id);
        set.is_some_and(|set| set.entries.contains(entry))
    };
    let guards = desired
        .sets
        .iter()
        .filter(|(id, _)| id.role == SetRole::Guarded || id.role == SetRole::NoLocal);
    guards.into_iter().all(|(id, wanted)| {
        let frontend = SetId {
            role: SetRole::Frontend,
            family: id.family,
        };
        wanted
            .entries
            .iter()
            .all(|entry| has(state, *id, entry) || !has(state, frontend, entry))
    })
}

fn agrees(state: &Observed, desired: &Desired) {
    let (key, server) = foreign();
    let mut servers = desired.virtual_servers.clone();
    servers.insert(key, server);
    assert_eq!(
        state.virtual_servers, servers,
        "objects of other programs are not changed (S-109)"
    );
    assert_eq!(state.routes, desired.routes);
    assert_eq!(state.policy, desired.policy);
    for (id, set) in &desired.sets {
        assert_eq!(state.sets[id].entries, set.entries, "{id}");
    }
    let idle = |family| desired.idle.contains(&family) && !state.rules.contains_key(&family);
    for rules in desired.rules.iter().filter(|rules| !idle(rules.family)) {
        assert_eq!(state.rules[&rules.family], rules.expected());
    }
    assert!(desired.timeouts.are_met_by(&state.timeouts), "S-105");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// I-5, I-4: also, nothing is written if nothing differs.
    #[test]
    fn from_any_state_to_any_other_nothing_is_refused_and_a_second_pass_is_empty(
        (first, second) in successive::plans(),
    ) {
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &first, &mut owned, |_| {});
        agrees(&kernel.state, &first);
        pass(&mut kernel, &second, &mut owned, |_| {});
        agrees(&kernel.state, &second);
        prop_assert_eq!(pass(&mut kernel, &second, &mut owned, |_| {}), 0);
    }

    /// I-5.
    #[test]
    fn an_interrupted_pass_is_finished_by_the_next(
        (first, second) in successive::plans(),
        done in any::<prop::sample::Index>(),
    ) {
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &first, &mut owned, |_| {});
        owned.claim(&second);
        let ops: Vec<Op> =
            diff(&kernel.state, &second, &owned).into_iter().flat_map(|(_, ops)| ops).collect();
        let done = &ops[..done.index(ops.len() + 1)];
        let mut together = kernel.state.clone();
        together.note_all(done, &second);
        for op in done {
            kernel.apply(op).unwrap();
        }
        prop_assert_eq!(&together, &kernel.state, "noting all at once equals noting one by one");
        for (key, wanted) in &second.virtual_servers {
            let changed = |op: &Op| matches!(op, Op::Ipvs(op) if op.server() == Some(key));
            let held = together.virtual_servers.get(key).map(|held| &held.real_servers);
            if let Some(held) = held.filter(|held| done.iter().any(changed) && **held == wanted.real_servers) {
                prop_assert!(held.is_shared_with(&wanted.real_servers), "{key} does not share its memory");
            }
        }
        pass(&mut kernel, &second, &mut owned, |_| {});
        agrees(&kernel.state, &second);
    }

    /// I-6, S-186: new backends are added before old ones are deleted.
    #[test]
    fn a_virtual_server_with_endpoints_before_and_after_is_never_empty_in_between(
        (first, second) in successive::plans(),
    ) {
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &first, &mut owned, |_| {});
        let served: Vec<_> = second
            .virtual_servers
            .iter()
            .filter(|(key, server)| takes(server) && has_backends(&kernel.state, key))
            .map(|(key, _)| *key)
            .collect();
        pass(&mut kernel, &second, &mut owned, |state| {
            for server in &served {
                assert!(has_backends(state, server), "{server} has no real server");
            }
        });
    }

    /// I-6: a packet for a frontend must find its virtual server, with its backends, from the moment the rules
    /// capture it. Policy rules must have a route from the moment they exist.
    #[test]
    fn virtual_servers_exist_for_as_long_as_they_are_let_through(
        (first, second) in successive::plans(),
    ) {
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &first, &mut owned, sound);
        pass(&mut kernel, &second, &mut owned, sound);
    }

    /// S-249: when the first other Service is written, packets to boot-critical frontends are marked and routed to their
    /// virtual servers.
    #[test]
    fn boot_critical_services_are_captured_before_the_others_are_written(
        entries in strategies::entries(),
    ) {
        let desired = desired(entries);
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        let before = kernel.state.virtual_servers.clone();
        let mut of_others = 0;
        pass(&mut kernel, &desired, &mut owned, |state| {
            let is_other = |key: &&VirtualServerKey| {
                !before.contains_key(*key) && !desired.boot_critical.contains(*key)
            };
            if !state.virtual_servers.keys().any(|key| is_other(&key)) {
                return;
            }
            of_others += 1;
            for key in &desired.boot_critical {
                let wanted = desired.virtual_servers.get(key).filter(|server| takes(server));
                assert!(wanted.is_none() || is_captured(state, &desired, key), "{key}");
            }
        });
        prop_assert!(of_others > 0 || desired.virtual_servers.keys().all(|key| desired.boot_critical.contains(key)));
    }

    /// I-6, even if the kernel refuses arbitrary operations: operations that depend on them are held back.
    #[test]
    fn failed_operations_expose_nothing_and_remove_nothing(
        (first, second) in successive::plans(),
        refused in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        let mut refused = refused.iter().cycle();
        for desired in [&first, &second] {
            owned.claim(desired);
            for (_, ops) in diff(&kernel.state, desired, &owned) {
                for op in ready(ops, &kernel.state, desired).0 {
                    if refused.next() == Some(&false) {
                        // Operations of the same phase that depend on a refused one are refused by the kernel.
                        let _refused = kernel.apply(&op);
                    }
                    sound(&kernel.state);
                    // In later phases, a frontend may already accept connections when its guard is added.
                    prop_assert!(std::ptr::eq(desired, &second) || is_guarded(&kernel.state, desired));
                }
            }
        }
        pass(&mut kernel, &second, &mut owned, sound);
        agrees(&kernel.state, &second);
    }

    /// I-7.
    #[test]
    fn cleanup_leaves_only_what_was_there_before(entries in strategies::entries()) {
        let desired = desired(entries);
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &desired, &mut owned, |_| {});
        kernel.state.leftover_sets = LEFTOVER_SETS.into();
        for op in cleanup(&kernel.state, &owned, &desired.device).into_iter().flatten() {
            kernel.apply(&op).unwrap_or_else(|refusal| panic!("{op}: {refusal}"));
        }
        let (key, server) = foreign();
        prop_assert_eq!(&kernel.state.virtual_servers, &[(key, server)].into());
        prop_assert!(kernel.state.sets.is_empty() && kernel.state.routes.is_empty());
        prop_assert!(kernel.state.leftover_sets.is_empty() && kernel.state.policy.is_empty());
        prop_assert!(kernel.state.rules.values().all(portolan_reconcile::rules::ObservedRules::is_empty));
        prop_assert!(cleanup(&kernel.state, &owned, &desired.device).is_empty(), "S-196");
    }

    /// S-103: not all nodes start at the same pod, and an additional pod does not move the others.
    #[test]
    fn a_new_backend_moves_no_other(entries in strategies::entries()) {
        let desired = desired(entries);
        for (server, held) in &desired.virtual_servers {
            let order = BackendOrder::of(&desired.node, server);
            let mut ranked: Vec<_> =
                held.real_servers.keys().map(|b| (b.rank(order), b)).collect();
            ranked.sort_unstable();
            let Some((_, first)) = ranked.pop() else { continue };
            let mut fewer: Vec<_> = held.real_servers.keys().filter(|b| *b != first).collect();
            fewer.sort_by_key(|b| b.rank(order));
            prop_assert_eq!(fewer, ranked.iter().map(|(_, b)| *b).collect::<Vec<_>>());
        }
    }
}

#[test]
fn phases_come_in_the_order_of_the_packet_path() {
    let document: portolan_plan::PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let desired = Desired::new(&document.into_plan().unwrap(), &host()).unwrap();
    let mut state = empty_kernel().state;
    let names = |state: &Observed| -> Vec<_> {
        let phases = diff(state, &desired, &Owned::default());
        phases.into_iter().map(|(phase, _)| phase).collect()
    };
    let before = [Phase::Prepare, Phase::CreateSets, Phase::AddGuards];
    let after = [Phase::AddServers, Phase::AddFrontends, Phase::AddRejects];
    let cold = [
        Phase::AddUnroutedServers,
        Phase::LoadRules,
        Phase::AddBootCriticalFrontends,
        Phase::AddFirstRoutes,
        Phase::AddFirstPolicyRules,
    ];
    let cold = [&before[..], &cold, &after].concat();
    assert_eq!(names(&state), cold, "nothing is routed to cluster IPs yet");
    let first = *desired.policy.first().unwrap();
    state.policy.insert(first);
    let servers = [
        Phase::LoadRules,
        Phase::AddBootCriticalServers,
        Phase::AddBootCriticalFrontends,
    ];
    let last = [Phase::AddRoutes, Phase::AddPolicyRules];
    let again = [&before[..], &servers, &after, &last].concat();
    assert_eq!(names(&state), again, "something may be routed there");
}

/// The remains of Portolan's first version are removed from a node, and no operation is refused because of them.
#[test]
fn remains_of_the_first_version_are_removed() {
    let document: portolan_plan::PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let desired = Desired::new(&document.into_plan().unwrap(), &host()).unwrap();
    let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
    kernel.state.device_up = true;
    let to = "10.96.0.0/12".parse().unwrap();
    kernel.state.routes.insert(Route::Local { to });
    kernel.state.leftover_sets = LEFTOVER_SETS.into();
    pass(&mut kernel, &desired, &mut owned, |_| {});
    agrees(&kernel.state, &desired);
    assert!(kernel.state.leftover_sets.is_empty());
}
