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
use super::pods::AgentPods;
use super::track::Track;

/// Time after which a warning is logged if the agent of a node that moved back is not ready.
const READY_WARN_DELAY: Duration = Duration::from_secs(120);
/// Additional time before the warning is repeated.
const REPEAT_WARN_DELAY: Duration = Duration::from_secs(480);
/// Maximum number of Nodes that one pass labels.
const MAX_LABELED_NODES: usize = 200;

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
        for one in moves.take(MAX_LABELED_NODES) {
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
            info!(to, count, first = %first.node, "moved nodes to another DaemonSet of agents (label proxy.portolan.dev/track)");
        }
        failed.map_or(Ok(()), Err)
    }

    /// Logs nodes whose agents do not become ready. While as many nodes as allowed are unavailable, no other follows.
    fn warn_of_late(&mut self) {
        for (node, (to, since)) in &mut self.back {
            if since.elapsed() > READY_WARN_DELAY {
                *since = Instant::now() + REPEAT_WARN_DELAY;
                let to = to.name();
                warn!(
                    %node,
                    to,
                    "the agent of a node that was moved back is not ready; other nodes wait for it; `kubectl describe` \
                     of the agent's pod on the node shows the cause"
                );
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
            other => other.map(drop).map_err(|error| {
                let node = format!("{} (rbac.waves of the chart)", one.node);
                AgentsError::refused("label Node", &node, error)
            }),
        }
    }
}
