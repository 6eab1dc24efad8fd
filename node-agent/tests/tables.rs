//! The keeper of the tables on a model kernel: what it writes, and what happens after refusals and failures.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "tables/bench.rs"]
mod bench;
#[path = "tables/drift.rs"]
mod drift;
#[path = "tables/flows.rs"]
mod flows;
#[path = "tables/plan.rs"]
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_plan::{Family, ServiceId};
use portolan_reconcile::Facts;
use portolan_reconcile::nftables::{Layout, LayoutPrint, ObservedTables, Tables};
use serde_json::{Value, json};

use bench::Bench;
use plan::{facts, facts_with, service, services};

fn id(name: &str) -> ServiceId {
    ServiceId {
        namespace: "default".into(),
        name: name.into(),
    }
}

/// The state that a kernel without faults has after these facts.
fn wanted(facts: &Facts) -> ObservedTables {
    Tables::of(facts).applied()
}

/// The Services, with other endpoints of one of them.
fn with(name: &str, endpoints: &[&str]) -> Vec<Value> {
    let mut services = services();
    let mut all = services.iter_mut();
    let changed = all.find(|service| service["name"] == name).unwrap();
    changed["ports"][0]["internal"] = plan::list(endpoints);
    services
}

#[test]
fn the_first_plan_is_written_family_by_family_and_the_second_pass_writes_and_reads_nothing() {
    let mut bench = Bench::new();
    let facts = facts(&services());
    let outcome = bench.succeed(&facts);
    assert_eq!(outcome.built, Family::BOTH.into());
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
    let commits = bench.commits();
    assert_eq!(commits.len(), 2);
    assert_eq!(commits[0][0], "add the IPv4 table");
    assert_eq!(commits[1][0], "add the IPv6 table");
    let outcome = bench.succeed(&facts);
    assert_eq!((outcome.operations, bench.commits().len()), (0, 0));
    assert_eq!(bench.kernel.lock().reads, 1);
}

/// S-106: a restart adopts the tables.
#[test]
fn a_restart_writes_nothing() {
    let mut bench = Bench::new();
    let facts = facts(&services());
    bench.succeed(&facts);
    bench.commits();
    let mut bench = Bench::on(bench.kernel);
    let outcome = bench.succeed(&facts);
    assert_eq!((outcome.operations, outcome.built), (0, BTreeSet::new()));
    assert_eq!(bench.commits(), Vec::<Vec<String>>::new());
}

#[test]
fn a_replaced_backend_is_one_transaction_of_few_operations() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    bench.commits();
    bench.succeed(&facts(&with(
        "web",
        &["10.244.1.5:8080", "10.244.2.7:8080"],
    )));
    assert_eq!(
        bench.commits(),
        [[
            "delete endpoint TCP 10.96.0.20:80 slot 1 10.244.2.5:8080",
            "add endpoint TCP 10.96.0.20:80 slot 1 10.244.2.7:8080",
        ]]
    );
}

#[test]
fn a_part_leads_to_the_same_tables_as_the_complete_plan() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    let after = with("web", &["10.244.2.7:8080"]);
    let of_web = |services: &[Value]| {
        let web = services.iter().filter(|service| service["name"] == "web");
        facts(&web.cloned().collect::<Vec<_>>())
    };
    let options = bench.options();
    let part = (of_web(&services()), of_web(&after));
    assert!(bench.keeper.is_in_step());
    let outcome = bench.keeper.reconcile_part(&part.0, &part.1, options);
    assert!(outcome.is_some_and(|outcome| outcome.is_success() && outcome.operations > 0));
    assert_eq!(bench.kernel.lock().observed, wanted(&facts(&after)));
    assert_eq!(bench.succeed(&facts(&after)).operations, 0);
    bench.keeper.discard_shadow();
    let outcome = bench.keeper.reconcile_part(&part.0, &part.1, options);
    assert_eq!(outcome, None, "the kernel has to be read");
}

