//! Labels Nodes for the DaemonSet that they should belong to. Accesses: the API server, the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use super::AgentsError;
use super::assign::{Member, Move, due};
use super::daemon_set::MANAGER;
use super::operator::refused;
use super::pods::AgentPods;
use super::track::Track;

/// How long the agent of a node that moved back may take to become ready before a warning is logged.
const ARRIVES: Duration = Duration::from_secs(120);
/// The additional time before the warning is repeated.
const AGAIN: Duration = Duration::from_secs(480);
/// The maximum number of Nodes labelled in one pass.
const LABELS: usize = 200;

/// Nodes that are moving back.
pub(super) struct Moving {
    nodes: Api<Node>,
    /// Their DaemonSet and when they were moved, until their agents are ready there. There is no timeout: if the
    /// former image cannot be pulled any more, no other node loses its agent for it.
    back: BTreeMap<Arc<str>, (Track, Instant)>,
}

impl Moving {
    pub(super) fn new(nodes: Api<Node>) -> Self {
        Self {
            nodes,
            back: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.back.is_empty()
    }

    /// Discards the state, because another controller has moved nodes since.
    pub(super) fn clear(&mut self) {
        self.back.clear();
    }

    /// Carries out the moves that are due. At most `most` nodes move back at a time. No node moves to a DaemonSet
    /// whose current spec its controller has not observed (`settled`), because that would create a pod of the former
    /// template. A failed move does not stop the others.
    pub(super) async fn carry_out(
        &mut self,
        moves: &[Move],
        pods: &AgentPods,
        members: &[Member],
        most: usize,
        settled: impl Fn(Track) -> bool,
    ) -> Result<(), AgentsError> {
        let names: BTreeSet<_> = members.iter().map(|member| &member.name).collect();
        self.back
            .retain(|node, (to, _)| names.contains(node) && !pods.serves(node, *to));
        self.warn_of_late();
        let serves = |node: &str| Track::ALL.iter().any(|track| pods.serves(node, *track));
        let moves = due(moves, self.back.len(), most, serves);
        let moves = moves.into_iter().filter(|one| settled(one.to));
        let (mut moved, mut failed) = (Vec::new(), None);
        for one in moves.take(LABELS) {
            match self.label(one).await {
                Ok(()) => moved.push(one),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        for one in moved.iter().filter(|one| one.back) {
            let since = (one.to, Instant::now());
            self.back.entry(one.node.clone()).or_insert(since);
        }
        if let Some(first) = moved.first() {
            let (to, count) = (first.to.name(), moved.len());
            info!(to, count, first = %first.node, "nodes were labelled for other agents");
        }
        failed.map_or(Ok(()), Err)
    }

    /// Logs nodes whose agents do not become ready. While as many nodes as allowed are unavailable, no other follows.
    fn warn_of_late(&mut self) {
        for (node, (to, since)) in &mut self.back {
            if since.elapsed() > ARRIVES {
                *since = Instant::now() + AGAIN;
                let to = to.name();
                warn!(%node, to, "the agent of a node that went back is not ready; others wait for it");
            }
        }
    }

    async fn label(&self, one: &Move) -> Result<(), AgentsError> {
        let value = one.label.map(Track::name);
        let patch = json!({"metadata": {"labels": {Track::LABEL: value}}});
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        let patched = self
            .nodes
            .patch_metadata(&one.node, &params, &Patch::Merge(&patch))
            .await;
        match patched {
            // The Node was deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other
                .map(drop)
                .map_err(|error| refused("label Node", &one.node, error)),
        }
    }
}
