//! The change to another dataplane: the tables take no new connections, and keep existing ones until they end.

use std::collections::BTreeSet;

use portolan_plan::{Family, Protocol};
use portolan_reconcile::nftables::{Layout, LayoutPrint};
use portolan_reconcile::{Flow, VirtualServerKey};
use tracing::info;

use super::flows::ends;
use super::keeper::TablesKeeper;
use crate::kernel::{KernelError, TablesKernel};

/// The protocols whose connections are kept. A UDP flow never ends while its client sends, so it goes to the other
/// dataplane with the table.
const KEPT: [Protocol; 2] = [Protocol::Tcp, Protocol::Sctp];

/// Maximum number of reads of the UDP flows of a family in one step.
const MAX_READS: usize = 64;

/// A step of the change to another dataplane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handover {
    /// The families whose table was changed or deleted.
    pub changed: BTreeSet<Family>,
    /// Whether connections, and so a table, are left.
    pub unfinished: bool,
    /// Failures; the step is repeated.
    pub errors: Vec<KernelError>,
}

impl<K: TablesKernel> TablesKeeper<K> {
    /// Continues to hand Services over to another dataplane, which already serves all of them: tables leave new
    /// connections to it, then only keep the connections that they translated, and are deleted when none is left.
    /// `ipvs_marks` are the bits of packet marks that lead to IPVS, and `is_frontend` says what is a frontend of a
    /// Service.
    pub fn hand_over(
        &mut self,
        ipvs_marks: u32,
        is_frontend: &dyn Fn(&VirtualServerKey) -> bool,
    ) -> Handover {
        self.forget();
        let mut done = Handover::default();
        for family in Family::BOTH {
            match self.hand_over_family(family, ipvs_marks, is_frontend) {
                Ok(Step::Nothing) => {}
                Ok(Step::Yielded) => {
                    info!(%family, "the table takes no new connections");
                    done.changed.insert(family);
                    done.unfinished = true;
                }
                Ok(Step::Changed) => {
                    info!(%family, "the table only keeps connections until they end");
                    done.changed.insert(family);
                    done.unfinished = true;
                }
                Ok(Step::Waits) => done.unfinished = true,
                Ok(Step::Deleted) => {
                    info!(%family, "deleted the table: its connections have ended");
                    done.changed.insert(family);
                }
                Err(error) => {
                    done.unfinished = true;
                    done.errors.push(error);
                }
            }
        }
        done
    }

    fn hand_over_family(
        &mut self,
        family: Family,
        ipvs_marks: u32,
        is_frontend: &dyn Fn(&VirtualServerKey) -> bool,
    ) -> Result<Step, KernelError> {
        let Some(found) = self.kernel.layout(family)? else {
            self.forget_udp(family, is_frontend)?;
            return Ok(Step::Nothing);
        };
        let layout = Layout::keeping_connections(family, ipvs_marks);
        let print = LayoutPrint::new(&layout.chains, &layout.sets, &layout.rules);
        if found != print && self.keeping.get(&family) != Some(&found) {
            if self.yielded.insert(family) && self.yield_new(family, &layout)? {
                return Ok(Step::Yielded);
            }
            if !self.kernel.replace(family, &layout)? {
                return Ok(Step::Nothing);
            }
            // The kernel may list the rules in another form.
            let listed = self.kernel.layout(family)?;
            self.keeping.extend(listed.map(|listed| (family, listed)));
            return Ok(Step::Changed);
        }
        for protocol in KEPT {
            let is_kept = |flow: &Flow| flow.by_rules && is_frontend(&ends(protocol, flow).0);
            let found = self.kernel.flows(protocol, family, &is_kept)?;
            if found.interrupted || !found.stale.is_empty() {
                return Ok(Step::Waits);
            }
        }
        self.udp_due.insert(family);
        let deleted = self.kernel.delete(family)?;
        self.forget_udp(family, is_frontend)?;
        Ok(if deleted {
            Step::Deleted
        } else {
            Step::Nothing
        })
    }

    /// Leaves new connections to the other dataplane. Returns whether the table has changed.
    ///
    /// This is a step before the table is replaced, because the kernel deletes a table bit by bit: elements of maps at
    /// once, but rules of a chain only with its hook. In between, packets would lose their mark for IPVS, and would not
    /// be translated either.
    fn yield_new(&mut self, family: Family, keeping: &Layout) -> Result<bool, KernelError> {
        let changed = self.kernel.replace_rules(family, keeping);
        if changed.is_err() {
            self.yielded.remove(&family);
        }
        changed
    }

    /// Deletes the UDP flows to frontends that rules translated, if the table was deleted. Without it, their packets
    /// would be translated and then routed to IPVS.
    fn forget_udp(
        &mut self,
        family: Family,
        is_frontend: &dyn Fn(&VirtualServerKey) -> bool,
    ) -> Result<(), KernelError> {
        if !self.udp_due.contains(&family) {
            return Ok(());
        }
        let udp = Protocol::Udp;
        let is_left = |flow: &Flow| flow.by_rules && is_frontend(&ends(udp, flow).0);
        for _ in 0..MAX_READS {
            let left = self.kernel.flows(udp, family, &is_left)?;
            for result in self.kernel.forget_flows(udp, &left.stale) {
                result?;
            }
            if !left.more && !left.interrupted {
                self.udp_due.remove(&family);
                return Ok(());
            }
        }
        let reason = "the list changes each time it is read";
        Err(KernelError::new(
            "delete the UDP flows of the tables",
            reason,
        ))
    }
}

enum Step {
    /// There is no table.
    Nothing,
    /// The table takes no new connections now.
    Yielded,
    /// The table was changed, and only keeps connections now.
    Changed,
    /// Connections are left.
    Waits,
    /// The table was deleted.
    Deleted,
}