/// S-229.
#[test]
fn a_refused_element_costs_only_its_service_and_is_tried_again_after_a_while() {
    let mut bench = Bench::new();
    let refused = "add endpoint TCP 10.96.0.20:80 slot 1 10.244.2.5:8080";
    bench.kernel.lock().refused.insert(refused.into());
    let facts = facts(&services());
    let outcome = bench.reconcile(&facts);
    assert_eq!((outcome.failed, outcome.in_doubt), (0, false));
    assert!(outcome.failed_families.is_empty());
    let errors: Vec<_> = outcome.refused.iter().collect();
    let [(service, error)] = errors[..] else {
        panic!("{errors:?}");
    };
    assert_eq!((service, &*error.action), (&id("web"), refused));
    assert!(error.of_service);
    assert_eq!(
        outcome.operations + 1,
        Tables::of(&facts).diff(&ObservedTables::default()).len(),
        "all others are written"
    );
    // Nothing is tried again before it is time, but the Service is still reported.
    let attempts = bench.kernel.lock().attempts;
    bench.pass_time(900);
    assert_eq!(bench.reconcile(&facts).refused.len(), 1);
    assert_eq!(bench.kernel.lock().attempts, attempts);
    assert!(!bench.keeper.retry_left(bench.now).is_zero());
    // The second refusal doubles the wait.
    bench.pass_time(200);
    assert!(bench.keeper.retry_left(bench.now).is_zero());
    assert_eq!(bench.reconcile(&facts).refused.len(), 1);
    assert!(bench.kernel.lock().attempts > attempts);
    assert_eq!(bench.keeper.retry_left(bench.now).as_secs(), 2);
    bench.kernel.lock().refused.clear();
    bench.pass_time(2_000);
    assert_eq!(bench.succeed(&facts).operations, 1);
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
    assert_eq!(bench.keeper.retry_left(bench.now).as_secs(), u64::MAX);
}

#[test]
fn a_refused_element_that_the_plan_no_longer_contains_is_forgotten() {
    let mut bench = Bench::new();
    let refused = "add endpoint TCP 10.96.0.20:80 slot 1 10.244.2.5:8080";
    bench.kernel.lock().refused.insert(refused.into());
    assert_eq!(bench.reconcile(&facts(&services())).refused.len(), 1);
    let other = facts(&with("web", &["10.244.1.5:8080", "10.244.2.7:8080"]));
    bench.succeed(&other);
    assert_eq!(bench.keeper.retry_left(bench.now).as_secs(), u64::MAX);
    assert_eq!(bench.kernel.lock().observed, wanted(&other));
}

#[test]
fn what_the_node_lacks_is_a_failure_and_is_tried_again_at_once() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    bench.kernel.lock().is_full = true;
    let after = facts(&with(
        "web",
        &["10.244.1.5:8080", "10.244.2.5:8080", "10.244.2.7:8080"],
    ));
    let outcome = bench.reconcile(&after);
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    assert!(outcome.failed > 0);
    assert_eq!(outcome.failed_families, [Family::Ipv4].into());
    let failure = &outcome.failures[0];
    assert_eq!(failure.service, Some(id("web")));
    assert!(!failure.error.of_service);
    assert!(!bench.keeper.is_in_step());
    bench.kernel.lock().is_full = false;
    bench.succeed(&after);
    assert_eq!(bench.kernel.lock().observed, wanted(&after));
}

#[test]
fn a_family_whose_rules_are_refused_gets_no_elements_and_the_other_one_works() {
    let mut bench = Bench::new();
    bench.kernel.lock().refused_layout = Some(Family::Ipv6);
    let facts = facts(&services());
    let outcome = bench.reconcile(&facts);
    assert_eq!(outcome.failed_families, [Family::Ipv6].into());
    assert_eq!(outcome.built, [Family::Ipv4].into());
    let held = bench.kernel.lock().observed.clone();
    assert_eq!(held.tables.keys().collect::<Vec<_>>(), [&Family::Ipv4]);
    assert_eq!(
        held.tables[&Family::Ipv4],
        wanted(&facts).tables[&Family::Ipv4]
    );
    bench.kernel.lock().refused_layout = None;
    bench.succeed(&facts);
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
}

#[test]
fn after_a_lost_answer_the_tables_are_read_again_and_nothing_counts_as_drift() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    bench.kernel.lock().lost_answers = 1;
    let after = facts(&with("web", &["10.244.2.7:8080"]));
    let outcome = bench.reconcile(&after);
    assert!(outcome.in_doubt && outcome.failed > 0);
    assert!(bench.keeper.is_read_due());
    let outcome = bench.succeed(&after);
    assert_eq!(outcome.operations, 0, "it had been executed");
    assert_eq!(bench.kernel.lock().observed, wanted(&after));
    assert_eq!(bench.keeper.drift(), [].into());
}

