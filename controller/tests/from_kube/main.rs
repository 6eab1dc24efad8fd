//! Conversion of Kubernetes objects: what is used, ignored and rejected.
// Tests, and their helper functions, may fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

mod external;
mod guard;
mod limits;
mod node;
mod rollout;
mod service;
mod settings;
mod slice;

use portolan_controller::manifests::{FileContents, Severity};
use portolan_planner::model::Object;

pub(crate) fn read(kind: &str, metadata: &str, rest: &str) -> FileContents {
    let text = format!("kind: {kind}\nmetadata: {{{metadata}}}\n{rest}");
    FileContents::read("test", &text)
}

/// The only object of a text, which must be readable.
pub(crate) fn found(contents: &FileContents) -> Object {
    assert_eq!(contents.objects.len(), 1, "{:?}", contents.problems);
    (*contents.objects[0].1).clone()
}

/// The error about the only object of a text, which must be unreadable.
pub(crate) fn refused(contents: &FileContents) -> String {
    assert_eq!(contents.objects, []);
    assert_eq!(contents.problems.len(), 1);
    assert_eq!(contents.problems[0].severity, Severity::LeftOut);
    contents.problems[0].message.clone()
}
