//! The audit log of the API server: the controller's requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::control_plane::Options;

/// The file of the audit log.
const LOG: &str = "audit.log";
/// The kinds of objects from which plans are made. Controllers list them only where a watch begins.
const PLANNED: [&str; 5] = [
    "nodes",
    "services",
    "endpointslices",
    "servicecidrs",
    "proxyconfigs",
];

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
    #[serde(rename = "requestURI", default)]
    request_uri: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Response>,
}

impl Line {
    /// Whether it is about a request for all objects of a kind: for the first page of a list, or for a watch that
    /// begins with the existing objects.
    fn is_list(&self) -> bool {
        match self.verb.as_str() {
            // The first page. Events find the UID of their object by a list of one object, without a limit.
            "list" => {
                self.request_uri.contains("limit=") && !self.request_uri.contains("continue=")
            }
            "watch" => self.request_uri.contains("sendInitialEvents=true"),
            _ => false,
        }
    }

    /// The status of the response, once the server responds.
    fn code(&self) -> Option<u16> {
        // A watch that is still open has no other line.
        let begun = matches!(self.stage.as_str(), "ResponseStarted" | "ResponseComplete");
        self.response_status.as_ref()?.code.filter(|_| begun)
    }
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

const POLICY: &str = include_str!("../../../api/audit.yaml");

impl Audit {
    /// Makes the API server write its audit log into a folder.
    pub(super) fn keep(folder: &Path, options: &mut Options) -> Result<()> {
        let (policy, log) = (folder.join("audit.yaml"), folder.join(LOG));
        std::fs::write(&policy, POLICY)?;
        options.api_server.extend([
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ]);
        Ok(())
    }

    /// Reads the audit log of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(LOG);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // A server that was killed may have left half a line.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(Self {
            lines: lines.collect(),
        })
    }

    /// The most watches of each resource that were open at one time. A killed server ends its
    /// watches without an audit entry, so each restart may add to the count.
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

    /// Number of granted requests, by verb and resource (`patch proxyplans/status`) or path (`get /openid/v1/jwks`).
    pub(super) fn granted(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (name, _) in self.answered().filter(|(_, code)| *code < 400) {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Number of granted `get` and `list` requests of objects, by verb and resource, without those of the leader
    /// election.
    pub(super) fn reads(&self) -> BTreeMap<String, usize> {
        let mut reads = self.granted();
        reads.retain(|name, _| {
            let is_read = name.starts_with("get ") || name.starts_with("list ");
            is_read && name != "get leases" && !name.contains(" /")
        });
        reads
    }

    /// Number of granted lists of each kind from which plans are made, in pages or as streams.
    pub(super) fn lists(&self) -> BTreeMap<String, usize> {
        let mut requests: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let granted = |line: &&Line| line.is_list() && line.code().is_some_and(|code| code < 400);
        for line in self.lines.iter().filter(granted) {
            let kind = line.object_ref.as_ref().map(|object| &*object.resource);
            if let Some(kind) = kind.filter(|kind| PLANNED.contains(kind)) {
                // A stream has two lines.
                requests.entry(kind).or_default().insert(&line.id);
            }
        }
        let count = |(kind, ids): (&str, BTreeSet<&str>)| (kind.to_owned(), ids.len());
        requests.into_iter().map(count).collect()
    }

    /// Kinds of requests that RBAC forbade and never granted. A server that has just started
    /// forbids everything for a moment, because it has not read its roles yet.
    pub(super) fn forbidden(&self) -> BTreeSet<String> {
        let granted = self.granted();
        let forbidden = self.answered().filter(|(_, code)| *code == 403);
        forbidden
            .map(|(name, _)| name)
            .filter(|name| !granted.contains_key(name))
            .collect()
    }

    /// Fails if RBAC forbade a kind of request and never granted it.
    pub(super) fn nothing_forbidden(&self) -> Result<()> {
        let forbidden = self.forbidden();
        ensure!(forbidden.is_empty(), "it was forbidden to {forbidden:?}");
        Ok(())
    }

    /// Each request and the status of its response.
    fn answered(&self) -> impl Iterator<Item = (String, u16)> {
        self.lines.iter().filter_map(|line| {
            let code = line.code()?;
            let mut name = format!("{} ", line.verb);
            match &line.object_ref {
                None => name.push_str(&line.request_uri),
                Some(object) => {
                    name.push_str(&object.resource);
                    if let Some(sub) = &object.subresource {
                        name.push('/');
                        name.push_str(sub);
                    }
                }
            }
            Some((name, code))
        })
    }
}

/// What was counted after an earlier count.
pub(super) fn since(
    before: &BTreeMap<String, usize>,
    after: &BTreeMap<String, usize>,
) -> BTreeMap<String, usize> {
    let new = |(name, count): (&String, &usize)| {
        let count = count.saturating_sub(before.get(name).copied().unwrap_or_default());
        (count > 0).then(|| (name.clone(), count))
    };
    after.iter().filter_map(new).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DONE: &str = "ResponseComplete";

    fn line(id: &str, stage: &str, verb: &str, query: &str, code: u16) -> Line {
        let line = json!({
            "auditID": id, "stage": stage, "verb": verb, "requestURI": format!("/api/v1/{query}"),
            "objectRef": {"resource": query.split('?').next()}, "responseStatus": {"code": code},
        });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn lists_are_counted_once_each_in_pages_and_as_streams() {
        let (begun, stream) = ("ResponseStarted", "nodes?watch=true&sendInitialEvents=true");
        let lines = vec![
            line("1", begun, "watch", stream, 200),
            line("1", DONE, "watch", stream, 200),
            line("2", begun, "watch", stream, 200),
            line("3", DONE, "watch", stream, 422),
            line("4", begun, "watch", "nodes?watch=true", 200),
            line("5", DONE, "list", "services?limit=500", 200),
            line("6", DONE, "list", "services?continue=x", 200),
            line("7", DONE, "list", "pods?limit=500", 200),
            line("8", "RequestReceived", "list", "services", 200),
        ];
        let lists = Audit { lines }.lists();
        let expected = [("nodes".to_owned(), 2), ("services".to_owned(), 1)];
        assert_eq!(lists, BTreeMap::from(expected));
        let before = BTreeMap::from([("nodes".to_owned(), 2)]);
        let later = BTreeMap::from([("services".to_owned(), 1)]);
        assert_eq!(since(&before, &lists), later);
    }
}
