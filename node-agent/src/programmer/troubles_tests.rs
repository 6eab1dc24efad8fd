//! Tests of the state and the report of Services in trouble.

use super::*;

fn service(namespace: &str, number: u32) -> ServiceId {
    ServiceId::new(namespace, format!("web-{number}"))
}

fn endpoint() -> Trouble {
    Trouble::Endpoint {
        endpoint: "10.0.0.255:80".into(),
        reason: "it is not the address of a host".into(),
    }
}

fn scheduler() -> Trouble {
    Trouble::Scheduler("lblc".into())
}

fn troubles(of: impl IntoIterator<Item = (ServiceId, Trouble)>) -> Troubles {
    Troubles(of.into_iter().collect())
}

/// S-229: a tenant with many broken Services must not hide those of others.
#[test]
fn no_namespace_hides_another_in_a_report() {
    let many = (0..100).map(|number| (service("aa", number), endpoint()));
    let few = [
        (service("bb", 1), scheduler()),
        (service("cc", 1), endpoint()),
    ];
    let report = troubles(many.chain(few)).to_wire(&ClosedChecks::new());
    let shown: Vec<_> = report.shown.iter().map(|shown| &*shown.service).collect();
    assert_eq!(shown.len(), MAX_SHOWN);
    assert!(
        shown.contains(&"bb/web-1") && shown.contains(&"cc/web-1"),
        "{shown:?}"
    );
    assert_eq!(report.failing_services, 101);
    let failing = Failing::from_hashes(report.failing);
    assert!(failing.contains(&service("aa", 99)) && failing.contains(&service("cc", 1)));
    assert!(
        !failing.contains(&service("bb", 1)),
        "it is in force nevertheless"
    );
}

/// S-143, S-229: the Service is served without its health check port.
#[test]
fn a_closed_health_check_port_is_reported_once_and_fails_nothing() {
    let of = |number, why: &str| (service("shop", number), why.to_owned());
    let closed = [
        of(1, "IPv4 is taken"),
        of(1, "IPv6 is taken"),
        of(2, "taken"),
    ]
    .into();
    let broken = troubles([(service("shop", 2), endpoint())]);
    let report = broken.to_wire(&closed);
    let shown: Vec<_> = report
        .shown
        .iter()
        .map(|shown| (&*shown.service, &*shown.reason, shown.in_force))
        .collect();
    let expected = [
        ("shop/web-2", "EndpointRefused", false),
        ("shop/web-1", "HealthPortClosed", true),
    ];
    assert_eq!(shown, expected);
    assert_eq!((report.failing_services, report.failing.len()), (1, 1));
    assert_eq!(broken.served_otherwise(&closed), 1);
}

#[test]
fn a_pass_over_a_part_replaces_only_what_it_covered() {
    let (one, two) = (service("shop", 1), service("shop", 2));
    let before = troubles([(one.clone(), endpoint()), (two.clone(), scheduler())]);
    let found = |of: &ServiceId| Found {
        covered: Some([of.clone()].into()),
        ..Found::default()
    };
    assert_eq!(
        before.after(found(&one)),
        troubles([(two.clone(), scheduler())])
    );
    assert_eq!(before.after(found(&two)), troubles([(one, endpoint())]));
    assert!(before.after(Found::default()).is_empty(), "all are covered");
}

/// A failed pass leaves an earlier plan in force, and with it what failed of that.
#[test]
fn a_failed_pass_resolves_nothing() {
    let (one, two) = (service("shop", 1), service("shop", 2));
    let before = troubles([(one.clone(), endpoint())]);
    let found = Found {
        troubles: [(one.clone(), scheduler()), (two.clone(), scheduler())].into(),
        ..Found::default()
    };
    let expected = troubles([(one, endpoint()), (two, scheduler())]);
    assert_eq!(before.after_failure(found, |_| true), expected);
    let nothing = before.after_failure(Found::default(), |_| false);
    assert!(nothing.is_empty(), "deleted Services are forgotten");
}

/// S-229: one namespace never makes the node fail, however many of its Services do.
#[test]
fn most_services_of_several_namespaces_are_the_fault_of_the_node() {
    let of = |namespace: &'static str, count| {
        (0..count).map(move |number| (service(namespace, number), endpoint()))
    };
    let all = |counts: &[(&str, u32)]| -> Vec<ServiceId> {
        let of = |(namespace, count): &(&str, u32)| {
            let namespace = namespace.to_string();
            (0..*count).map(move |number| service(&namespace, number))
        };
        counts.iter().flat_map(of).collect()
    };
    let is_of =
        |troubles: Troubles, counts: &[(&str, u32)]| troubles.is_of_the_node(all(counts).iter());
    assert!(!is_of(troubles(of("aa", 5000)), &[("aa", 5000)]));
    let two = || troubles(of("aa", 4).chain(of("bb", 2)));
    assert!(!is_of(two(), &[("aa", 8), ("bb", 4)]));
    assert!(is_of(two(), &[("aa", 7), ("bb", 4)]));
    // A tenant with two namespaces in a small cluster.
    let small = [("aa", 4), ("bb", 2), ("default", 1), ("kube-system", 1)];
    assert!(!is_of(two(), &small));
    let many = (0..2000).map(|number| (service(&format!("ns-{number}"), 1), endpoint()));
    assert!(is_of(troubles(many), &[("aa", 50_000)]), "too many to list");
}

/// A controller reports the same words of many nodes once.
#[test]
fn messages_say_what_to_do_and_name_no_node() {
    let unreadable = Trouble::Unreadable {
        entry: "head/shop/web".into(),
    };
    for (trouble, words) in [
        (scheduler(), "modprobe ip_vs_lblc"),
        (endpoint(), "correct its EndpointSlice"),
        (unreadable, "check whether the agent is older"),
    ] {
        let message = trouble.message();
        assert!(message.contains(words), "{message}");
    }
}
