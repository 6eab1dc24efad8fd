//! Laws of the tables, against a model of nf_tables as strict as the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nft_rs::Element;
use portolan_plan::{
    Backend, BackendList, Entry, EntryHash, EntryKey, Family, NodeEntry, NodePlan, ServiceId,
    strategies,
};
use proptest::prelude::*;

use super::element::TableElement;
use super::model::Kernel;
use super::*;
use crate::facts::Facts;
use crate::{HostAddress, HostNetwork, RealServerKey, VirtualServerKey};

type Entries = Vec<(EntryKey, Entry)>;

fn host() -> HostNetwork {
    let on = |text: &str| HostAddress::on("eth0", text.parse().unwrap());
    HostNetwork {
        addresses: vec![on("192.168.50.1/24"), on("fd00:50::1/64")],
        ..HostNetwork::default()
    }
}

fn plan(entries: Entries) -> NodePlan {
    let entries = entries.into_iter();
    let entries = entries.map(|(key, entry)| (key, EntryHash::default(), entry));
    NodePlan::from_entries(entries.collect::<Vec<_>>())
}

fn facts(plan: &NodePlan) -> Facts {
    Facts::new(plan, &host()).unwrap()
}

fn tables(entries: Entries) -> Tables {
    Tables::of(&facts(&plan(entries)))
}

/// Commits what leads to these tables, and checks that it does.
fn commit(kernel: &mut Kernel, shadow: &mut ObservedTables, tables: &Tables) {
    let transaction = tables.diff(shadow);
    kernel.execute(&transaction, tables);
    shadow.note(transaction.operations(), tables);
    agrees(kernel, shadow, tables);
}

fn agrees(kernel: &Kernel, shadow: &ObservedTables, tables: &Tables) {
    let found = kernel.read();
    assert_eq!(in_words(&drift(shadow, &found)), "");
    assert_eq!(found, *shadow);
    assert!(tables.diff(&found).is_empty());
    let right = |observed: &ObservedTables| TablesDocument::new(observed, Some(tables));
    assert_eq!(right(&found), right(&tables.applied()));
    for (key, wanted) in tables.families.values().flat_map(|table| &table.frontends) {
        let slots = found
            .frontend(key)
            .map(|held| held.slots.clone())
            .unwrap_or_default();
        assert_eq!(slots.is_empty(), !wanted.is_served(), "{key}");
        let count = u32::try_from(slots.len()).unwrap();
        assert!(slots.keys().copied().eq(0..count), "slots have no gaps");
    }
}

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
fn changed(first: &NodePlan, second: &NodePlan) -> BTreeSet<ServiceId> {
    let (a, b): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (first.entries().collect(), second.entries().collect());
    let keys = a.keys().chain(b.keys());
    let differ = keys.filter(|key| a.get(*key) != b.get(*key));
    differ.filter_map(|key| key.service()).cloned().collect()
}

