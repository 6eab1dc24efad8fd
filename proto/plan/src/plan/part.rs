//! Extracts the part of a plan that a small change affects, so that the cost depends on the change and not on the
//! size of the plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{NodePlan, Replaces, StagedChanges};
use crate::key::ListKey;
use crate::{EntryKey, Family, Scope, ServiceId};

impl NodePlan {
    /// The node entry and all entries of these Services. The hashes cover only this part.
    pub fn part<'a>(&self, services: impl IntoIterator<Item = &'a ServiceId>) -> Self {
        let mut part = Self::default();
        part.copy(self, &EntryKey::Node);
        for service in services {
            part.copy_service(self, service);
        }
        part.sum();
        part
    }

    /// Copies the node entry and the entries of these Services from another plan. This plan must not contain entries
    /// of these Services yet.
    pub fn add_part<'a>(&mut self, from: &Self, services: impl IntoIterator<Item = &'a ServiceId>) {
        self.copy(from, &EntryKey::Node);
        for service in services {
            self.copy_service(from, service);
        }
        self.sum();
    }

    fn copy_service(&mut self, from: &Self, service: &ServiceId) {
        self.copy(from, &EntryKey::Head(service.clone()));
        let first = EntryKey::List(ListKey {
            service: service.clone(),
            port: Arc::default(),
            family: Family::Ipv4,
            scope: Scope::Cluster,
        });
        let lists = from.entries.range(first..);
        let own = |key: &EntryKey| matches!(key, EntryKey::List(list) if list.service == *service);
        for (key, held) in lists.take_while(|(key, _)| own(key)) {
            self.entries.insert(key.clone(), held.clone());
        }
        self.copy(from, &EntryKey::Local(service.clone()));
    }

    fn copy(&mut self, from: &Self, key: &EntryKey) {
        if let Some(held) = from.entries.get(key) {
            self.entries.insert(key.clone(), held.clone());
        }
    }
}

impl StagedChanges {
    /// The Services whose entries change. `None` if the change may affect all Services: a snapshot or bucket
    /// replacement, or a change of the node entry, on which everything depends.
    pub fn services(&self) -> Option<BTreeSet<ServiceId>> {
        if self.replaces != Replaces::Nothing || self.changes.contains_key(&EntryKey::Node) {
            return None;
        }
        let touched = self.changes.keys();
        Some(touched.filter_map(EntryKey::service).cloned().collect())
    }
}
