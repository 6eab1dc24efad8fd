//! The answer of this controller.

use std::time::{Duration, SystemTime};

use portolan_plan::ServiceId;

use super::{Convergence, Disconnected, Question, Waiting};
use crate::agent_registry::{AgentRegistry, Delivery};
use crate::store::Store;

/// Answers a question. `started` is when this controller started.
pub fn answer(
    question: &Question,
    store: &Store,
    registry: &AgentRegistry,
    started: SystemTime,
    now: SystemTime,
) -> Convergence {
    // Read the marks before the store: a version that is published in between can only add waiting nodes.
    let behind = {
        let planned = store.planned();
        let planned = planned.borrow();
        let is_behind = |kind, version| planned.get(kind).is_none_or(|mark| mark.newest < version);
        let asked = question.read.iter();
        let behind = asked.filter(|(kind, version)| is_behind(kind, **version));
        behind.map(|(kind, _)| kind.name().to_owned()).collect()
    };
    let state = store.service_state(&question.service, question.gone);
    let (mut waiting, mut disconnected) = (Vec::new(), Vec::new());
    let names = store.node_names();
    let mut deliveries = registry.all();
    for name in &names {
        let node = name.to_string();
        let since = |since| now.duration_since(since).unwrap_or_default();
        match deliveries.remove(name) {
            Some(delivery) if delivery.connected => {
                let fails = delivery.fails(&question.service);
                if fails || delivery.in_force.version() < state.changed.max(1) {
                    let reason = reason(&delivery, &question.service, since);
                    waiting.push(Waiting { node, reason });
                }
            }
            gone => {
                let seconds = since(gone.map_or(started, |gone| gone.since)).as_secs();
                disconnected.push(Disconnected { node, seconds });
            }
        }
    }
    Convergence {
        controller: String::new(),
        service: question.service.to_string(),
        served: state.served,
        behind,
        listed: state.listed,
        nodes: names.len(),
        waiting,
        disconnected,
    }
}

/// Why a node does not have the change.
fn reason(
    delivery: &Delivery,
    service: &ServiceId,
    since: impl Fn(SystemTime) -> Duration,
) -> String {
    if delivery.fails(service) {
        return failure(delivery, service);
    }
    if let Some(sent) = delivery.overdue {
        let seconds = since(sent).as_secs();
        return format!("its agent has not answered for {seconds} s; see its log on the node");
    }
    match &delivery.acked {
        Some((_, acked)) if acked.failed_operations > 0 => {
            let first = acked.failures.first().map_or("", String::as_str);
            let failed = acked.failed_operations;
            format!("{failed} operations failed on it, the first: {first}")
        }
        Some((_, acked)) => acked.unreadable().map_or_else(
            || "its agent has not answered the last batch yet".into(),
            |entry| {
                format!(
                    "its agent cannot read {entry}; check whether it is older than the controller"
                )
            },
        ),
        None => "its agent has just connected".into(),
    }
}

/// Why a Service is not in force although the node's plan is.
fn failure(delivery: &Delivery, service: &ServiceId) -> String {
    let troubled = delivery.troubled.as_ref();
    let shown = troubled.and_then(|troubled| troubled.failure(service));
    shown.map_or_else(
        || {
            "the Service is not completely in force there; the log of its agent names the cause"
                .into()
        },
        |shown| shown.message.clone(),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use portolan_plan::{Failing, NodeEntry};
    use portolan_planner::Update;
    use portolan_planner::model::Kind;

    use super::*;
    use crate::agent_registry::Acked;
    use crate::troubled::{ServiceTrouble, TroubleReason, Troubled};
    use crate::watch::Mark;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn question(version: u64) -> Question {
        Question {
            service: ServiceId::new("shop", "cart"),
            gone: None,
            read: [(Kind::EndpointSlice, version)].into(),
        }
    }

    /// Three nodes and a Service that was removed; the removal is the change.
    fn store() -> Store {
        let store = Store::default();
        let node = |name: &str| {
            let entry = NodeEntry {
                name: name.into(),
                ..NodeEntry::default()
            };
            (Arc::from(name), Some(Arc::new(entry)))
        };
        store.publish(Update {
            nodes: ["a", "b", "c"].into_iter().map(node).collect(),
            ..Update::default()
        });
        store.publish(Update {
            services: [(ServiceId::new("shop", "cart"), None)].into(),
            ..Update::default()
        });
        store
    }

    #[test]
    fn nodes_are_listed_with_their_state_and_reason() {
        let (store, registry) = (store(), AgentRegistry::default());
        let ask = |version| answer(&question(version), &store, &registry, at(0), at(100));
        let all = ask(7);
        assert_eq!(all.behind, ["EndpointSlice"], "nothing was read yet");
        assert_eq!((all.nodes, all.disconnected.len()), (3, 3));
        assert_eq!(
            all.disconnected[0].seconds, 100,
            "since the controller started"
        );

        let mark = Mark {
            newest: 7,
            ..Mark::default()
        };
        store.note_marks(&BTreeMap::from([(Kind::EndpointSlice, mark)]));
        assert_eq!(ask(7).behind, ["EndpointSlice"], "it is not planned yet");
        store.note_planned();
        assert!(ask(7).behind.is_empty());
        assert_eq!(ask(8).behind, ["EndpointSlice"]);

        let a = registry.connected("a", "0.1.0", None, at(10));
        a.in_force.reached(2);
        let b = registry.connected("b", "0.1.0", None, at(10));
        b.in_force.reached(1);
        let failed = Acked {
            failures: vec!["no memory".into()],
            failed_operations: 2,
            ..Acked::default()
        };
        registry.acked("b", failed, at(20));
        let c = registry.connected("c", "0.1.0", None, at(10));
        registry.gone("c", c.id, at(70));
        let found = ask(7);
        assert_eq!(found.waiting.len(), 1);
        assert_eq!(found.waiting[0].node, "b");
        assert!(found.waiting[0].reason.contains("no memory"));
        let disconnected = Disconnected {
            node: "c".into(),
            seconds: 30,
        };
        assert_eq!(found.disconnected, [disconnected]);

        b.in_force.reached(3);
        assert!(ask(7).waiting.is_empty());
    }

    /// S-229: a node that has the plan in force lacks the Services that it reports, and no others.
    #[test]
    fn a_node_on_which_the_service_fails_is_waited_for_and_the_cause_is_named() {
        let (store, registry) = (store(), AgentRegistry::default());
        let ask = || answer(&question(0), &store, &registry, at(0), at(100)).waiting;
        for node in ["a", "b", "c"] {
            let stream = registry.connected(node, "0.1.0", None, at(10));
            stream.in_force.reached(2);
        }
        let report = |name: &str, shown: bool| {
            let service = ServiceId::new("shop", name);
            let trouble = ServiceTrouble {
                service: service.clone(),
                reason: TroubleReason::EndpointRefused,
                message: "no host".into(),
                in_force: false,
            };
            let troubled = Troubled {
                failing: Failing::of([&service]),
                failing_services: 1,
                shown: shown.then_some(trouble).into_iter().collect(),
            };
            registry.troubled("b", troubled);
        };
        report("till", true);
        assert_eq!(ask(), []);
        report("cart", true);
        let waiting = |reason: &str| Waiting {
            node: "b".into(),
            reason: reason.into(),
        };
        assert_eq!(ask(), [waiting("no host")]);
        report("cart", false);
        let all = ask();
        let [found] = &all[..] else {
            panic!("one node lacks it");
        };
        assert!(found.reason.contains("the log of its agent"), "{found:?}");
        registry.troubled("b", Troubled::default());
        assert_eq!(ask(), []);
    }
}
