//! The stored record of a mass loss of endpoints, and its events. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_crds::{GuardMode as Stored, GuardStatus};
use portolan_plan::Period;
use portolan_planner::model::{GuardMode, Guarding, Loss, Moment, StoredLoss};

use crate::events::{About, Event, Severity};

/// The losses that this controller has observed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// The current loss.
    pub(super) loss: Option<Loss>,
    /// Whether the stored loss is over.
    pub(super) ended: bool,
}

/// The guard status to store, or `None` if no loss is in force. A controller that did not observe the loss itself
/// clears it only when its time is over or it was approved.
pub(super) fn wanted(
    guarding: &Guarding,
    stored: Option<&GuardStatus>,
    seen: Seen,
    now: Moment,
) -> Option<GuardStatus> {
    // A loss that has ended makes room for the next one.
    let stored = stored.zip(guarding.stored.as_ref());
    let stored = stored.filter(|(_, of)| !seen.ended && !guarding.is_over(of, now));
    let loss = match (stored, seen.loss) {
        // A controller that saw only a part of the loss does not know its figures.
        (Some((stored, of)), loss) if !loss.is_some_and(|loss| loss.own) => {
            return Some(described(stored.clone(), of.since, guarding));
        }
        (_, loss) => loss?,
    };
    let (id, since) = match stored {
        Some((_, of)) => (of.id.to_string(), of.since),
        None => (name(loss.since), loss.since),
    };
    let of = StoredLoss {
        id: id.as_str().into(),
        since,
    };
    // The watch will soon report that this loss is over.
    if guarding.is_over(&of, now) {
        return None;
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let ready = stored.map_or(count(loss.of), |(stored, _)| stored.ready_endpoints);
    let status = GuardStatus {
        mode: Stored::Report,
        since: time(since),
        release_time: time(since),
        lost_endpoints: count(loss.lost),
        ready_endpoints: ready.max(count(loss.lost)),
        message: String::new(),
        id,
    };
    Some(described(status, since, guarding))
}

/// The status with the mode, release time and message that follow from the current policy.
fn described(mut status: GuardStatus, since: Moment, guarding: &Guarding) -> GuardStatus {
    status.mode = match guarding.policy.mode {
        GuardMode::Report => Stored::Report,
        GuardMode::Hold => Stored::Hold,
    };
    status.release_time = time(since.saturating_add(guarding.policy.release_after));
    status.message = message(&status, guarding);
    status
}

/// An event for the start and for the end of a loss.
pub(super) fn event(
    guarding: &Guarding,
    before: Option<&GuardStatus>,
    after: Option<&GuardStatus>,
    now: Moment,
) -> Option<Event> {
    let id = |status: Option<&GuardStatus>| status.map(|status| status.id.clone());
    if id(before) == id(after) {
        return None;
    }
    let (severity, reason, note) = match (before, after) {
        (_, Some(after)) => (
            Severity::Warning,
            "EndpointsVanished",
            after.message.clone(),
        ),
        (Some(before), None) => {
            let of = guarding.stored.as_ref();
            let why = match of {
                Some(of) if guarding.approved.as_ref() == Some(&of.id) => "the loss was approved",
                Some(of) if guarding.is_over(of, now) => "its release time has passed",
                _ => "they returned, their Services are gone, or their nodes are not Ready",
            };
            let (id, lost) = (&before.id, before.lost_endpoints);
            let (reason, note) = match before.mode {
                Stored::Hold => (
                    "EndpointsReleased",
                    format!("nodes no longer keep the {lost} endpoints of {id}, because {why}"),
                ),
                // Nothing was held.
                Stored::Report => (
                    "EndpointLossEnded",
                    format!("the loss {id} of {lost} endpoints has ended, because {why}"),
                ),
            };
            (Severity::Normal, reason, note)
        }
        (None, None) => return None,
    };
    Some(Event {
        about: About::ProxyConfig,
        severity,
        reason: reason.into(),
        action: "Guard",
        note,
    })
}

fn message(status: &GuardStatus, guarding: &Guarding) -> String {
    let window = Period::milliseconds(guarding.policy.window.saturating_mul(1000));
    let (lost, of, id) = (status.lost_endpoints, status.ready_endpoints, &status.id);
    let what = format!(
        "{lost} of {of} ready endpoints vanished within {window} although their Services exist and their \
         nodes are Ready; check which client writes EndpointSlices"
    );
    match status.mode {
        Stored::Report => {
            format!("{what}. Nodes no longer use them; spec.guard.mode Hold would keep them")
        }
        Stored::Hold => format!(
            "{what}. Nodes keep them until {}; to release them: kubectl annotate proxyconfig default \
             --overwrite \
             proxy.portolan.dev/approve={id}",
            status.release_time.0
        ),
    }
}

/// The ID of a loss, from the time at which it was detected.
fn name(since: Moment) -> String {
    time(since).0.strftime("loss-%Y%m%d-%H%M%S").to_string()
}

fn time(moment: Moment) -> Time {
    let seconds = i64::try_from(moment).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: Moment = 1_795_464_000;

    fn guarding(mode: GuardMode) -> Guarding {
        let mut guarding = Guarding::default();
        guarding.policy.mode = mode;
        guarding
    }

    /// The settings as read back from the API server after the status was stored.
    fn storing(mut guarding: Guarding, status: Option<&GuardStatus>) -> Guarding {
        guarding.stored = status.map(|status| StoredLoss {
            id: status.id.as_str().into(),
            since: u64::try_from(status.since.0.as_second()).unwrap(),
        });
        guarding
    }

    fn loss(lost: usize) -> Seen {
        let loss = Loss {
            since: SINCE,
            lost,
            of: 300,
            held: lost,
            own: true,
        };
        Seen {
            loss: Some(loss),
            ended: false,
        }
    }

    fn event_line(
        guarding: &Guarding,
        before: Option<&GuardStatus>,
        after: Option<&GuardStatus>,
        now: Moment,
    ) -> String {
        match event(guarding, before, after, now) {
            Some(event) => format!("{:?} {}: {}", event.severity, event.reason, event.note),
            None => "nothing".into(),
        }
    }

    #[test]
    fn a_loss_is_stored_by_its_time_and_is_one_event() {
        let held = guarding(GuardMode::Hold);
        let first = wanted(&held, None, loss(200), SINCE + 1);
        let known = storing(held.clone(), first.as_ref());
        let second = wanted(&known, first.as_ref(), loss(180), SINCE + 3);
        let reported = wanted(&guarding(GuardMode::Report), None, loss(200), SINCE);
        let status = second.clone().unwrap();
        let figures = (status.lost_endpoints, status.ready_endpoints, &*status.id);
        assert_eq!(figures, (180, 300, "loss-20261123-200000"));
        let lines = [
            event_line(&held, None, first.as_ref(), SINCE + 1),
            event_line(&known, first.as_ref(), second.as_ref(), SINCE + 3),
            event_line(&known, second.as_ref(), None, SINCE + 4),
            event_line(&known, second.as_ref(), None, SINCE + 1800),
            event_line(&held, None, reported.as_ref(), SINCE),
            event_line(&known, reported.as_ref(), None, SINCE + 4),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        Warning EndpointsVanished: 200 of 300 ready endpoints vanished within 1m although their Services exist and their nodes are Ready; check which client writes EndpointSlices. Nodes keep them until 2026-11-23T20:30:00Z; to release them: kubectl annotate proxyconfig default --overwrite proxy.portolan.dev/approve=loss-20261123-200000
        nothing
        Normal EndpointsReleased: nodes no longer keep the 180 endpoints of loss-20261123-200000, because they returned, their Services are gone, or their nodes are not Ready
        Normal EndpointsReleased: nodes no longer keep the 180 endpoints of loss-20261123-200000, because its release time has passed
        Warning EndpointsVanished: 200 of 300 ready endpoints vanished within 1m although their Services exist and their nodes are Ready; check which client writes EndpointSlices. Nodes no longer use them; spec.guard.mode Hold would keep them
        Normal EndpointLossEnded: the loss loss-20261123-200000 of 200 endpoints has ended, because they returned, their Services are gone, or their nodes are not Ready
        ");
        let mut approved = known;
        approved.approved = Some(status.id.as_str().into());
        let approved = event_line(&approved, second.as_ref(), None, SINCE + 4);
        assert!(
            approved.ends_with("because the loss was approved"),
            "{approved}"
        );
    }

    #[test]
    fn a_loss_that_is_over_is_not_stored_again() {
        let held = guarding(GuardMode::Hold);
        let first = wanted(&held, None, loss(200), SINCE);
        let mut known = storing(held, first.as_ref());
        // The planner still has the loss: it checks the clock once per second.
        assert_eq!(
            wanted(&known, first.as_ref(), loss(200), SINCE + 1800),
            None
        );
        known.approved = Some("loss-20261123-200000".into());
        assert_eq!(wanted(&known, first.as_ref(), loss(200), SINCE + 1), None);
        // A later loss gets its own ID.
        let mut next = loss(250);
        next.loss = next.loss.map(|loss| Loss {
            since: SINCE + 100,
            ..loss
        });
        let next = wanted(&known, first.as_ref(), next, SINCE + 101).unwrap();
        assert_eq!(next.id, "loss-20261123-200140");
    }

    #[test]
    fn a_controller_that_did_not_observe_the_loss_clears_it_only_by_time_or_approval() {
        let held = guarding(GuardMode::Hold);
        let first = wanted(&held, None, loss(200), SINCE);
        let mut known = storing(held, first.as_ref());
        let nothing = Seen::default();
        let kept = |known: &Guarding, now| wanted(known, first.as_ref(), nothing, now);
        assert_eq!(kept(&known, SINCE + 1799), first);
        assert_eq!(kept(&known, SINCE + 1800), None);
        known.approved = Some("loss-20261123-200000".into());
        assert_eq!(kept(&known, SINCE + 1), None);
        // A controller that saw the end clears it, even if another loss has started since.
        known.approved = None;
        let mut seen = Seen {
            loss: None,
            ended: true,
        };
        assert_eq!(wanted(&known, first.as_ref(), seen, SINCE + 1), None);
        seen.loss = loss(200).loss.map(|loss| Loss {
            since: SINCE + 5,
            ..loss
        });
        let next = wanted(&known, first.as_ref(), seen, SINCE + 6).unwrap();
        assert_eq!(next.id, "loss-20261123-200005");
    }
}
