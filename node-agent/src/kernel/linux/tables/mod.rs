//! The tables of the nftables dataplane in the Linux kernel, over netlink only: neither IPVS, ipset nor iptables is
//! needed.

mod changes;
mod commit;
mod owner;
mod read;

use nft_rs::{Batch, Errno, Error, Operation, Socket, TableFlags};
use portolan_plan::{Family, Protocol};
use portolan_reconcile::nftables::{
    Layout, LayoutPrint, ObservedTables, SetName, Tables, Transaction, counted, table_id,
};
use portolan_reconcile::{Flow, VirtualServerKey};
use tracing::debug;

pub use self::changes::TableChanges;
use super::Conntrack;
use crate::kernel::{
    CommitFailure, Extent, KernelError, RefusedOperation, StaleFlows, TablesKernel,
};

/// The number of times that the tables are read at most, if another program changes nf_tables at the same time. Chains,
/// rules and elements are listed one after the other, so such a reading may show a part from before the change.
const TABLE_READS: u32 = 3;
/// The number of times that an affinity map is listed at most. Rules change it and the kernel resizes it, so that a single
/// list can be wrong. On a busy node no two lists are equal, and a list of all clients can take a second.
const AFFINITY_READS: u32 = 4;

/// The tables in the network namespace of the thread that opened them.
#[derive(Debug)]
pub struct NftTables {
    pub(super) socket: Socket,
    conntrack: Conntrack,
    changes: TableChanges,
    /// The generation that nf_tables has unless another program commits; `None` if unknown.
    generation: Option<u32>,
    /// The properties of tables that are built.
    flags: TableFlags,
}

impl NftTables {
    /// Opens the sockets in the network namespace of the calling thread, and checks that the kernel has nf_tables.
    /// `changes` detects changes by other programs if it is also passed to [`super::Events::of_tables`].
    ///
    /// # Errors
    /// [`KernelError`] if it has none, or if this process may not use it.
    pub fn open(changes: TableChanges) -> Result<Self, KernelError> {
        let socket = Socket::open().map_err(|error| failed("open nf_tables", &error))?;
        let conntrack = Conntrack::open()?;
        let mut tables = Self {
            socket,
            conntrack,
            changes,
            generation: None,
            flags: TableFlags::default(),
        };
        tables.share_port();
        Ok(tables)
    }

    /// Makes the tables the property of this process, if the kernel can do that: from 6.9 on. Existing tables without an
    /// owner get one when they are built again. Returns whether it can.
    ///
    /// # Errors
    /// [`KernelError`] if the kernel does not answer.
    pub fn own(&mut self) -> Result<bool, KernelError> {
        let can_own = owner::is_supported(&mut self.socket)?;
        if can_own {
            self.flags = owner::OWNED;
        }
        Ok(can_own)
    }

    /// Adopts the tables of an earlier process, or of an earlier socket of this one.
    fn adopt(&mut self) -> Result<(), KernelError> {
        if self.flags.owner {
            for family in Family::BOTH {
                owner::adopt(&mut self.socket, family)?;
            }
        }
        Ok(())
    }

    /// The number of the socket, which events contain for the agent's own transactions. It differs after a failure.
    fn share_port(&mut self) {
        if self.socket.port().is_none() {
            // Any request opens another socket. If that fails, the next request reports it.
            self.read_generation();
        }
        self.changes.set_own_port(self.socket.port());
    }

    /// Commits a batch that begins with the deletion of something. Returns whether it existed.
    fn commit_over(&mut self, batch: &Batch, action: &str) -> Result<bool, KernelError> {
        self.share_port();
        match self.socket.commit(batch) {
            Ok(()) => {
                self.note_commit();
                Ok(true)
            }
            Err(error @ Error::Refused(_)) if error.errno() == Some(Errno::NOT_FOUND) => Ok(false),
            Err(error) => Err(failed(action, &error)),
        }
    }

    fn read_generation(&mut self) -> Option<u32> {
        let generation = self.socket.generation().ok();
        generation.map(|generation| generation.id)
    }

    /// Counts an own transaction. The kernel leaves out the number 0.
    fn note_commit(&mut self) {
        let next = |id: u32| id.checked_add(1).unwrap_or(1);
        self.generation = self.generation.map(next);
    }
}

impl TablesKernel for NftTables {
    fn read(&mut self) -> Result<ObservedTables, KernelError> {
        self.share_port();
        self.adopt()?;
        let mut reads = 0;
        loop {
            reads += 1;
            self.generation = self.read_generation();
            let found = read::tables(&mut self.socket)?;
            // After the last one, a change during the reading makes the generation differ from the noted one.
            if reads == TABLE_READS || self.read_generation() == self.generation {
                return Ok(found);
            }
            debug!("another program changed nf_tables while it was read; reading it again");
        }
    }