#[test]
fn nothing_is_written_while_the_tables_cannot_be_read() {
    let mut bench = Bench::new();
    bench.kernel.lock().unreadable = true;
    let facts = facts(&services());
    let outcome = bench.reconcile(&facts);
    assert_eq!(outcome.failed_families, Family::BOTH.into());
    assert_eq!(bench.kernel.lock().attempts, 0);
    bench.kernel.lock().unreadable = false;
    bench.succeed(&facts);
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
}

/// A saved plan may be older than the tables, or contain only some Services.
#[test]
fn without_a_complete_plan_nothing_is_removed() {
    let mut bench = Bench::new();
    let all = facts(&services());
    bench.succeed(&all);
    let mut bench = Bench::on(bench.kernel);
    let saved = [
        service("web", "TCP", "10.96.0.20:80", &["10.244.1.5:8080"]),
        service("new", "TCP", "10.96.0.99:80", &["10.244.1.9:80"]),
    ];
    let options = portolan_agent::tables::ReconcileOptions {
        may_remove: false,
        ..bench.options()
    };
    let outcome = bench.keeper.reconcile(&facts(&saved), options);
    assert!(outcome.is_success() && outcome.operations > 0);
    let mut both = services();
    both.push(saved[1].clone());
    assert_eq!(bench.kernel.lock().observed, wanted(&facts(&both)));
    assert!(!bench.keeper.is_in_step());
    bench.succeed(&facts(&saved));
    assert_eq!(bench.kernel.lock().observed, wanted(&facts(&saved)));
}

/// An agent without a complete plan, and with other settings, leaves these tables as they are.
fn is_left_alone(bench: Bench, tables: &Facts) {
    let options = portolan_agent::tables::ReconcileOptions {
        may_remove: false,
        ..bench.options()
    };
    let mut bench = Bench::on(bench.kernel);
    let outcome = bench.keeper.reconcile(&facts(&services()), options);
    assert_eq!(outcome.left_alone, Family::BOTH.into());
    assert_eq!(bench.kernel.lock().observed, wanted(tables));
}

#[test]
fn other_rules_are_written_into_the_table() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    bench.commits();
    let mask = json!({"masquerade": {"bit": 14, "all": true}});
    let after = facts_with(&services(), &mask);
    let outcome = bench.succeed(&after);
    assert_eq!(outcome.built, [].into());
    let nat_post = || [Arc::from("nat-post")].into();
    let replaced = Family::BOTH.map(|family| (family, nat_post()));
    assert_eq!(outcome.rules_replaced, replaced.into());
    assert_eq!(
        bench.commits(),
        ["IPv4", "IPv6"].map(|family| [format!("replace the {family} rules of nat-post")])
    );
    assert_eq!(bench.kernel.lock().observed, wanted(&after));
    // Without a complete plan, other rules are not written either: they may belong to Services that this plan lacks.
    is_left_alone(bench, &after);
}

#[test]
fn other_chains_replace_the_table_in_one_transaction() {
    let on_kernel = |version| {
        let mut host = plan::host();
        host.machine.kernel = version;
        plan::facts_on(&services(), &json!({}), &Value::Null, &host)
    };
    let mut bench = Bench::new();
    bench.succeed(&on_kernel((5, 4)));
    bench.commits();
    let after = on_kernel((6, 1));
    let outcome = bench.succeed(&after);
    assert_eq!(outcome.built, Family::BOTH.into());
    let commits = bench.commits();
    assert_eq!(commits.len(), 2, "one for each family");
    assert!(commits[0].len() > 20);
    assert_eq!(commits[0][0], "rebuild the IPv4 table");
    assert_eq!(bench.kernel.lock().observed, wanted(&after));
    // Without a complete plan, frontends would be lost.
    is_left_alone(bench, &after);
}

/// The kernel has other rules than this agent would write, and lists those that it writes in another form.
#[test]
fn rules_that_the_kernel_lists_in_another_form_are_replaced_once() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    let listed = |comment| {
        let layout = Layout::keeping_connections(Family::Ipv4, 1);
        let rules = layout.rules.into_iter();
        let rules: Vec<_> = rules.map(|rule| rule.with_comment(comment)).collect();
        LayoutPrint::new(&layout.chains, &[], &rules)
    };
    let chains = listed("other").chains();
    let write = |bench: &Bench, comment, chains: &BTreeSet<_>| {
        let mut model = bench.kernel.lock();
        let table = model.observed.tables.get_mut(&Family::Ipv4).unwrap();
        table.layout.replace_rules(chains, &listed(comment));
        table.layout.clone()
    };
    let before = bench.kernel.lock().observed.tables[&Family::Ipv4]
        .layout
        .clone();
    let form = write(&bench, "in another form", &chains);
    write(&bench, "other", &chains);
    bench.kernel.lock().listed = Some(form.clone());
    let mut bench = Bench::on(bench.kernel);
    let outcome = bench.succeed(&facts(&services()));
    assert_eq!(outcome.rules_replaced[&Family::Ipv4], chains);
    bench.keeper.discard_shadow();
    assert_eq!(bench.succeed(&facts(&services())).operations, 0);
    assert_ne!(before, form);
}

