//! Where a Service asks for a scheduler that the kernel lacks, it gets the settings' one, and nothing else changes
//! (S-229).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{Family, NodePlan, ServiceId, strategies};
use portolan_reconcile::{Desired, flags};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::successive::with_backends;
use super::{host, plan};

/// A plan whose Services have backends.
fn plans() -> impl Strategy<Value = NodePlan> {
    let pools =
        Family::BOTH.map(|family| prop::collection::vec(strategies::backends(family), 1..4));
    (strategies::entries(), pools).prop_map(|(entries, pools)| {
        let entries = with_backends(entries.into_iter().collect(), &pools);
        plan(entries.into_iter().collect())
    })
}

/// The Services that ask for one of these schedulers and have a virtual server.
fn asking(plan: &NodePlan, lacking: &BTreeSet<Arc<str>>) -> BTreeMap<ServiceId, Arc<str>> {
    let asks = plan.heads().filter_map(|(service, head)| {
        let scheduler = head.scheduler.clone().filter(|own| lacking.contains(own))?;
        let alone = Desired::new(&plan.part([service]), &host()).unwrap();
        (!alone.virtual_servers.is_empty()).then(|| (service.clone(), scheduler))
    });
    asks.collect()
}

proptest! {
    #[test]
    fn only_services_that_ask_for_a_missing_scheduler_get_another(
        plan in plans(),
        lacking in subsequence(vec!["rr", "wrr", "lc", "mh"], 0..=4),
    ) {
        let lacking: BTreeSet<Arc<str>> = lacking.into_iter().map(Arc::from).collect();
        let own = plan.node().unwrap().settings.scheduler.clone();
        let asked = Desired::new(&plan, &host()).unwrap();
        let mut found = Desired::without(&plan, &host(), &lacking).unwrap();

        let mut others = lacking.clone();
        others.remove(&own);
        prop_assert_eq!(&std::mem::take(&mut found.fallbacks), &asking(&plan, &others));
        for (key, server) in &mut found.virtual_servers {
            let before = &asked.virtual_servers[key];
            let expected = if lacking.contains(&before.scheduler) { &own } else { &before.scheduler };
            prop_assert_eq!(&server.scheduler, expected);
            prop_assert_eq!(server.flags & flags::MH_PORT != 0, &**expected == "mh", "S-102");
            server.scheduler = before.scheduler.clone();
            server.flags = (server.flags & !flags::MH_PORT) | (before.flags & flags::MH_PORT);
        }
        prop_assert_eq!(found, asked, "everything else is the same");
    }
}
