//! The measured plan, as the controller computes it from the manifests, and changes of it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use portolan_plan::{
    Backend, BackendList, Change, Entry, EntryHash, EntryKey, Family, ListKey, NodePlan, Period,
    PlanDocument, Scope, ServiceId, StagedChanges,
};

use super::scale::{NAMESPACE, NODE, Scale};
use crate::program::Program;

/// A node's plan, and what has been changed in it.
#[derive(Debug)]
pub struct Plan {
    plan: NodePlan,
    moves: u8,
}

impl Plan {
    /// The controller's plan for the node. Only changes make the programmer read the kernel: the
    /// sync period is longer than any run.
    ///
    /// # Errors
    /// The error of the controller.
    pub fn of(manifests: &Path) -> Result<Self> {
        let manifests = manifests.display().to_string();
        let words = [
            "plan",
            "--manifests",
            &manifests,
            "--node",
            NODE,
            "-o",
            "json",
        ];
        let text = Program::Controller.run(&words)?;
        let mut document: PlanDocument =
            serde_json::from_str(&text).context("read the controller's plan")?;
        document.settings.sync.period = Period::seconds(24 * 3600);
        let plan = document.into_plan().context("read the controller's plan")?;
        Ok(Self { plan, moves: 0 })
    }

    /// The whole plan, as a node without a plan gets it.
    #[must_use]
    pub fn whole(&self) -> StagedChanges {
        let mut staged = StagedChanges::snapshot();
        for (key, entry) in self.plan.entries() {
            staged.push(upsert(key.clone(), entry.clone()));
        }
        staged
    }

    /// How many Services it has.
    #[must_use]
    pub fn services(&self) -> usize {
        self.plan.heads().count()
    }

    /// One endpoint moves of each of these Services: it is gone, and one of another address is there.
    ///
    /// # Errors
    /// There is no such Service, or it has no endpoint.
    pub fn move_endpoints(
        &mut self,
        services: impl IntoIterator<Item = u32>,
    ) -> Result<StagedChanges> {
        self.moves = self.moves.wrapping_add(1);
        let mut staged = StagedChanges::delta();
        for number in services {
            let (key, list) = self.list(number)?;
            let mut backends = list.as_slice().to_vec();
            let moved = backends
                .pop()
                .with_context(|| format!("{key} has no endpoint"))?;
            let [_, _, high, low] = number.to_be_bytes();
            backends.push(Backend {
                address: IpAddr::V4(Ipv4Addr::new(172, self.moves, high, low)),
                ..moved
            });
            let entry = Entry::List(Arc::new(BackendList::new(backends)));
            staged.push(upsert(key, entry));
        }
        self.note(&staged)?;
        Ok(staged)
    }

    fn list(&self, number: u32) -> Result<(EntryKey, Arc<BackendList>)> {
        let wanted = ListKey {
            service: ServiceId::new(NAMESPACE, Scale::service(number)),
            port: "http".into(),
            family: Family::Ipv4,
            scope: Scope::Cluster,
        };
        let found = self.plan.lists().find(|(key, _)| **key == wanted);
        let (_, list) = found.with_context(|| format!("no Service {number} in the plan"))?;
        Ok((EntryKey::List(wanted), list.clone()))
    }

    fn note(&mut self, staged: &StagedChanges) -> Result<()> {
        let hash = self.plan.hash();
        self.plan
            .apply(staged.clone(), hash)
            .context("change the plan")
    }
}

/// Entries of a document have no hash of their own.
fn upsert(key: EntryKey, entry: Entry) -> Change {
    Change::Upsert {
        key,
        hash: EntryHash::default(),
        entry: Some(entry),
    }
}