/// Another program removes rules, unnoticed, and then the agent replaces those of other chains.
#[test]
fn only_replaced_rules_are_taken_as_the_kernel_lists_them() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()[..3]));
    {
        let mut model = bench.kernel.lock();
        let table = model.observed.tables.get_mut(&Family::Ipv4).unwrap();
        let nothing = LayoutPrint::default();
        let drops = BTreeSet::from([Arc::from("drops-pre")]);
        table.layout.replace_rules(&drops, &nothing);
    }
    // The first timeout of affinity.
    let all = facts(&services());
    let outcome = bench.succeed(&all);
    assert_eq!(
        outcome.rules_replaced[&Family::Ipv4],
        ["learn-out", "learn-pre"].map(Arc::from).into()
    );
    bench.keeper.discard_shadow();
    let outcome = bench.succeed(&all);
    assert_eq!(
        outcome.rules_replaced[&Family::Ipv4],
        [Arc::from("drops-pre")].into()
    );
    assert_eq!(bench.kernel.lock().observed, wanted(&all));
}

#[test]
fn a_form_in_which_only_the_kernel_lists_rules_is_not_rebuilt_forever() {
    let mut bench = Bench::new();
    let chain = nft_rs::Chain::new("in-another-form");
    let print = LayoutPrint::new(&[chain], &[], &[]);
    bench.kernel.lock().listed = Some(print);
    // The rules of affinity depend on the plan.
    let facts = facts(&services()[..3]);
    bench.succeed(&facts);
    for _ in 0..2 {
        bench.keeper.discard_shadow();
        let outcome = bench.succeed(&facts);
        assert_eq!((outcome.operations, outcome.built), (0, BTreeSet::new()));
    }
}

#[test]
fn a_large_first_plan_is_divided() {
    let mut bench = Bench::new();
    let service = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let at = format!("10.97.{high}.{low}:80");
        service(&format!("s{number}"), "TCP", &at, &["10.244.1.5:8080"])
    };
    let facts = facts(&(0..5_000).map(service).collect::<Vec<_>>());
    let outcome = bench.succeed(&facts);
    assert!(outcome.operations > 20_000);
    let commits = bench.commits();
    let longest = commits.iter().map(Vec::len).max();
    assert!(commits.len() > 2 && longest < Some(17_000), "{longest:?}");
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
}

/// S-98, S-99.
#[test]
fn clients_of_a_backend_that_left_are_purged_and_a_failure_is_retried() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    bench.kernel.lock().stale_clients.insert(Family::Ipv4, 3);
    bench.succeed(&facts(&with("web", &["10.244.2.7:8080"])));
    assert_eq!(
        bench.kernel.lock().stale_clients.len(),
        1,
        "no affinity there"
    );
    bench.kernel.lock().unpurgeable = true;
    let after = facts(&with("sticky", &["10.244.2.6:80"]));
    let outcome = bench.reconcile(&after);
    assert_eq!((outcome.failed, outcome.purged), (1, 0));
    bench.kernel.lock().unpurgeable = false;
    assert_eq!(bench.succeed(&after).purged, 3);
    assert_eq!(bench.succeed(&after).purged, 0);
}

#[test]
fn cleanup_removes_both_tables_and_a_later_pass_makes_them_again() {
    let mut bench = Bench::new();
    let facts = facts(&services());
    bench.succeed(&facts);
    assert_eq!(bench.keeper.cleanup(), Family::BOTH.map(Ok));
    assert_eq!(bench.kernel.lock().observed, ObservedTables::default());
    assert_eq!(bench.keeper.cleanup(), []);
    bench.succeed(&facts);
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
    let document = bench.keeper.document().unwrap();
    assert_eq!(document.services.len(), services().len());
}