/// An element that Portolan never writes: a backend in a frontend or slot that does not exist, or a frontend of
/// another program.
fn foreign() -> impl Strategy<Value = TableElement> {
    let frontend = (
        strategies::cluster_ip(Family::Ipv4),
        strategies::port(),
        strategies::protocol(),
    );
    let frontend = frontend.prop_map(|(address, port, protocol)| VirtualServerKey {
        address,
        port,
        protocol,
    });
    let slot = (frontend, 0u32..5000, 1u8..200).prop_map(|(frontend, slot, last)| {
        let backend = RealServerKey {
            address: [10, 9, 9, last].into(),
            port: 80,
        };
        TableElement::Slot {
            frontend,
            slot,
            backend,
        }
    });
    let odd = any::<[u8; 3]>().prop_map(|bytes| {
        let key = nft_rs::Key::new().ipv4([10, 9, 9, 9].into());
        let key = key.protocol(200).port(u16::from(bytes[0]));
        TableElement::Foreign {
            family: Family::Ipv4,
            set: SetName::Refuse,
            element: Arc::new(Element::new(key)),
        }
    });
    prop_oneof![3 => slot, 1 => odd]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// From nothing, and from any other plan, one transaction leads to the tables of a plan; then nothing is left to
    /// do, and what is read is what was noted.
    #[test]
    fn one_transaction_leads_to_the_wanted_tables(
        first in strategies::entries(),
        second in strategies::entries(),
    ) {
        let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
        for entries in [first, second] {
            commit(&mut kernel, &mut shadow, &tables(entries));
        }
    }

    /// A large transaction can be committed in parts, each of which the kernel accepts.
    #[test]
    fn parts_of_a_transaction_lead_to_the_same_tables(
        first in strategies::entries(),
        second in strategies::entries(),
        most in 1usize..30,
    ) {
        let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
        for entries in [first, second] {
            let tables = tables(entries);
            for part in tables.diff(&shadow).split(most) {
                kernel.execute(&part, &tables);
                shadow.note(part.operations(), &tables);
                prop_assert_eq!(&kernel.read(), &shadow);
            }
            agrees(&kernel, &shadow, &tables);
        }
    }

    /// Pieces are computed before earlier ones are noted, as they are while the kernel executes these.
    #[test]
    fn pieces_computed_ahead_lead_to_the_same_tables(
        first in strategies::entries(),
        second in strategies::entries(),
        most in 1usize..30,
        ahead in 0usize..4,
    ) {
        let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
        for entries in [first, second] {
            let tables = tables(entries);
            let mut waiting = std::collections::VecDeque::new();
            for family in Family::BOTH {
                let mut cursor = DiffCursor::new(family);
                while let Some(piece) = tables.next_piece(&shadow, &mut cursor, most) {
                    kernel.execute(&piece, &tables);
                    waiting.push_back(piece);
                    if waiting.len() > ahead {
                        let noted = waiting.pop_front().unwrap_or_default();
                        shadow.note(noted.operations(), &tables);
                    }
                }
            }
            for noted in waiting {
                shadow.note(noted.operations(), &tables);
            }
            agrees(&kernel, &shadow, &tables);
        }
    }

    /// A change of some Services alone leads to the same tables as all of them.
    #[test]
    fn a_changed_part_leads_to_the_same_tables(
        first in strategies::entries(),
        other in strategies::entries(),
        takes in prop::collection::vec(any::<bool>(), 1..6),
    ) {
        let second = mixed(&first, other, &takes);
        let (before, after) = (plan(first), plan(second));
        let services = changed(&before, &after);
        let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
        let mut tables = Tables::of(&facts(&before));
        commit(&mut kernel, &mut shadow, &tables);
        let unchanged = tables.clone();
        let part = |plan: &NodePlan| facts(&plan.part(&services));
        match tables.replace(&part(&before), &part(&after)) {
            None => prop_assert_eq!(tables, unchanged),
            Some(touched) => {
                let whole = Tables::of(&facts(&after));
                prop_assert_eq!(&tables.families, &whole.families);
                prop_assert_eq!(&tables.fallbacks, &whole.fallbacks);
                let transaction = tables.diff_of(&shadow, &touched);
                let full = tables.diff(&shadow);
                prop_assert_eq!(transaction.len(), full.len());
                prop_assert_eq!(&transaction.purges, &full.purges);
                kernel.execute(&transaction, &tables);
                shadow.note(transaction.operations(), &tables);
                agrees(&kernel, &shadow, &tables);
            }
        }
    }

    /// What other programs change is found in words, and repaired.
    #[test]
    fn changes_by_others_are_found_and_repaired(
        entries in strategies::entries(),
        foreign in prop::collection::vec(foreign(), 0..4),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        loses_rule in any::<bool>(),
    ) {
        let tables = tables(entries);
        let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
        commit(&mut kernel, &mut shadow, &tables);
        let mut changes = BTreeSet::new();
        for index in lost {
            let found = kernel.read();
            let all: Vec<_> = found.tables.iter().flat_map(|(f, table)| table.elements(*f)).collect();
            if let Some(element) = all.get(index.index(all.len().max(1))) {
                kernel.lose(element);
                changes.insert(element.to_string());
            }
        }
        for element in foreign {
            let there = kernel.read();
            let there = there.tables[&Family::Ipv4].elements(Family::Ipv4);
            let key = |one: &TableElement| (one.set(), one.encode()[0].key.clone());
            if changes.insert(element.to_string()) && there.map(|one| key(&one)).all(|k| k != key(&element)) {
                kernel.hold(&element);
            } else {
                changes.remove(&element.to_string());
            }
        }
        if loses_rule {
            kernel.lose_rule(Family::Ipv4);
            changes.insert("a rule".to_owned());
        }
        let mut found = kernel.read();
        prop_assert_eq!(drift(&shadow, &found).is_empty(), found == shadow);
        let transaction = tables.diff(&found);
        kernel.execute(&transaction, &tables);
        found.note(transaction.operations(), &tables);
        agrees(&kernel, &found, &tables);
    }

    /// One endpoint that joins or leaves, or is replaced, costs at most six operations for each frontend, whatever the
    /// number of endpoints.
    #[test]
    fn one_endpoint_costs_few_operations(count in 0u8..40, gone in any::<prop::sample::Index>()) {
        let before: Vec<u8> = (0..count).collect();
        let mut after = before.clone();
        if !after.is_empty() {
            after.remove(gone.index(before.len()));
        }
        let mut replaced = after.clone();
        replaced.push(200);
        let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
        commit(&mut kernel, &mut shadow, &tables(one_service(&before)));
        for list in [&after, &replaced, &before, &replaced] {
            let tables = tables(one_service(list));
            let transaction = tables.diff(&shadow);
            let served = !before.is_empty() && !after.is_empty();
            prop_assert!(!served || transaction.len() <= 6, "{:?}", transaction);
            commit(&mut kernel, &mut shadow, &tables);
        }
    }
}

