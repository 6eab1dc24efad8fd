//! The kernel's interface for the keeper of the nftables dataplane. No decisions are made below this level.

use portolan_plan::{Family, Protocol};
use portolan_reconcile::nftables::{Layout, LayoutPrint, ObservedTables, Tables, Transaction};
use portolan_reconcile::{Flow, VirtualServerKey};

use super::{KernelError, StaleFlows};

/// A kernel with nf_tables. Large transactions are executed on a thread of their own.
pub trait TablesKernel: Send {
    /// Reads the tables of both families, without the elements of the affinity maps.
    ///
    /// # Errors
    /// [`KernelError`] if some of it cannot be read; then nothing may be written either.
    fn read(&mut self) -> Result<ObservedTables, KernelError>;

    /// Reads how the chains, rules and sets of a family look; `None` if there is no table.
    ///
    /// # Errors
    /// [`KernelError`] if they cannot be read.
    fn layout(&mut self, family: Family) -> Result<Option<LayoutPrint>, KernelError>;

    /// Executes a transaction, and returns the operations that were left out. `tables` is the state for which it was
    /// computed. The elements of the affinity map of a table that is rebuilt are kept.
    ///
    /// # Errors
    /// [`CommitFailure`], unless the error is in doubt, nothing was executed.
    fn commit(
        &mut self,
        transaction: &Transaction,
        tables: &Tables,
        extent: Extent,
    ) -> Result<Vec<RefusedOperation>, CommitFailure>;

    /// Reads how many new connections each frontend has had since its table was built. Those without any for some days are
    /// left out, and start from zero again.
    ///
    /// # Errors
    /// [`KernelError`] if they cannot be read.
    fn connections(&mut self) -> Result<Vec<(VirtualServerKey, u64)>, KernelError>;

    /// Deletes the elements of a family's affinity map that send clients to a backend which takes no new connections,
    /// and returns their number ([`Tables::stale_affinity`]).
    ///
    /// # Errors
    /// [`KernelError`] if some may be left.
    fn purge_affinity(&mut self, family: Family, tables: &Tables) -> Result<usize, KernelError>;

    /// Puts the rules of this layout in the place of all rules of its chains, at once. The rest of the family's table
    /// stays. Returns whether it has the chains; without them, nothing is written.
    ///
    /// # Errors
    /// [`KernelError`] if the rules may be as before.
    fn replace_rules(&mut self, family: Family, layout: &Layout) -> Result<bool, KernelError>;

    /// Puts a table with only this layout in the place of the family's table, at once. Returns whether there was one;
    /// without one, nothing is written.
    ///
    /// # Errors
    /// [`KernelError`] if the table may be as before.
    fn replace(&mut self, family: Family, layout: &Layout) -> Result<bool, KernelError>;

    /// Deletes the table of a family. Returns whether there was one.
    ///
    /// # Errors
    /// [`KernelError`] if it may still exist.
    fn delete(&mut self, family: Family) -> Result<bool, KernelError>;

    /// Whether another program may have changed the tables since the last call. Cheap.
    fn is_disturbed(&mut self) -> bool;

    /// Reads all flows of a protocol and family from connection tracking, and returns the selected ones. A flow may be
    /// passed to `select` more than once.
    ///
    /// # Errors
    /// [`KernelError`] if they cannot be read; then none may be deleted either (S-130).
    fn flows(
        &mut self,
        protocol: Protocol,
        family: Family,
        select: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError>;

    /// Deletes exactly these flows of a protocol, with a result for each. A flow that does not exist any more counts as
    /// deleted.
    fn forget_flows(&mut self, protocol: Protocol, flows: &[Flow]) -> Vec<Result<(), KernelError>>;
}

/// How much of a transaction has to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it, or nothing is executed.
    Whole,
    /// All but the refused elements, which take several attempts to find.
    WithoutRefused,
}

/// Why a transaction was not executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitFailure {
    /// The kernel refused these operations. On kernels before 5.19, they may be all elements of a set. The list can be
    /// empty if only the backends of clients cannot be kept.
    Refused(Vec<RefusedOperation>),
    /// It failed for another reason.
    Failed(KernelError),
}

/// An operation that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedOperation {
    /// Its number in the transaction ([`Transaction::owner`]).
    pub number: usize,
    /// What it suggests.
    pub cause: RefusalCause,
    /// Whether it is about chains, rules or sets, without which elements are of no use.
    pub of_layout: bool,
    /// The error. It is [of a Service](KernelError::of_service) only for elements with a [`RefusalCause::Value`].
    pub error: KernelError,
}

/// What a refusal suggests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// The tables differ from the expected state: something is missing, or exists already.
    State,
    /// A value is not accepted.
    Value,
    /// The node lacks something: memory, a permission or a module.
    Node,
}
