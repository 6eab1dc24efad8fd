//! Events about transitions of a rollout. Pure.

use portolan_crds::{RolloutPhase, RolloutStatus};

use crate::events::{About, Event, Severity};

/// The event for the transition between two states, if any.
pub(super) fn event(before: &RolloutStatus, after: &RolloutStatus) -> Option<Event> {
    let (current, target) = (&after.current_revision, &after.target_revision);
    let why = after.reason.as_deref().unwrap_or_default();
    let other_phase = before.phase != after.phase;
    let again = matches!(before.phase, RolloutPhase::RolledBack);
    let begins = (again || before.target_revision != *target) && current != target;
    let (severity, reason, note) = match after.phase {
        RolloutPhase::Complete if before.current_revision != *current => {
            let note = format!("all nodes receive the settings {current}");
            (Severity::Normal, "SettingsInForce", note)
        }
        RolloutPhase::Complete if other_phase && before.target_revision != *target => {
            let former = &before.target_revision;
            let note = format!("{former} was withdrawn; all nodes receive {current} again");
            (Severity::Normal, "RolloutEnded", note)
        }
        RolloutPhase::RolledBack if other_phase => {
            let note = format!(
                "the change was rolled back, nodes receive {current} again: {why}; correct the cause, then `kubectl \
                 proxyplan rollout resume` retries it"
            );
            (Severity::Warning, "RolledBack", note)
        }
        RolloutPhase::Halted if other_phase => {
            let note = format!(
                "{current} -> {target} has halted: {why}; correct the cause, then `kubectl proxyplan rollout resume` \
                 continues"
            );
            (Severity::Warning, "RolloutHalted", note)
        }
        RolloutPhase::Paused if other_phase => {
            let note = format!("{current} -> {target} is paused by spec.rollout.paused");
            (Severity::Normal, "RolloutPaused", note)
        }
        RolloutPhase::Progressing | RolloutPhase::Soaking if begins => {
            let note = format!("{current} -> {target} is rolled out in waves");
            (Severity::Normal, "RolloutStarted", note)
        }
        _ => return None,
    };
    Some(Event {
        about: About::ProxyConfig,
        severity,
        reason: reason.into(),
        action: "RollOut",
        note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase: RolloutPhase, current: &str, target: &str) -> RolloutStatus {
        RolloutStatus {
            phase,
            current_revision: current.into(),
            target_revision: target.into(),
            reason: Some("2 nodes failed".into()),
            ..RolloutStatus::default()
        }
    }

    #[test]
    fn phases_of_a_rollout_are_events_and_waves_are_not() {
        use RolloutPhase::{Complete, Halted, Paused, Progressing, RolledBack, Soaking};
        let history = [
            RolloutStatus::default(),
            status(Complete, "default-1", "default-1"),
            status(Progressing, "default-1", "default-2"),
            status(Soaking, "default-1", "default-2"),
            status(Progressing, "default-1", "default-2"),
            status(Paused, "default-1", "default-2"),
            status(Progressing, "default-1", "default-2"),
            status(Halted, "default-1", "default-2"),
            status(RolledBack, "default-1", "default-2"),
            status(Progressing, "default-1", "default-2"),
            status(RolledBack, "default-1", "default-2"),
            status(Progressing, "default-1", "default-3"),
            status(Complete, "default-3", "default-3"),
            status(Progressing, "default-3", "default-4"),
            status(Complete, "default-3", "default-3"),
        ];
        let events: Vec<_> = history
            .windows(2)
            .map(|pair| match event(&pair[0], &pair[1]) {
                Some(event) => format!("{:?} {}: {}", event.severity, event.reason, event.note),
                None => "nothing".into(),
            })
            .collect();
        insta::assert_snapshot!(events.join("\n"), @r"
        Normal SettingsInForce: all nodes receive the settings default-1
        Normal RolloutStarted: default-1 -> default-2 is rolled out in waves
        nothing
        nothing
        Normal RolloutPaused: default-1 -> default-2 is paused by spec.rollout.paused
        nothing
        Warning RolloutHalted: default-1 -> default-2 has halted: 2 nodes failed; correct the cause, then `kubectl proxyplan rollout resume` continues
        Warning RolledBack: the change was rolled back, nodes receive default-1 again: 2 nodes failed; correct the cause, then `kubectl proxyplan rollout resume` retries it
        Normal RolloutStarted: default-1 -> default-2 is rolled out in waves
        Warning RolledBack: the change was rolled back, nodes receive default-1 again: 2 nodes failed; correct the cause, then `kubectl proxyplan rollout resume` retries it
        Normal RolloutStarted: default-1 -> default-3 is rolled out in waves
        Normal SettingsInForce: all nodes receive the settings default-3
        Normal RolloutStarted: default-3 -> default-4 is rolled out in waves
        Normal RolloutEnded: default-4 was withdrawn; all nodes receive default-3 again
        ");
    }
}
