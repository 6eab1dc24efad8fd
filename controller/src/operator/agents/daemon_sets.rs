//! Reads and writes the DaemonSets of agents, of which there is one for each [`Track`].
//!
//! Accesses: the API server. It is read through watches ([`Watched`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::Patch;
use serde_json::Value;
use tracing::info;

use super::AgentsError;
use super::daemon_set::{Owner, apply_params, daemon_set, held, set_name};
use super::due::{Foreign, Made, Reason, due, is_ours};
use super::template::Template;
use super::track::{Held, Sets, Track};
use super::wanted::WantedAgents;
use super::watched::Watched;
use crate::auth::Named;

/// The DaemonSets, with the results of the last writes.
pub(super) struct DaemonSets {
    api: Api<DaemonSet>,
    watched: Arc<Watched>,
    made: BTreeMap<Track, Made>,
}

impl DaemonSets {
    pub(super) fn new(api: Api<DaemonSet>, watched: Arc<Watched>) -> Self {
        Self {
            api,
            watched,
            made: BTreeMap::new(),
        }
    }

    /// Discards the results of the last writes: another controller may have written since.
    pub(super) fn clear(&mut self) {
        self.made.clear();
    }

    /// Both DaemonSets as stored, and their template and node selection.
    pub(super) fn read(
        &self,
        template: &Template,
        owner: &Owner,
    ) -> Result<(BTreeMap<Track, Arc<DaemonSet>>, Sets), AgentsError> {
        let (mut found, mut sets) = (BTreeMap::new(), Sets::default());
        for track in Track::ALL {
            let set = self.read_one(template, owner, track)?;
            if let Some(held) = set.as_ref().and_then(|set| self.held(track, set)) {
                sets.put(track, &held.agents, held.takes);
            }
            found.extend(set.map(|set| (track, set)));
        }
        Ok((found, sets))
    }

    /// Writes both DaemonSets. A failure of one does not stop the other.
    pub(super) async fn write(
        &mut self,
        sets: &Sets,
        wanted: &WantedAgents,
        owner: &Owner,
        found: &BTreeMap<Track, Arc<DaemonSet>>,
    ) -> Result<(), AgentsError> {
        let mut written = Ok(());
        for track in Track::ALL {
            // A DaemonSet with an unknown template is left as it is while nodes belong to it.
            let held = sets.get(track);
            let template = held.and_then(|held| wanted.template(&held.agents));
            let (Some(held), Some(template)) = (held, template) else {
                continue;
            };
            let object = daemon_set(template, owner, track, held.takes);
            let set = named_set(template, owner, track);
            let wrote = self
                .write_one(&set, track, found.get(&track).map(|found| &**found), object)
                .await;
            written = written.and(wrote);
        }
        written
    }

    fn read_one(
        &self,
        template: &Template,
        owner: &Owner,
        track: Track,
    ) -> Result<Option<Arc<DaemonSet>>, AgentsError> {
        let set = named_set(template, owner, track);
        let found = self.watched.sets.get(&set.name)?;
        if found.as_ref().is_some_and(|found| !is_ours(found)) {
            return Err(AgentsError::Foreign { set });
        }
        Ok(found)
    }

    /// The template and node selection of a DaemonSet. What this controller wrote last takes precedence over the
    /// stored object, which others may have changed.
    fn held(&self, track: Track, found: &DaemonSet) -> Option<Held> {
        let made = self.made.get(&track);
        let made = made.filter(|made| made.uid == found.metadata.uid);
        made.and_then(|made| held(&made.wanted))
            .or_else(|| held(&serde_json::to_value(found).ok()?))
    }

    /// Writes a DaemonSet if it differs from the wanted object.
    async fn write_one(
        &mut self,
        set: &Named,
        track: Track,
        found: Option<&DaemonSet>,
        wanted: Value,
    ) -> Result<(), AgentsError> {
        let reason = match due(found, &wanted, self.made.get(&track)) {
            Err(Foreign) => return Err(AgentsError::Foreign { set: set.clone() }),
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => reason,
        };
        let applied = self
            .api
            .patch(&set.name, &apply_params(), &Patch::Apply(&wanted))
            .await;
        let applied =
            applied.map_err(|error| AgentsError::refused("write DaemonSet", set, error))?;
        let before = found.and_then(|found| found.metadata.generation);
        let changed = before != applied.metadata.generation;
        let line = match reason {
            Reason::Absent => "created the DaemonSet of agents",
            Reason::Template => "changed the nodes or the template of the DaemonSet of agents",
            Reason::FirstLook if changed => "corrected the DaemonSet of agents",
            Reason::FirstLook => "the DaemonSet of agents is up to date",
            Reason::Others if changed => {
                "reverted a change of the DaemonSet of agents by another client"
            }
            Reason::Others => {
                "another client changed fields of the DaemonSet of agents that the template does not set; they stay"
            }
        };
        info!(%set, "{line}");
        self.watched
            .sets
            .wrote(&applied, |applied| Some(applied.clone()));
        self.made.insert(track, Made::new(wanted, &applied));
        Ok(())
    }
}

fn named_set(template: &Template, owner: &Owner, track: Track) -> Named {
    Named {
        namespace: owner.map.namespace.clone(),
        name: set_name(template, track),
    }
}
