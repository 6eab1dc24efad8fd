//! The report of a node, from the status of its ProxyPlan. Pure; the time is an argument.

use std::time::{Duration, SystemTime};

use portolan_crds as crds;
use portolan_crds::condition;
use portolan_rollout_policy::{Health, Report};

use crate::from_kube::revision_number;

/// Maximum age of a status. An older one is ignored, because a status is written every 5 minutes.
const MAX_STATUS_AGE: Duration = Duration::from_secs(900);

/// Converts the status of a ProxyPlan to a report.
pub fn report(status: &crds::ProxyPlanStatus, now: SystemTime) -> Report {
    let named = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.find(|condition| condition.type_ == kind)
    };
    let is = |kind: &str, value: &str| named(kind).is_some_and(|found| found.status == value);
    let words = |kind: &str| named(kind).map_or("", |found| &found.message);
    let health = if status.heartbeat_time.is_none() {
        Health::Disconnected
    } else if is_outdated(status, now) {
        // The status of a disconnected agent says so. An outdated status means that no controller could write it: the
        // API server or all controllers were unavailable, and the node is unchanged.
        Health::Silent
    } else if is(condition::APPLIED, "False") {
        Health::Failing(words(condition::APPLIED).into())
    } else if is(condition::HEALTHY, "False") {
        Health::Failing(words(condition::HEALTHY).into())
    } else if is(condition::APPLIED, "True") {
        Health::Sound
    } else if named(condition::APPLIED).is_some_and(|found| found.reason == "NotAnswered") {
        Health::Silent
    } else {
        Health::Disconnected
    };
    Report {
        health,
        applied: status
            .settings_revision
            .as_deref()
            .and_then(revision_number),
        drifted: is(condition::DRIFTED, "True"),
        lag: status.lag.as_deref().and_then(milliseconds),
    }
}

/// Whether a status is so old that no controller seems to write it.
pub fn is_outdated(status: &crds::ProxyPlanStatus, now: SystemTime) -> bool {
    let written = status.heartbeat_time.as_ref();
    let written = written.map(|time| SystemTime::from(time.0));
    written.is_some_and(|written| now > written + MAX_STATUS_AGE)
}

/// Parses a duration of a status: `41ms`, `1.05s` or `2m3s`.
fn milliseconds(text: &str) -> Option<u64> {
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().ok();
    }
    let text = text.strip_suffix('s')?;
    if let Some((minutes, seconds)) = text.split_once('m') {
        let (minutes, seconds): (u64, u64) = (minutes.parse().ok()?, seconds.parse().ok()?);
        return minutes
            .checked_mul(60_000)?
            .checked_add(seconds.checked_mul(1000)?);
    }
    let (whole, hundredths) = text.split_once('.').unwrap_or((text, "0"));
    let (whole, hundredths): (u64, u64) = (whole.parse().ok()?, hundredths.parse().ok()?);
    whole
        .checked_mul(1000)?
        .checked_add(hundredths.checked_mul(10)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the API server or all controllers were unavailable, no status was written, and the node does not count as
    /// lost.
    #[test]
    fn an_outdated_status_does_not_count_as_a_lost_node() {
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let moment = jiff::Timestamp::try_from(written).unwrap();
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(moment);
        let status = crds::ProxyPlanStatus {
            heartbeat_time: Some(time),
            ..crds::ProxyPlanStatus::default()
        };
        let health = |status, after| report(status, written + after).health;
        assert_eq!(
            health(&status, MAX_STATUS_AGE),
            Health::Disconnected,
            "a current status without conditions"
        );
        assert_eq!(
            health(&status, MAX_STATUS_AGE + Duration::from_secs(1)),
            Health::Silent
        );
        let never = crds::ProxyPlanStatus::default();
        assert_eq!(health(&never, MAX_STATUS_AGE * 2), Health::Disconnected);
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        let read = |text| milliseconds(text);
        assert_eq!(read("41ms"), Some(41));
        assert_eq!(read("1.05s"), Some(1050));
        assert_eq!(read("2m3s"), Some(123_000));
        assert_eq!(
            (read(""), read("s"), read("x.ys"), read("1h")),
            (None, None, None, None)
        );
    }
}
