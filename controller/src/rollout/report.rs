//! The report of a node, from the status of its ProxyPlan. Pure; the time is an argument.

use std::time::{Duration, SystemTime};

use portolan_crds as crds;
use portolan_crds::condition;
use portolan_rollout::{Health, Report};

use crate::from_kube::revision_number;

/// The age from which a status is ignored. A status is written every 5 minutes.
const STALE: Duration = Duration::from_secs(900);

/// Converts the status of a ProxyPlan to a report.
pub fn report(status: &crds::ProxyPlanStatus, now: SystemTime) -> Report {
    let named = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.find(|condition| condition.type_ == kind)
    };
    let is = |kind: &str, value: &str| named(kind).is_some_and(|found| found.status == value);
    let words = |kind: &str| named(kind).map_or("", |found| &found.message);
    let written = status.heartbeat_time.as_ref();
    let written = written.map(|time| SystemTime::from(time.0));
    let stale = written.is_some_and(|written| now > written + STALE);
    let health = if written.is_none() {
        Health::Away
    } else if stale {
        // The status of an absent agent says that it is absent. An outdated status means that no controller could
        // write it: the API server or all controllers were unavailable, and the node is unchanged.
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
        Health::Away
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
    fn a_status_that_nobody_wrote_for_long_says_that_nothing_was_heard() {
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let moment = jiff::Timestamp::try_from(written).unwrap();
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(moment);
        let status = crds::ProxyPlanStatus {
            heartbeat_time: Some(time),
            ..crds::ProxyPlanStatus::default()
        };
        let health = |status, after| report(status, written + after).health;
        assert_eq!(
            health(&status, STALE),
            Health::Away,
            "it says nothing of its agent"
        );
        assert_eq!(
            health(&status, STALE + Duration::from_secs(1)),
            Health::Silent
        );
        let never = crds::ProxyPlanStatus::default();
        assert_eq!(health(&never, STALE * 2), Health::Away);
    }

    #[test]
    fn lengths_of_time_are_read_as_they_are_written() {
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
