//! When what an EndpointSlice tells of happened, as the controller that wrote it says (S-187).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::Deserialize;

use super::Kind;
use super::object::Text;

/// Since when it counts. The controller of EndpointSlices writes it anew, or takes it away, with every
/// change that it makes, so the same time again is of another change in the same second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triggers {
    /// What happened before is no news: this program was not there.
    since: SystemTime,
}

#[derive(Deserialize)]
struct Annotated {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "endpoints.kubernetes.io/last-change-trigger-time")]
    triggered: Timestamp,
}

impl Triggers {
    pub(super) fn new(since: SystemTime) -> Self {
        let seconds = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            // Kubernetes tells most of these times in whole seconds.
            since: UNIX_EPOCH + Duration::from_secs(seconds.as_secs()),
        }
    }

    /// What an object that changed says.
    pub(super) fn of(self, kind: Kind, text: &Text) -> Option<SystemTime> {
        let triggered = (kind == Kind::EndpointSlice).then(|| read(text)).flatten();
        triggered.filter(|triggered| *triggered >= self.since)
    }
}

/// Nobody else than who measures reads it, so whatever is no time is nothing.
fn read(text: &Text) -> Option<SystemTime> {
    let annotated: Annotated = text.parse().ok()?;
    Some(annotated.metadata.annotations.triggered.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(annotations: &str) -> Text {
        let json = format!(
            r#"{{"metadata":{{"namespace":"shop","name":"web-1","annotations":{annotations}}},
                "addressType":"IPv4","endpoints":[]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn a_slice_tells_when_it_was_triggered() {
        let half = Duration::from_millis(500);
        let triggers = Triggers::new(at(1_767_225_600) + half);
        let news = |annotations: &str| triggers.of(Kind::EndpointSlice, &slice(annotations));
        let key = "endpoints.kubernetes.io/last-change-trigger-time";
        let said = |time: &str| format!(r#"{{"other":"x","{key}":"{time}"}}"#);
        let first = said("2026-01-01T00:00:05Z");
        assert_eq!(news(&first), Some(at(1_767_225_605)));
        let same_second = said("2026-01-01T00:00:00Z");
        assert_eq!(news(&same_second), Some(at(1_767_225_600)));
        let second = said("2026-01-01T00:00:06.5Z");
        assert_eq!(news(&second), Some(at(1_767_225_606) + half));
        assert_eq!(news(&said("2025-12-31T23:59:59Z")), None, "before");
        for nonsense in [
            said("yesterday"),
            "null".into(),
            "{}".into(),
            r#"{"other":1}"#.into(),
        ] {
            assert_eq!(news(&nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn only_slices_tell() {
        let triggers = Triggers::new(at(0));
        let text =
            slice(r#"{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:05Z"}"#);
        assert_eq!(triggers.of(Kind::Service, &text), None);
    }
}
