//! Changes of the tables by other programs.

use portolan_plan::Family;
use portolan_reconcile::nftables::{Operation, TableDriftKind as Kind, TableElement};
use serde_json::json;

use super::bench::Bench;
use super::plan::{facts, facts_with, services};
use super::{wanted, with};

/// The slot of a backend of the Service `web`.
fn slot(slot: u32, backend: &str) -> TableElement {
    let backend: std::net::SocketAddr = backend.parse().unwrap();
    TableElement::Slot {
        frontend: "TCP 10.96.0.20:80".parse().unwrap(),
        slot,
        backend: portolan_reconcile::RealServerKey {
            address: backend.ip(),
            port: backend.port(),
        },
    }
}

/// Found, repaired and unrepaired.
fn count(bench: &Bench, kind: Kind) -> (u64, u64, u64) {
    let counts = bench.keeper.drift();
    let count = counts.get(&kind).copied().unwrap_or_default();
    (count.found, count.repaired, count.unrepaired)
}

#[test]
fn drift_is_found_repaired_and_counted() {
    let mut bench = Bench::new();
    let facts = facts(&services());
    bench.succeed(&facts);
    assert!(!bench.keeper.check_disturbed());
    let mut kernel = bench.kernel.lock();
    kernel.disturb(&Operation::Delete(slot(0, "10.244.1.5:8080")));
    kernel.disturb(&Operation::Add(slot(7, "10.244.66.6:80")));
    drop(kernel);
    assert!(bench.keeper.check_disturbed());
    assert_eq!(bench.succeed(&facts).operations, 2);
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
    assert_eq!(count(&bench, Kind::Missing), (1, 1, 0));
    assert_eq!(count(&bench, Kind::Unexpected), (1, 1, 0));
    assert!(!bench.keeper.check_disturbed());
}

#[test]
fn a_deleted_table_is_built_again() {
    let mut bench = Bench::new();
    let facts = facts(&services());
    bench.succeed(&facts);
    bench.kernel.lock().drop_table(Family::Ipv4);
    assert!(bench.keeper.check_disturbed());
    assert_eq!(bench.succeed(&facts).built, [Family::Ipv4].into());
    assert_eq!(bench.kernel.lock().observed, wanted(&facts));
    assert_eq!(count(&bench, Kind::Table), (1, 1, 0));
    assert_eq!(count(&bench, Kind::Missing), (0, 0, 0));
}

/// An event may be late or lost.
#[test]
fn drift_that_a_refusal_reveals_is_repaired_in_the_same_pass() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&services()));
    bench.kernel.lock().drop_table(Family::Ipv4);
    let after = facts(&with("web", &["10.244.2.7:8080"]));
    let outcome = bench.succeed(&after);
    assert_eq!(outcome.built, [Family::Ipv4].into());
    assert_eq!(bench.kernel.lock().observed, wanted(&after));
    assert_eq!(count(&bench, Kind::Table), (1, 1, 0));
    let element = Operation::Delete(slot(0, "10.244.2.7:8080"));
    bench.kernel.lock().disturb(&element);
    let after = facts(&with("web", &["10.244.2.8:8080"]));
    bench.succeed(&after);
    assert_eq!(bench.kernel.lock().observed, wanted(&after));
    assert_eq!(count(&bench, Kind::Missing), (1, 1, 0));
}

#[test]
fn drift_that_is_only_reported_stays_and_is_counted_once() {
    let mut bench = Bench::new();
    let report = json!({"drift": "Report"});
    let all = facts_with(&services(), &report);
    bench.succeed(&all);
    let missing = slot(0, "10.244.1.5:8080");
    bench.kernel.lock().disturb(&Operation::Delete(missing));
    let disturbed = bench.kernel.lock().observed.clone();
    for _ in 0..2 {
        bench.keeper.discard_shadow();
        assert_eq!(bench.succeed(&all).operations, 0);
        assert_eq!(count(&bench, Kind::Missing), (1, 0, 1));
    }
    assert_eq!(bench.kernel.lock().observed, disturbed);
    // A change of the plan elsewhere is written.
    let elsewhere = with("dns", &["10.244.2.4:53", "10.244.2.5:53"]);
    bench.succeed(&facts_with(&elsewhere, &report));
    assert_eq!(count(&bench, Kind::Missing), (1, 0, 1));
    // The plan removes what is missing already, which changes nothing else.
    let mut without_it = elsewhere.clone();
    without_it[0]["ports"][0]["internal"] = super::plan::list(&["10.244.2.5:8080"]);
    bench.succeed(&facts_with(&without_it, &report));
    bench.succeed(&facts_with(&elsewhere, &report));
    assert_eq!(count(&bench, Kind::Missing), (1, 0, 0));
    let missing = slot(0, "10.244.2.5:8080");
    bench.kernel.lock().disturb(&Operation::Delete(missing));
    bench.keeper.discard_shadow();
    bench.succeed(&facts_with(&elsewhere, &report));
    assert_eq!(count(&bench, Kind::Missing), (2, 0, 1));
    // The setting decides about the next pass.
    assert_eq!(bench.succeed(&facts(&elsewhere)).operations, 1);
    assert_eq!(count(&bench, Kind::Missing), (2, 1, 0));
    let mut again = Bench::on(bench.kernel.clone());
    assert_eq!(again.succeed(&facts(&elsewhere)).operations, 0);
}

#[test]
fn a_table_that_is_only_reported_missing_is_not_written_and_a_change_fails() {
    let mut bench = Bench::new();
    let report = json!({"drift": "Report"});
    let all = facts_with(&services(), &report);
    bench.succeed(&all);
    bench.kernel.lock().drop_table(Family::Ipv4);
    bench.keeper.discard_shadow();
    let outcome = bench.succeed(&all);
    assert_eq!(outcome.left_alone, [Family::Ipv4].into());
    assert_eq!(count(&bench, Kind::Table), (1, 0, 1));
    let after = facts_with(&with("web", &["10.244.2.7:8080"]), &report);
    let outcome = bench.reconcile(&after);
    assert_eq!(outcome.failed_families, [Family::Ipv4].into());
    assert!(
        !bench
            .kernel
            .lock()
            .observed
            .tables
            .contains_key(&Family::Ipv4)
    );
}
