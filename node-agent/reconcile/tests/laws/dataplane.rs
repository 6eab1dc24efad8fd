//! Another dataplane serves Services: IPVS is removed once its connections have ended.

use std::collections::BTreeMap;

use portolan_plan::{Dataplane, Entry, EntryHash, EntryKey, NodePlan, strategies};
use portolan_reconcile::{Desired, Observed, Owned, SetEntry, SetRole, ready};
use proptest::prelude::*;

use super::{answers, desired, empty_kernel, foreign, host, pass, plan, served_by};

/// The desired state of the plan when nftables serves its Services.
fn with_nftables(entries: Vec<(EntryKey, Entry)>) -> Desired {
    let plan = plan(entries);
    let entries = plan.entries().map(|(key, entry)| {
        let entry = match entry {
            Entry::Node(node) => Entry::Node(served_by(Dataplane::Nftables, node)),
            other => other.clone(),
        };
        (key.clone(), EntryHash::default(), entry)
    });
    let plan = NodePlan::from_entries(entries.collect::<Vec<_>>());
    Desired::new(&plan, &host()).unwrap()
}

/// What the other dataplane needs.
fn ground(state: &Observed) -> Observed {
    let (key, server) = foreign();
    Observed {
        virtual_servers: [(key, server)].into(),
        sysctls: state.sysctls.clone(),
        loaded_schedulers: state.loaded_schedulers.clone(),
        rules: state
            .rules
            .keys()
            .map(|family| (*family, <_>::default()))
            .collect(),
        timeouts: state.timeouts,
        host: state.host.clone(),
        ..Observed::default()
    }
}

proptest! {
    /// Nothing is refused or held back, and nothing of IPVS stays but the state of other programs.
    #[test]
    fn another_dataplane_removes_ipvs_without_connections(
        before in strategies::entries(),
        after in strategies::entries(),
    ) {
        let mut kernel = empty_kernel();
        let mut owned = Owned::default();
        pass(&mut kernel, &desired(before.clone()), &mut owned, |_| ());
        let nftables = with_nftables(after);
        for (_, ops) in portolan_reconcile::diff(&kernel.state, &nftables, &owned) {
            let (_, held_back) = ready(ops, &kernel.state, &nftables);
            prop_assert!(held_back.iter().all(|(_, reason)| reason.contains("policy rule")));
        }
        pass(&mut kernel, &nftables, &mut owned, |_| ());
        pass(&mut kernel, &nftables, &mut owned, |_| ());
        prop_assert_eq!(&kernel.state, &ground(&kernel.state));
        prop_assert_eq!(pass(&mut kernel, &nftables, &mut owned, |_| ()), 0);
        // And back.
        let ipvs = desired(before);
        let mut fresh = empty_kernel();
        pass(&mut fresh, &ipvs, &mut Owned::default(), |_| ());
        pass(&mut kernel, &ipvs, &mut owned, |_| ());
        prop_assert_eq!(&kernel.state.virtual_servers, &fresh.state.virtual_servers);
        prop_assert_eq!(&kernel.state.sets, &fresh.state.sets);
        prop_assert_eq!(&kernel.state.rules, &fresh.state.rules);
        prop_assert_eq!(&kernel.state.routes, &fresh.state.routes);
        prop_assert_eq!(&kernel.state.policy, &fresh.state.policy);
    }

    /// Everything that leads packets to a virtual server stays as long as it has connections, and it takes no new ones.
    #[test]
    fn connections_of_ipvs_go_on_until_they_end(entries in strategies::entries()) {
        let mut kernel = empty_kernel();
        let mut owned = Owned::default();
        let ipvs = desired(entries.clone());
        pass(&mut kernel, &ipvs, &mut owned, |_| ());
        let nftables = with_nftables(entries);
        let busy = ipvs.virtual_servers.iter().find(|(key, _)| nftables.resting.contains(*key));
        let Some((busy, server)) = busy else { return Ok(()) };
        let counts: BTreeMap<_, _> =
            server.real_servers.iter().map(|(backend, _)| (backend, 1)).collect();
        kernel.connections.insert(*busy, counts);
        let before = kernel.state.clone();
        for _ in 0..2 {
            pass(&mut kernel, &nftables, &mut owned, |_| ());
            let state = &kernel.state;
            prop_assert!(state.virtual_servers[busy].real_servers.iter().all(|(_, weight)| weight == 0));
            for (id, set) in &before.sets {
                let now = &state.sets[id].entries;
                let mut gone = set.entries.difference(now);
                match id.role {
                    SetRole::Guarded => prop_assert!(now.is_empty()),
                    SetRole::Frontend => prop_assert!(gone.all(|entry| *entry != SetEntry::of(*busy))),
                    _ => prop_assert_eq!(gone.next(), None),
                }
            }
            prop_assert!(answers(state, busy), "its packets arrive");
            prop_assert!(state.virtual_servers.keys().all(|key| answers(state, key) == (key == busy) || *key == foreign().0));
            prop_assert_eq!(&state.rules, &before.rules);
            prop_assert_eq!(&state.policy, &before.policy);
            prop_assert_eq!(&state.routes, &before.routes);
        }
        kernel.connections.clear();
        pass(&mut kernel, &nftables, &mut owned, |_| ());
        pass(&mut kernel, &nftables, &mut owned, |_| ());
        prop_assert_eq!(&kernel.state, &ground(&kernel.state));
    }
}
