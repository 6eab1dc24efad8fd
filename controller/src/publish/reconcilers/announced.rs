//! Events about Services that are not on a node as their objects ask. They are recorded when the report arrives: the
//! status follows later, so that a user who changes a Service often causes no write for each node.
//!
//! The words are the same on every node. Therefore one event is enough for all nodes. Bounded: a report is untrusted, and the
//! statuses have the same information.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::agent_registry::Delivery;
use crate::events::{About, Event, Severity};
use crate::troubled::{ServiceTrouble, Troubled};

/// Time for which an equal event is not recorded again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// Maximum number of events that are remembered for that. With as many, no further one is recorded.
const MAX_ANNOUNCED: usize = 256;
/// Those of one namespace, so that a tenant leaves room for others.
const MAX_ANNOUNCED_OF_NAMESPACE: usize = 16;

/// The recorded events.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// The last report of each node about which something was to be said.
    reported: BTreeMap<Arc<str>, Arc<Troubled>>,
    /// When events were recorded.
    recorded: BTreeMap<ServiceTrouble, Duration>,
}

impl Announced {
    /// The events about what is new in the report of a node; `is_known` says whether a Service exists.
    pub(super) fn news(
        &mut self,
        node: &Arc<str>,
        delivery: &Delivery,
        is_known: impl Fn(&ServiceTrouble) -> bool,
        now: Duration,
    ) -> Vec<Event> {
        // Without a report nothing has changed, as after a reconnect.
        let Some(troubled) = &delivery.troubled else {
            return Vec::new();
        };
        let before = if troubled.shown.is_empty() {
            self.reported.remove(node)
        } else {
            self.reported.insert(node.clone(), troubled.clone())
        };
        let before = before.unwrap_or_default();
        if Arc::ptr_eq(&before, troubled) {
            return Vec::new();
        }
        self.recorded
            .retain(|_, recorded| now < *recorded + REPEAT_INTERVAL);
        let mut events = Vec::new();
        for trouble in &troubled.shown {
            let is_new = !before.shown.contains(trouble) && !self.recorded.contains_key(trouble);
            let namespace = &trouble.service.namespace;
            let of_namespace = self.recorded.keys();
            let of_namespace = of_namespace.filter(|of| of.service.namespace == *namespace);
            let has_room = self.recorded.len() < MAX_ANNOUNCED
                && of_namespace.count() < MAX_ANNOUNCED_OF_NAMESPACE;
            if is_new && has_room && is_known(trouble) {
                self.recorded.insert(trouble.clone(), now);
                events.push(event(trouble));
            }
        }
        events
    }

    /// Removes nodes that do not exist.
    pub(super) fn forget_except(&mut self, is_node: impl Fn(&str) -> bool) {
        self.reported.retain(|node, _| is_node(node));
    }
}

fn event(trouble: &ServiceTrouble) -> Event {
    Event {
        about: About::Service(trouble.service.clone()),
        severity: Severity::Warning,
        reason: trouble.reason.as_str().into(),
        action: "Program",
        note: trouble.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use portolan_plan::ServiceId;

    use super::*;
    use crate::agent_registry::AgentRegistry;
    use crate::troubled::TroubleReason;

    fn trouble(name: &str, message: &str) -> ServiceTrouble {
        trouble_in("shop", name, message)
    }

    fn trouble_in(namespace: &str, name: &str, message: &str) -> ServiceTrouble {
        ServiceTrouble {
            service: ServiceId::new(namespace, name),
            reason: TroubleReason::SchedulerMissing,
            message: message.into(),
            in_force: true,
        }
    }

    /// What nodes report, and the notes of the events about it.
    struct Scene {
        registry: AgentRegistry,
        announced: Announced,
    }

    impl Scene {
        fn new() -> Self {
            let registry = AgentRegistry::default();
            for node in ["a", "b"] {
                registry.connected(node, "0.1.0", None, SystemTime::UNIX_EPOCH);
            }
            let announced = Announced::default();
            Self {
                registry,
                announced,
            }
        }

        fn report(&mut self, node: &str, shown: Vec<ServiceTrouble>, now: u64) -> Vec<String> {
            let troubled = Troubled {
                shown,
                ..Troubled::default()
            };
            self.registry.troubled(node, troubled);
            self.look(node, now)
        }

        fn look(&mut self, node: &str, now: u64) -> Vec<String> {
            let delivery = self.registry.get(node).unwrap();
            let now = Duration::from_secs(now);
            let is_known = |trouble: &ServiceTrouble| &*trouble.service.name != "gone";
            let events = self
                .announced
                .news(&node.into(), &delivery, is_known, now)
                .into_iter();
            events.map(|event| event.note).collect()
        }
    }

    #[test]
    fn many_nodes_with_one_trouble_are_one_event() {
        let mut scene = Scene::new();
        let lblc = || vec![trouble("web", "no lblc")];
        assert_eq!(scene.report("a", lblc(), 0), ["no lblc"]);
        assert_eq!(scene.report("b", lblc(), 1), [""; 0], "another node");
        assert_eq!(scene.report("a", Vec::new(), 2), [""; 0]);
        assert_eq!(scene.report("a", lblc(), 3), [""; 0], "it flips");
        let twos = vec![trouble("web", "no twos")];
        assert_eq!(scene.report("a", twos, 4), ["no twos"], "it is news");
        assert_eq!(scene.report("a", lblc(), 400), ["no lblc"]);
        assert_eq!(scene.report("b", vec![trouble("gone", "x")], 401), [""; 0]);
    }

    #[test]
    fn a_trouble_that_lasts_is_no_news_even_after_a_reconnect() {
        let mut scene = Scene::new();
        let lblc = || vec![trouble("web", "no lblc")];
        assert_eq!(scene.report("a", lblc(), 0), ["no lblc"]);
        assert_eq!(scene.look("a", 1000), [""; 0]);
        let now = SystemTime::UNIX_EPOCH;
        scene.registry.connected("a", "0.1.0", None, now);
        assert_eq!(scene.look("a", 2000), [""; 0]);
        assert_eq!(scene.report("a", lblc(), 2001), [""; 0]);
    }

    /// S-229: reports are untrusted, and events cost a write each.
    #[test]
    fn any_number_of_reports_leads_to_a_bounded_number_of_events() {
        let mut scene = Scene::new();
        let mut report = |namespace: &str, number: u32| {
            let trouble = trouble_in(namespace, &format!("web-{number}"), "no lblc");
            scene.report("a", vec![trouble], 1).len()
        };
        let of_one: usize = (0..1000).map(|number| report("shop", number)).sum();
        assert_eq!(of_one, MAX_ANNOUNCED_OF_NAMESPACE, "others have room");
        let of_all: usize = (0..1000)
            .map(|number| report(&format!("shop-{number}"), number))
            .sum();
        assert_eq!(of_one + of_all, MAX_ANNOUNCED);
        assert_eq!(scene.announced.recorded.len(), MAX_ANNOUNCED);
        scene.announced.forget_except(|_| false);
        assert!(scene.announced.reported.is_empty());
    }
}
