//! Statuses of plans as shown to users.

use std::sync::Arc;
use std::time::Duration;

use portolan_controller::agent_registry::{Acked, Delivery, Drift, InForce, StreamId};
use portolan_controller::publish::{Previous, judge, status};
use portolan_controller::troubled::{ServiceTrouble, TroubleReason, Troubled};
use portolan_crds::ProxyPlanStatus;
use portolan_plan::{Failing, PlanHash, ServiceId};

use crate::world::at;

fn delivery(acked: Acked) -> Delivery {
    Delivery {
        agent_version: "0.1.0".into(),
        agent_pod: Some("portolan-agent-blue-x7k2p".into()),
        stream: StreamId::default(),
        connected: true,
        since: at(0),
        acked: Some((at(1), Arc::new(acked))),
        overdue: None,
        drifted: Some(Arc::default()),
        closed_ports: Arc::default(),
        unwritten_settings: Arc::default(),
        schedulers: Arc::default(),
        troubled: None,
        in_force: InForce::default(),
    }
}

fn applied() -> Acked {
    Acked {
        applied: Some(PlanHash(0xabc)),
        received: PlanHash(0xabc),
        lag: Duration::from_millis(41),
        operations: 12,
        ..Acked::default()
    }
}

/// Type, status, reason and transition time of each condition.
fn conditions(status: &ProxyPlanStatus) -> Vec<String> {
    let since = |time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| {
        let time = std::time::SystemTime::from(time.0);
        time.duration_since(at(0)).unwrap().as_secs()
    };
    let text = status.conditions.iter().map(|c| {
        let since = since(&c.last_transition_time);
        format!("{} {} {} {since}", c.type_, c.status, c.reason)
    });
    text.collect()
}

#[test]
fn a_node_with_the_sent_plan_is_healthy() {
    let status = status(Some(&delivery(applied())), at(2), &Previous::default());
    insta::assert_yaml_snapshot!(status);
}

#[test]
fn failures_name_the_next_check() {
    let failing = Acked {
        applied: Some(PlanHash(1)),
        failures: vec!["add real server 10.244.1.1:80: no such service".into()],
        failed_operations: 17,
        ..applied()
    };
    let status = status(Some(&delivery(failing)), at(2), &Previous::default());
    insta::assert_yaml_snapshot!(status);
}

#[test]
fn each_state_of_an_agent_has_its_reason() {
    let previous = Previous::default();
    let reported = |delivery: Option<&Delivery>| conditions(&status(delivery, at(5), &previous));
    assert_eq!(
        reported(None),
        [
            "Applied Unknown NoAgent 5",
            "Drifted Unknown NoAgent 5",
            "Healthy Unknown NoAgent 5",
            "KernelSettings Unknown NoAgent 5"
        ]
    );
    let gone = Delivery {
        connected: false,
        ..delivery(applied())
    };
    assert_eq!(
        reported(Some(&gone)),
        [
            "Applied Unknown AgentGone 5",
            "Drifted Unknown AgentGone 5",
            "Healthy Unknown AgentGone 5",
            "KernelSettings Unknown AgentGone 5"
        ]
    );
    let silent = Delivery {
        acked: None,
        drifted: None,
        closed_ports: Arc::default(),
        unwritten_settings: Arc::default(),
        ..delivery(applied())
    };
    assert_eq!(reported(Some(&silent))[0], "Applied Unknown NotAnswered 5");
}

#[test]
fn an_answer_is_the_reason_of_a_condition() {
    let previous = Previous::default();
    let reported = |delivery: &Delivery| conditions(&status(Some(delivery), at(5), &previous));
    let of = |acked| reported(&delivery(acked));
    let hangs = Delivery {
        overdue: Some(at(3)),
        ..delivery(applied())
    };
    assert_eq!(
        reported(&hangs),
        [
            "Applied False AnswerOverdue 5",
            "Drifted False NoDrift 5",
            "Healthy False AnswerOverdue 5",
            "KernelSettings True Written 5"
        ],
        "its answer to an earlier batch does not count"
    );
    let unreadable = |key: &str| Acked {
        undecodable: vec![key.into()],
        ..applied()
    };
    assert_eq!(
        of(unreadable("node"))[0],
        "Applied False EntriesUnreadable 5"
    );
    assert_eq!(
        of(unreadable("head/shop/cart"))[0],
        "Applied True Applied 5",
        "S-229: that Service is an exception"
    );
    let differs = Acked {
        applied: None,
        ..applied()
    };
    assert_eq!(of(differs)[2], "Healthy False NotInKernel 5");
}

/// S-229: Services that fail are shown, and determine no condition: the same conditions need no write.
#[test]
fn services_that_fail_are_named_and_the_plan_is_in_force() {
    let trouble = |name: &str, in_force| ServiceTrouble {
        service: ServiceId::new("shop", name),
        reason: TroubleReason::SchedulerMissing,
        message: "no lblc".into(),
        in_force,
    };
    let troubled = Delivery {
        troubled: Some(Arc::new(Troubled {
            failing: Failing::default(),
            failing_services: 70,
            shown: vec![trouble("cart", false), trouble("web", true)],
        })),
        schedulers: vec!["mh".into(), "rr".into()].into(),
        ..delivery(applied())
    };
    let before = status(Some(&delivery(applied())), at(5), &Previous::default());
    let after = status(Some(&troubled), at(9), &Previous::read(&before));
    assert_eq!(conditions(&after), conditions(&before));
    assert!(!Previous::read(&before).differs_from(&judge(Some(&troubled))));
    assert_eq!(after.failing_services, Some(70));
    let shown: Vec<_> = after
        .troubles
        .iter()
        .map(|shown| (&*shown.service, &*shown.reason, shown.in_force))
        .collect();
    let expected = [
        ("shop/cart", "SchedulerMissing", false),
        ("shop/web", "SchedulerMissing", true),
    ];
    assert_eq!(shown, expected);
    assert_eq!(after.schedulers, ["mh", "rr"]);
    let words = &after.conditions[0].message;
    assert!(
        words.ends_with("except for 70 Services; see status.troubles"),
        "{words}"
    );
}

