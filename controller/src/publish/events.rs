//! Events about changed conditions and new warnings, computed before the status is stored. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_crds as crds;
use portolan_crds::condition;
use portolan_plan::ServiceId;

use super::previous::Previous;
use super::status::{Judged, Judgement, Verdict};
use crate::events::{About, Event, Severity};

/// Events about the status of a node.
pub(super) fn of_node(
    node: &Arc<str>,
    previous: &Previous,
    judged: &Judgement,
    status: &crds::ProxyPlanStatus,
) -> Vec<Event> {
    let words = |kind: &str| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == kind);
        found.map_or_else(String::new, |found| found.message.clone())
    };
    let event = |severity, reason: &str, note| Event {
        about: About::Node(node.clone()),
        severity,
        reason: reason.into(),
        action: "Program",
        note,
    };
    let changes = |before: Option<Verdict>, now: Judged| before != Some(now.verdict);
    let before = previous.verdicts();
    let mut events = Vec::new();
    let applied = words(condition::APPLIED);
    match (before.applied, judged.applied) {
        (before, now) if !changes(before, now) => {}
        (_, now) if now.verdict == Verdict::True => {
            events.push(event(Severity::Normal, "PlanInForce", applied));
        }
        (_, now) => events.push(event(Severity::Warning, now.reason, applied)),
    }
    // A plan that is not applied also makes the node unhealthy, and already has an event.
    let (now, is_own) = (judged.healthy, judged.applied.verdict == Verdict::True);
    if is_own && now.verdict == Verdict::False && changes(before.healthy, now) {
        let note = words(condition::HEALTHY);
        events.push(event(Severity::Warning, now.reason, note));
    }
    let now = judged.drifted;
    if now.verdict == Verdict::True && changes(before.drifted, now) {
        let note = words(condition::DRIFTED);
        events.push(event(Severity::Warning, now.reason, note));
    }
    let now = judged.settings;
    if now.verdict == Verdict::False && changes(before.settings, now) {
        let note = words(condition::KERNEL_SETTINGS);
        events.push(event(Severity::Warning, now.reason, note));
    }
    events
}

/// Events about the status of the ProxyConfig: new warnings about Services, and conditions that became False.
pub(super) fn of_config(
    before: &crds::ProxyConfigStatus,
    now: &crds::ProxyConfigStatus,
) -> Vec<Event> {
    let known: BTreeSet<_> = before.warnings.iter().collect();
    let new = now
        .warnings
        .iter()
        .filter(|warning| !known.contains(warning));
    let of_service = |warning: &crds::Warning| {
        let (namespace, name) = warning.object.strip_prefix("Service ")?.split_once('/')?;
        Some(Event {
            about: About::Service(ServiceId::new(namespace, name)),
            severity: Severity::Warning,
            reason: warning.reason.clone(),
            action: "Plan",
            note: warning.message.clone(),
        })
    };
    let mut events: Vec<_> = new.filter_map(of_service).collect();
    for kind in [condition::ACCEPTED, condition::PODS_IN_RANGES] {
        if let (None, Some(denied)) = (denied(before, kind), denied(now, kind)) {
            events.push(Event {
                about: About::ProxyConfig,
                severity: Severity::Warning,
                reason: denied.reason.clone(),
                action: "Plan",
                note: denied.message.clone(),
            });
        }
    }
    events
}

/// The condition of this type, if it is False.
fn denied<'a>(status: &'a crds::ProxyConfigStatus, kind: &str) -> Option<&'a Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == kind && condition.status == "False")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn judged(verdict: Verdict, reason: &'static str) -> Judged {
        Judged { verdict, reason }
    }

    /// The `Previous` of a status with these conditions.
    fn written(judgement: &Judgement) -> Previous {
        let condition = |kind: &str, judged: Judged| Condition {
            type_: kind.into(),
            status: judged.verdict.as_str().into(),
            reason: judged.reason.into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        Previous::read(&crds::ProxyPlanStatus {
            conditions: vec![
                condition(condition::APPLIED, judgement.applied),
                condition(condition::HEALTHY, judgement.healthy),
                condition(condition::DRIFTED, judgement.drifted),
                condition(condition::KERNEL_SETTINGS, judgement.settings),
            ],
            ..crds::ProxyPlanStatus::default()
        })
    }

    fn recorded(before: &Judgement, now: &Judgement) -> Vec<(Severity, String)> {
        let node = "node-1".into();
        let previous = written(before);
        let events = of_node(&node, &previous, now, &crds::ProxyPlanStatus::default());
        events
            .into_iter()
            .map(|event| (event.severity, event.reason))
            .collect()
    }

    #[test]
    fn a_changed_condition_is_one_event_per_cause() {
        let sound = Judgement {
            applied: judged(Verdict::True, "Applied"),
            healthy: judged(Verdict::True, "Healthy"),
            drifted: judged(Verdict::False, "NoDrift"),
            settings: judged(Verdict::True, "Written"),
        };
        let failing = Judgement {
            applied: judged(Verdict::False, "OperationsFailed"),
            healthy: judged(Verdict::False, "OperationsFailed"),
            ..sound
        };
        let closed = Judgement {
            healthy: judged(Verdict::False, "PortsClosed"),
            drifted: judged(Verdict::True, "ChangedByOthers"),
            ..sound
        };
        let read_only = Judgement {
            settings: judged(Verdict::False, "NotWritable"),
            ..sound
        };
        let warning = |reason: &str| (Severity::Warning, reason.to_owned());
        let in_force = (Severity::Normal, "PlanInForce".to_owned());
        assert_eq!(recorded(&sound, &sound), []);
        assert_eq!(recorded(&sound, &failing), [warning("OperationsFailed")]);
        assert_eq!(recorded(&failing, &failing), []);
        assert_eq!(recorded(&failing, &sound), [in_force]);
        let expected = [warning("PortsClosed"), warning("ChangedByOthers")];
        assert_eq!(recorded(&sound, &closed), expected);
        assert_eq!(
            recorded(&sound, &read_only),
            [warning("NotWritable")],
            "S-225"
        );
        assert_eq!(recorded(&read_only, &read_only), []);
        let node = "node-1".into();
        let nothing = crds::ProxyPlanStatus::default();
        let first = of_node(&node, &Previous::default(), &sound, &nothing);
        assert_eq!(first.len(), 1, "the first status of a node: {first:?}");
    }

    #[test]
    fn a_warning_about_a_service_is_one_event() {
        let warning = |object: &str| crds::Warning {
            object: object.into(),
            reason: "Ignored".into(),
            message: "metadata.annotations: no such scheduler".into(),
        };
        let status = |warnings: &[&str]| crds::ProxyConfigStatus {
            warnings: warnings.iter().map(|object| warning(object)).collect(),
            ..crds::ProxyConfigStatus::default()
        };
        let before = status(&["Service shop/cart"]);
        let now = status(&[
            "Service shop/cart",
            "Service shop/till",
            "EndpointSlice shop/x",
        ]);
        let events = of_config(&before, &now);
        let about: Vec<_> = events.iter().map(|event| event.about.clone()).collect();
        assert_eq!(about, [About::Service(ServiceId::new("shop", "till"))]);
        assert_eq!(of_config(&now, &before), []);
    }
}
