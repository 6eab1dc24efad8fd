//! When what an EndpointSlice tells of happened, as the controller that wrote it says (S-187).

use std::collections::BTreeMap;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::Deserialize;

use super::Kind;
use super::object::Text;
use crate::object::ObjectId;

/// What slices said so far. A slice keeps saying it, whatever else changes about it.
#[derive(Debug)]
pub(super) struct Triggers {
    /// What happened before is no news: this program was not there.
    since: SystemTime,
    said: BTreeMap<ObjectId, SystemTime>,
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
        Self {
            since,
            said: BTreeMap::new(),
        }
    }

    /// What an object that is there says now and did not say before.
    pub(super) fn news(&mut self, kind: Kind, id: &ObjectId, text: &Text) -> Option<SystemTime> {
        if kind != Kind::EndpointSlice {
            return None;
        }
        let triggered = read(text).filter(|triggered| *triggered >= self.since)?;
        let before = self.said.insert(id.clone(), triggered);
        (before != Some(triggered)).then_some(triggered)
    }

    /// An object is gone, which triggers nothing that is measured.
    pub(super) fn forget(&mut self, id: &ObjectId) {
        self.said.remove(id);
    }
}

/// Nobody else than who measures reads it, so whatever is no time is nothing.
fn read(text: &Text) -> Option<SystemTime> {
    let annotated: Annotated = text.parse().ok()?;
    Some(annotated.metadata.annotations.triggered.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn a_slice_tells_once_when_it_was_triggered() {
        let mut triggers = Triggers::new(at(1_767_225_600));
        let id = Kind::EndpointSlice.id("shop", "web-1");
        let mut news = |annotations: &str| {
            let text = slice(annotations);
            triggers.news(Kind::EndpointSlice, &id, &text)
        };
        let key = "endpoints.kubernetes.io/last-change-trigger-time";
        let said = |time: &str| format!(r#"{{"other":"x","{key}":"{time}"}}"#);
        let first = said("2026-01-01T00:00:05Z");
        assert_eq!(news(&first), Some(at(1_767_225_605)));
        assert_eq!(news(&first), None, "something else changed");
        let second = said("2026-01-01T00:00:06.5Z");
        let half = Duration::from_millis(500);
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
        let mut triggers = Triggers::new(at(0));
        let text =
            slice(r#"{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:05Z"}"#);
        let id = Kind::Service.id("shop", "web");
        assert_eq!(triggers.news(Kind::Service, &id, &text), None);
    }
}
