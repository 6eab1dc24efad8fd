//! The reference below `docs/reference` is made from the definitions in the code, and commands in documents are
//! commands that the programs accept. With `PORTOLAN_WRITE_REFERENCE=1` the pages are written, otherwise compared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod alerts;
mod commands;
mod examples;
mod limits;
mod manifests;
mod settings;

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares a page with its content, or writes it.
fn compare(name: &str, content: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os("PORTOLAN_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, content).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let different = found.lines().zip(content.lines()).find(|(a, b)| a != b);
    assert!(
        found == content,
        "docs/reference/{name} is outdated; run `PORTOLAN_WRITE_REFERENCE=1 cargo test -p portolan-e2e --test \
         reference`. First different line: {different:?}"
    );
}

#[test]
fn the_page_of_alerts_is_current() {
    compare("alerts.md", &alerts::page());
}

#[test]
fn the_page_of_commands_is_current() {
    compare("commands.md", &commands::page());
}

#[test]
fn the_page_of_settings_is_current() {
    compare("settings.md", &settings::page());
}