    fn layout(&mut self, family: Family) -> Result<Option<LayoutPrint>, KernelError> {
        let table = read::layout(&mut self.socket, family)?;
        Ok(table.map(|(table, _)| table.layout))
    }

    fn commit(
        &mut self,
        transaction: &Transaction,
        tables: &Tables,
        extent: Extent,
    ) -> Result<Vec<RefusedOperation>, CommitFailure> {
        self.share_port();
        let (socket, flags) = (&mut self.socket, self.flags);
        let committed = commit::commit(socket, transaction, tables, flags, extent);
        match &committed {
            Ok(_) => self.note_commit(),
            Err(CommitFailure::Failed(error)) if error.in_doubt => self.generation = None,
            Err(_) => {}
        }
        committed
    }

    fn connections(&mut self) -> Result<Vec<(VirtualServerKey, u64)>, KernelError> {
        let mut connections = Vec::new();
        for family in Family::BOTH {
            let (id, set) = (table_id(family), SetName::Counted.to_string());
            let elements = self.socket.settled_elements(&id, &set, AFFINITY_READS);
            let action = format!("read the connections of the {family} table");
            let elements = elements.map_err(|error| failed(&action, &error))?;
            connections.extend(counted(family, elements.unwrap_or_default()));
        }
        Ok(connections)
    }

    fn purge_affinity(&mut self, family: Family, tables: &Tables) -> Result<usize, KernelError> {
        self.share_port();
        let (id, set) = (table_id(family), SetName::Affinity.to_string());
        let action = format!("remove clients of former backends from the {family} table");
        let elements = self.socket.settled_elements(&id, &set, AFFINITY_READS);
        let elements = elements.map_err(|error| failed(&action, &error))?;
        let stale = tables.stale_affinity(family, &elements.unwrap_or_default());
        if stale.is_empty() {
            return Ok(0);
        }
        let mut batch = Batch::new();
        batch.delete_elements(&id, &set, &stale);
        let committed = self.socket.commit_without_refused(&batch);
        let committed = committed.map_err(|error| failed(&action, &error))?;
        // An element whose time is over is gone already.
        let is_gone = |errno: Errno| errno == Errno::NOT_FOUND;
        if let Some(refused) = committed.refusals.iter().find(|one| !is_gone(one.errno)) {
            return Err(KernelError::new(&action, &refused.errno));
        }
        let deleted = stale.len().saturating_sub(committed.refusals.len());
        if deleted > 0 {
            self.note_commit();
        }
        Ok(deleted)
    }

    fn replace_rules(&mut self, family: Family, layout: &Layout) -> Result<bool, KernelError> {
        let table = table_id(family);
        let mut batch = Batch::new();
        for chain in &layout.chains {
            batch.flush_chain(&table, &chain.name);
        }
        for rule in &layout.rules {
            batch.add_rule(&table, rule);
        }
        self.commit_over(&batch, &format!("replace rules of the {family} table"))
    }

    fn replace(&mut self, family: Family, layout: &Layout) -> Result<bool, KernelError> {
        let mut batch = Batch::new();
        batch.delete_table(&table_id(family));
        layout.encode(self.flags, &mut batch);
        self.commit_over(&batch, &format!("replace the {family} table"))
    }

    fn delete(&mut self, family: Family) -> Result<bool, KernelError> {
        let mut batch = Batch::new();
        batch.delete_table(&table_id(family));
        self.commit_over(&batch, &format!("delete the {family} table"))
    }

    fn is_disturbed(&mut self) -> bool {
        // A flood of own changes may overrun the queue of events, so that nothing is known about other programs.
        self.changes.take()
            && (self.generation.is_none() || self.read_generation() != self.generation)
    }

    fn flows(
        &mut self,
        protocol: Protocol,
        family: Family,
        select: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        self.conntrack.stale_of(protocol, family, select)
    }

    fn forget_flows(&mut self, protocol: Protocol, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        self.conntrack.forget_of(protocol, flows)
    }
}

/// Whether an operation is about elements, and not about the sets that hold them.
fn is_of_elements(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::AddElements(_) | Operation::DeleteElements(_)
    )
}

fn failed(action: &str, error: &Error) -> KernelError {
    KernelError::new(action, error).in_doubt_if(error.is_of_socket())
}
