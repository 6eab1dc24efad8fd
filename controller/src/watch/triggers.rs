//! `endpoints.kubernetes.io/last-change-trigger-time`: when the change behind an EndpointSlice happened (S-187).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portolan_planner::model::Kind;

const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Which trigger times count. The EndpointSlice controller sets or removes the annotation with every change, so the
/// same time again belongs to another change in the same second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triggers {
    /// Earlier changes happened before this program ran.
    since: SystemTime,
}

impl Triggers {
    pub(super) fn new(since: SystemTime) -> Self {
        let seconds = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            // Kubernetes writes most of these times in whole seconds.
            since: UNIX_EPOCH + Duration::from_secs(seconds.as_secs()),
        }
    }

    /// The trigger time of an object, if it counts.
    pub(super) fn count(self, triggered: Option<SystemTime>) -> Option<SystemTime> {
        triggered.filter(|triggered| *triggered >= self.since)
    }
}

/// The trigger time that an object states. It is used for measurements only, so an invalid value is ignored.
pub(super) fn trigger_time(kind: Kind, metadata: &ObjectMeta) -> Option<SystemTime> {
    if kind != Kind::EndpointSlice {
        return None;
    }
    let stated = metadata.annotations.as_ref()?.get(ANNOTATION)?;
    let time: Timestamp = stated.parse().ok()?;
    Some(time.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(key: &str, value: &str) -> ObjectMeta {
        ObjectMeta {
            annotations: Some([("other".into(), "x".into()), (key.into(), value.into())].into()),
            ..ObjectMeta::default()
        }
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn the_annotation_of_a_slice_counts_since_the_start_of_the_program() {
        let half = Duration::from_millis(500);
        let triggers = Triggers::new(at(1_767_225_600) + half);
        let time = |stated: &str| {
            let metadata = slice("endpoints.kubernetes.io/last-change-trigger-time", stated);
            triggers.count(trigger_time(Kind::EndpointSlice, &metadata))
        };
        assert_eq!(time("2026-01-01T00:00:05Z"), Some(at(1_767_225_605)));
        let same_second = time("2026-01-01T00:00:00Z");
        assert_eq!(same_second, Some(at(1_767_225_600)));
        let fraction = time("2026-01-01T00:00:06.5Z");
        assert_eq!(fraction, Some(at(1_767_225_606) + half));
        assert_eq!(time("2025-12-31T23:59:59Z"), None, "before");
        assert_eq!(time("yesterday"), None);
    }

    #[test]
    fn other_annotations_and_other_kinds_have_no_trigger_time() {
        let other = slice("other-key", "2026-01-01T00:00:05Z");
        assert_eq!(trigger_time(Kind::EndpointSlice, &other), None);
        let none = ObjectMeta::default();
        assert_eq!(trigger_time(Kind::EndpointSlice, &none), None);
        let service = slice(ANNOTATION, "2026-01-01T00:00:05Z");
        assert_eq!(trigger_time(Kind::Service, &service), None);
    }
}
