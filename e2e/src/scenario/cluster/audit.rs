//! The API server's own record of what the controller asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Every request of the controller.
#[derive(Debug, Default)]
pub(super) struct Audit {
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Response>,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    resource: String,
    subresource: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Response {
    code: Option<u16>,
}

impl Audit {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        // A server that was killed may have left half a line.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(Self {
            lines: lines.collect(),
        })
    }

    /// The most watches of each resource that were open at one time. A server that was killed has
    /// ended all of them without a word, so `restarts` may be added to what is seen.
    pub(super) fn most_watches(&self) -> BTreeMap<String, usize> {
        let mut open: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut most = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.verb == "watch") {
            let Some(object) = &line.object_ref else {
                continue;
            };
            let watches = open.entry(&object.resource).or_default();
            match line.stage.as_str() {
                "ResponseStarted" => drop(watches.insert(&line.id)),
                "ResponseComplete" => drop(watches.remove(line.id.as_str())),
                _ => {}
            }
            let seen = most.entry(object.resource.clone()).or_default();
            *seen = watches.len().max(*seen);
        }
        most
    }

    /// How many requests were answered, by verb and resource (`patch proxyplans/status`).
    pub(super) fn requests(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let done = self
            .lines
            .iter()
            .filter(|line| line.stage == "ResponseComplete");
        for line in done {
            let Some(object) = &line.object_ref else {
                continue;
            };
            let name = match &object.subresource {
                None => format!("{} {}", line.verb, object.resource),
                Some(sub) => format!("{} {}/{sub}", line.verb, object.resource),
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Requests that the access rules forbade.
    pub(super) fn forbidden(&self) -> Vec<&str> {
        let forbidden = |line: &&Line| {
            let code = line.response_status.as_ref().and_then(|status| status.code);
            code == Some(403)
        };
        self.lines
            .iter()
            .filter(forbidden)
            .map(|line| line.uri.as_str())
            .collect()
    }
}