#[test]
fn drift_is_unknown_without_an_agent_and_before_its_first_comparison() {
    let words = |delivery| {
        let status = status(Some(&delivery), at(5), &Previous::default());
        let mut all = status.conditions.into_iter();
        all.find(|condition| condition.type_ == "Drifted")
            .unwrap()
            .message
    };
    let gone = Delivery {
        connected: false,
        ..delivery(applied())
    };
    let gone = words(gone);
    assert!(gone.starts_with("the agent is not connected"), "{gone}");
    let new = Delivery {
        drifted: None,
        ..delivery(applied())
    };
    let new = words(new);
    assert!(new.starts_with("the agent has not compared"), "{new}");
}

/// Drift reported by an agent, and its presentation.
#[test]
fn drift_is_reported_by_kind_and_whether_it_persists() {
    let of = |drift: &[(&str, u64, u64, u64)]| {
        let each = |(kind, found, repaired, unrepaired): &(&str, u64, u64, u64)| Drift {
            kind: (*kind).into(),
            found: *found,
            repaired: *repaired,
            unrepaired: *unrepaired,
        };
        let drifted = Delivery {
            drifted: Some(drift.iter().map(each).collect()),
            ..delivery(applied())
        };
        let status = status(Some(&drifted), at(5), &Previous::default());
        let lines = conditions(&status);
        assert_eq!(lines[0], "Applied True Applied 5");
        let mut all = status.conditions.iter();
        let drifted = all.find(|condition| condition.type_ == "Drifted").unwrap();
        (lines[1].clone(), status.drift, drifted.message.clone())
    };
    let (line, count, _) = of(&[]);
    assert_eq!((line.as_str(), count), ("Drifted False NoDrift 5", Some(0)));
    let (line, count, words) = of(&[("route", 1, 1, 0), ("weight", 3, 3, 0)]);
    assert_eq!(
        (line.as_str(), count),
        ("Drifted False Repaired 5", Some(0))
    );
    assert!(
        words.contains("since the agent started: route 1, weight 3;"),
        "{words}"
    );
    let (line, count, words) = of(&[("route", 1, 1, 0), ("weight", 5, 3, 2)]);
    let unrepaired = "Drifted True ChangedByOthers 5";
    assert_eq!((line.as_str(), count), (unrepaired, Some(2)));
    assert!(
        words.contains("and the changes persist (weight 2): spec.settings.drift"),
        "{words}"
    );
}

/// S-146: the kernel has the plan all the same.
#[test]
fn a_port_that_the_agent_cannot_listen_on_makes_the_node_unhealthy_and_is_named() {
    let port = "listen on 0.0.0.0:10256 for the node's health: Address already in use";
    let closed = Delivery {
        closed_ports: vec![port.to_owned()].into(),
        ..delivery(applied())
    };
    let reported = status(Some(&closed), at(5), &Previous::default());
    let lines = conditions(&reported);
    assert_eq!(
        (&*lines[0], &*lines[2]),
        ("Applied True Applied 5", "Healthy False PortsClosed 5")
    );
    assert_eq!(reported.failures, [port]);
    let words = &reported.conditions[2].message;
    assert!(words.contains(port), "{words}");
    let open = status(
        Some(&delivery(applied())),
        at(9),
        &Previous::read(&reported),
    );
    assert_eq!(conditions(&open)[2], "Healthy True Healthy 9");
    assert!(open.failures.is_empty());
}

#[test]
fn the_time_of_a_condition_moves_only_when_it_changes() {
    let good = delivery(applied());
    let first = status(Some(&good), at(10), &Previous::default());
    let again = status(Some(&good), at(400), &Previous::read(&first));
    assert_eq!(first.conditions, again.conditions);
    assert_ne!(first.heartbeat_time, again.heartbeat_time);
    let failing = Acked {
        failed_operations: 1,
        ..applied()
    };
    let bad = status(Some(&delivery(failing)), at(500), &Previous::read(&again));
    assert_eq!(
        conditions(&bad),
        [
            "Applied False OperationsFailed 500",
            "Drifted False NoDrift 10",
            "Healthy False OperationsFailed 500",
            "KernelSettings True Written 10"
        ]
    );
}

#[test]
fn lag_is_written_as_people_read_it() {
    let lag = |milliseconds| {
        let acked = Acked {
            lag: Duration::from_millis(milliseconds),
            ..applied()
        };
        let status = status(Some(&delivery(acked)), at(2), &Previous::default());
        status.lag.unwrap()
    };
    let texts = [0, 41, 999, 1_005, 59_990, 61_000].map(lag);
    assert_eq!(texts, ["0ms", "41ms", "999ms", "1.00s", "59.99s", "1m1s"]);
}
