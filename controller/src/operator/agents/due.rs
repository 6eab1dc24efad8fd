//! Decides whether the DaemonSet needs an update. Pure.

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::Value;

use super::daemon_set::{MANAGED_BY, MANAGER};

/// The result of our last write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Made {
    /// The object that was applied.
    pub(super) wanted: Value,
    /// The object's UID.
    pub(super) uid: Option<String>,
    /// Its generation. A different one means that its spec was changed since.
    pub(super) generation: Option<i64>,
}

impl Made {
    /// Records the object that the API server returned.
    #[must_use]
    pub(super) fn new(wanted: Value, set: &DaemonSet) -> Self {
        Self {
            wanted,
            uid: set.metadata.uid.clone(),
            generation: set.metadata.generation,
        }
    }
}

/// Why the DaemonSet is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// It does not exist.
    Absent,
    /// This controller has not written it since it became the leader.
    FirstLook,
    /// The wanted object has changed.
    Template,
    /// Another client changed it.
    Others,
}

/// The DaemonSet was not created by this controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Foreign;

/// Returns why the DaemonSet is to be written; `None` if it is up to date.
///
/// # Errors
/// `Foreign` for one that we have not made.
pub(super) fn due(
    found: Option<&DaemonSet>,
    wanted: &Value,
    made: Option<&Made>,
) -> Result<Option<Reason>, Foreign> {
    let Some(found) = found else {
        return Ok(Some(Reason::Absent));
    };
    if !is_ours(found) {
        return Err(Foreign);
    }
    let Some(made) = made.filter(|made| made.uid == found.metadata.uid) else {
        return Ok(Some(Reason::FirstLook));
    };
    let changed = made.generation != found.metadata.generation || !has_labels(found, wanted);
    Ok(if made.wanted != *wanted {
        Some(Reason::Template)
    } else if changed {
        Some(Reason::Others)
    } else {
        None
    })
}

/// Whether the DaemonSet is ours: by its label or, if the label was removed, by its field managers.
pub(super) fn is_ours(set: &DaemonSet) -> bool {
    let labels = set.metadata.labels.as_ref();
    let labelled = labels.and_then(|labels| labels.get(MANAGED_BY));
    let managers = set.metadata.managed_fields.iter().flatten();
    let mut managers = managers.filter_map(|entry| entry.manager.as_deref());
    labelled.is_some_and(|by| by == MANAGER) || managers.any(|manager| manager == MANAGER)
}

/// Whether the wanted labels are set. A change of labels does not change the generation.
fn has_labels(set: &DaemonSet, wanted: &Value) -> bool {
    let labels = set.metadata.labels.as_ref();
    let has = |key: &str, value: &Value| {
        let found = labels.and_then(|labels| labels.get(key));
        found.map(String::as_str) == value.as_str()
    };
    let wanted = wanted["metadata"]["labels"].as_object();
    wanted
        .into_iter()
        .flatten()
        .all(|(key, value)| has(key, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(image: &str) -> Value {
        json!({"metadata": {"labels": {MANAGED_BY: MANAGER, "a": "b"}}, "image": image})
    }

    fn found(metadata: &Value) -> DaemonSet {
        let mut metadata = metadata.clone();
        metadata["uid"] = "u-1".into();
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn ours(generation: i64) -> DaemonSet {
        found(&json!({"generation": generation, "labels": {MANAGED_BY: MANAGER, "a": "b"}}))
    }

    #[test]
    fn an_unchanged_daemon_set_is_not_written() {
        let (one, two) = (wanted("1"), wanted("2"));
        let made = Made::new(one.clone(), &ours(3));
        assert_eq!(due(None, &one, Some(&made)), Ok(Some(Reason::Absent)));
        assert_eq!(due(Some(&ours(3)), &one, None), Ok(Some(Reason::FirstLook)));
        assert_eq!(due(Some(&ours(3)), &one, Some(&made)), Ok(None));
        assert_eq!(
            due(Some(&ours(3)), &two, Some(&made)),
            Ok(Some(Reason::Template))
        );
        assert_eq!(
            due(Some(&ours(4)), &one, Some(&made)),
            Ok(Some(Reason::Others))
        );
        let mut another = ours(3);
        another.metadata.uid = Some("u-2".into());
        assert_eq!(
            due(Some(&another), &one, Some(&made)),
            Ok(Some(Reason::FirstLook))
        );
    }

    #[test]
    fn a_foreign_daemon_set_is_rejected_and_one_without_labels_is_recognized_by_its_managers() {
        let one = wanted("1");
        for metadata in [
            json!({}),
            json!({"labels": {MANAGED_BY: "Helm", "a": "b"}}),
            json!({"managedFields": [{"manager": "kubectl", "operation": "Apply"}]}),
        ] {
            assert_eq!(due(Some(&found(&metadata)), &one, None), Err(Foreign));
        }
        let by_us = json!([{"manager": MANAGER, "operation": "Apply"}]);
        let bare = found(&json!({"generation": 3, "managedFields": by_us}));
        let made = Made::new(one.clone(), &ours(3));
        assert_eq!(
            due(Some(&bare), &one, Some(&made)),
            Ok(Some(Reason::Others))
        );
    }
}