/// A plan with one Service at one cluster IP, and these endpoints.
fn one_service(endpoints: &[u8]) -> Entries {
    use portolan_plan::{Frontend, FrontendKind, Head, HeadPort, ListKey, Scope};
    let service = ServiceId::new("shop", "web");
    let frontend = Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some([10, 96, 0, 20].into()),
        port: 80,
    };
    let head = Head {
        ports: [HeadPort {
            frontends: [frontend].into_iter().collect(),
            ..HeadPort::default()
        }]
        .into_iter()
        .collect(),
        ..Head::default()
    };
    let backend = |last: &u8| Backend {
        address: [10, 244, 1, *last].into(),
        port: 8080,
        weight: 1,
    };
    let list: BackendList = endpoints.iter().map(backend).collect();
    let key = ListKey {
        service: service.clone(),
        port: "".into(),
        scope: Scope::Cluster,
        family: Family::Ipv4,
    };
    vec![
        (EntryKey::Node, Entry::Node(Arc::new(NodeEntry::default()))),
        (EntryKey::Head(service), Entry::Head(Arc::new(head))),
        (EntryKey::List(key), Entry::List(Arc::new(list))),
    ]
}

#[test]
fn a_backend_that_leaves_a_sticky_frontend_is_purged() {
    let sticky = |endpoints: &[u8]| {
        let mut entries = one_service(endpoints);
        if let (_, Entry::Head(head)) = &mut entries[1] {
            Arc::make_mut(head).ports[0].affinity_seconds = Some(10_800);
        }
        tables(entries)
    };
    let mut shadow = sticky(&[1, 2]).applied();
    let joins = sticky(&[1, 2, 3]);
    let transaction = joins.diff(&shadow);
    assert_eq!(transaction.purges, [].into());
    shadow.note(transaction.operations(), &joins);
    let leaves = sticky(&[1, 3]);
    assert_eq!(leaves.diff(&shadow).purges, [Family::Ipv4].into());
    let element = |last: u8, port| {
        let key = nft_rs::Key::new().ipv4([10, 96, 0, 20].into()).protocol(6);
        let key = key.port(port).ipv4([192, 168, 50, 9].into());
        let data = nft_rs::Key::new()
            .ipv4([10, 244, 1, last].into())
            .port(8080);
        Element::with_data(key, data)
    };
    let all = [element(1, 80), element(2, 80), element(3, 81)];
    let stale = leaves.stale_affinity(Family::Ipv4, &all);
    let keys: Vec<_> = stale.iter().map(|element| element.key.clone()).collect();
    assert_eq!(keys, [all[1].key.clone(), all[2].key.clone()]);
    // Without affinity, nothing in the map is right.
    let without = tables(one_service(&[1, 3]));
    assert_eq!(without.diff(&shadow).purges, [Family::Ipv4].into());
    assert_eq!(without.stale_affinity(Family::Ipv4, &all).len(), 3);
}

