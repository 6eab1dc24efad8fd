//! Objects of Kubernetes as they are read: what is taken, what is passed over, what is refused.
// Panics are a fine way for a test to fail, in its own functions too.
#![allow(clippy::panic, clippy::unwrap_used)]

mod external;
mod guard;
mod node;
mod rollout;
mod service;
mod settings;
mod slice;

use portolan_controller::manifests::{FileContents, Found, Severity};

pub(crate) fn read(kind: &str, metadata: &str, rest: &str) -> FileContents {
    let text = format!("kind: {kind}\nmetadata: {{{metadata}}}\n{rest}");
    FileContents::read("test", &text)
}

/// The one object of a text, which must be readable.
pub(crate) fn found(contents: &FileContents) -> Found {
    assert_eq!(contents.objects.len(), 1, "{:?}", contents.problems);
    (*contents.objects[0].1).clone()
}

/// The message about the one object of a text, which must not be readable.
pub(crate) fn refused(contents: &FileContents) -> String {
    assert_eq!(contents.objects, []);
    assert_eq!(contents.problems.len(), 1);
    assert_eq!(contents.problems[0].severity, Severity::LeftOut);
    contents.problems[0].message.clone()
}