/// The same Service with one endpoint and frontends at this number of ports, which are sticky for this number of seconds.
fn many_frontends(count: u16, affinity_seconds: Option<u32>) -> Entries {
    use portolan_plan::{Frontend, FrontendKind};
    let mut entries = one_service(&[1]);
    if let (_, Entry::Head(head)) = &mut entries[1] {
        let port = &mut Arc::make_mut(head).ports[0];
        port.affinity_seconds = affinity_seconds;
        let frontends = (1..=count).map(|port| Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some([10, 96, 0, 20].into()),
            port,
        });
        port.frontends = frontends.collect();
    }
    entries
}

#[test]
fn a_table_that_outgrows_its_sets_is_rebuilt_and_never_shrunk() {
    let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
    let mut rebuilds = |count, affinity_seconds| {
        let tables = tables(many_frontends(count, affinity_seconds));
        let rebuilt = tables.diff(&shadow).rebuilt().next();
        commit(&mut kernel, &mut shadow, &tables);
        rebuilt.is_some()
    };
    assert!(!rebuilds(768, None));
    assert!(rebuilds(769, None));
    assert!(!rebuilds(3_072, None));
    assert!(!rebuilds(1, None));
    // Another set of frontends, of the size that is enough now.
    assert!(!rebuilds(1, Some(60)));
    assert!(!rebuilds(768, Some(60)));
    assert!(rebuilds(769, Some(60)));
}

#[test]
fn a_changed_part_that_outgrows_its_sets_rebuilds_the_table() {
    let (before, after) = (many_frontends(700, None), many_frontends(800, None));
    let (mut kernel, mut shadow) = (Kernel::default(), ObservedTables::default());
    let mut tables = tables(before.clone());
    commit(&mut kernel, &mut shadow, &tables);
    let touched = tables.replace(&facts(&plan(before)), &facts(&plan(after)));
    let transaction = tables.diff_of(&shadow, &touched.unwrap());
    assert!(transaction.rebuilt().next().is_some());
    kernel.execute(&transaction, &tables);
    shadow.note(transaction.operations(), &tables);
    agrees(&kernel, &shadow, &tables);
}

#[test]
fn other_chains_of_the_kernel_rebuild_a_table_once() {
    let mut wanted = tables(one_service(&[1, 2]));
    let mut observed = wanted.applied();
    // A kernel that lists a chain in another form.
    let layout = wanted.families[&Family::Ipv4].layout(Family::Ipv4);
    let other = LayoutPrint::new(&layout.chains[1..], &layout.sets, &layout.rules);
    observed.tables.get_mut(&Family::Ipv4).unwrap().layout = other.clone();
    let transaction = wanted.diff(&observed);
    assert_eq!(transaction.rebuilt().collect::<Vec<_>>(), [Family::Ipv4]);
    wanted.accept(Family::Ipv4, other);
    assert!(wanted.diff(&observed).is_empty());
    let mut again = tables(one_service(&[1, 2]));
    again.accept_like(&wanted);
    assert!(again.diff(&observed).is_empty());
}

#[test]
fn accepted_rules_of_affinity_follow_the_timeouts() {
    let with = |seconds| {
        let mut entries = one_service(&[1, 2]);
        if let (_, Entry::Head(head)) = &mut entries[1] {
            Arc::make_mut(head).ports[0].affinity_seconds = seconds;
        }
        tables(entries)
    };
    let mut sticky = with(Some(60));
    let layout = sticky.families[&Family::Ipv4].layout(Family::Ipv4);
    // A kernel that lists all rules in another form.
    let listed = layout.rules.iter().cloned();
    let listed: Vec<_> = listed.map(|rule| rule.with_comment("listed")).collect();
    let print = LayoutPrint::new(&layout.chains, &layout.sets, &listed);
    sticky.accept(Family::Ipv4, print.clone());
    let mut shadow = sticky.applied();
    assert_eq!(shadow.tables[&Family::Ipv4].layout, print);
    for seconds in [None, Some(60)] {
        let mut next = with(seconds);
        next.accept_like(&sticky);
        let transaction = next.diff(&shadow);
        assert!(!transaction.is_empty() && !transaction.has_other_rules());
        shadow.note(transaction.operations(), &next);
        assert!(next.diff(&shadow).is_empty(), "{seconds:?}");
    }
}
