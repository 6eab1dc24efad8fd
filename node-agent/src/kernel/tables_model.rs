//! A model of the tables as a [`TablesKernel`], for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_plan::{Family, Protocol};
use portolan_reconcile::nftables::{
    Layout, LayoutPrint, ObservedTable, ObservedTables, Operation, TableElement, Tables,
    Transaction,
};
use portolan_reconcile::{Flow, VirtualServerKey};

use super::{
    CommitFailure, Extent, KernelError, RefusalCause, RefusedOperation, StaleFlows, TablesKernel,
};

/// A model of the tables that a test can inspect and disturb while it is being programmed.
#[derive(Debug, Clone, Default)]
pub struct SharedTables(Arc<Mutex<TablesModel>>);

/// The state of the model, its faults, and counters.
#[derive(Debug, Default)]
pub struct TablesModel {
    /// The tables.
    pub observed: ObservedTables,
    /// The elements by their key.
    elements: BTreeMap<(Family, String), TableElement>,
    /// The tables of the last commit.
    tables: Option<Tables>,
    /// Flows by protocol.
    pub flows: BTreeMap<Protocol, BTreeSet<Flow>>,
    /// The connections that frontends have counted.
    pub connections: Vec<(VirtualServerKey, u64)>,
    /// Number of clients that stay with a former backend.
    pub stale_clients: BTreeMap<Family, usize>,
    /// The executed transactions as texts.
    pub commits: Vec<Vec<String>>,
    /// Number of attempts to commit.
    pub attempts: usize,
    /// Number of reads of the tables.
    pub reads: usize,
    /// Number of reads of flows, by protocol and family.
    pub flow_reads: BTreeMap<(Protocol, Family), usize>,
    /// Whether another program changed something.
    pub disturbed: bool,
    /// If set, the tables cannot be read.
    pub unreadable: bool,
    /// If set, flows cannot be read.
    pub flows_unreadable: bool,
    /// Texts of operations whose values are refused.
    pub refused: BTreeSet<String>,
    /// A family whose rules are refused.
    pub refused_layout: Option<Family>,
    /// If set, there is no memory for another element.
    pub is_full: bool,
    /// If set, affinity cannot be purged.
    pub unpurgeable: bool,
    /// Number of the next commits whose answer is lost.
    pub lost_answers: usize,
    /// If set, the kernel lists chains and rules like this.
    pub listed: Option<LayoutPrint>,
}

impl SharedTables {
    /// The model itself.
    pub fn lock(&self) -> MutexGuard<'_, TablesModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TablesModel {
    /// Another program adds or deletes an element.
    pub fn disturb(&mut self, operation: &Operation) {
        self.disturbed = true;
        self.execute(operation);
    }

    /// Another program deletes a table.
    pub fn drop_table(&mut self, family: Family) {
        self.disturb(&Operation::DeleteTable(family));
    }

    /// Executes an operation as the kernel would, without a check.
    fn execute(&mut self, operation: &Operation) {
        let Some(tables) = self.tables.take() else {
            return;
        };
        self.observed.note([operation], &tables);
        self.tables = Some(tables);
        let family = operation.family();
        match operation {
            Operation::Add(element) => {
                self.elements.insert(key(element), element.clone());
            }
            Operation::Delete(element) => {
                self.elements.remove(&key(element));
            }
            Operation::Build { .. } | Operation::DeleteTable(_) => {
                self.elements.retain(|(of, _), _| *of != family);
            }
            Operation::ReplaceRules { .. } | Operation::Forget { .. } => {}
        }
        let is_of_rules = matches!(
            operation,
            Operation::Build { .. } | Operation::ReplaceRules { .. }
        );
        if let (true, Some(listed)) = (is_of_rules, &self.listed)
            && let Some(table) = self.observed.tables.get_mut(&family)
        {
            table.layout = listed.clone();
        }
    }

    /// Why an operation is refused.
    fn check(&self, operation: &Operation) -> Option<RefusalCause> {
        let exists = self.observed.tables.contains_key(&operation.family());
        let state = |is_right: bool| (!is_right).then_some(RefusalCause::State);
        match operation {
            Operation::Build { family, .. } | Operation::ReplaceRules { family, .. }
                if self.refused_layout == Some(*family) =>
            {
                Some(RefusalCause::Node)
            }
            Operation::Build { replaces, .. } => state(*replaces == exists),
            Operation::ReplaceRules { .. }
            | Operation::Forget { .. }
            | Operation::DeleteTable(_) => state(exists),
            Operation::Add(_) if self.refused.contains(&operation.to_string()) => {
                Some(RefusalCause::Value)
            }
            Operation::Add(_) if self.is_full => Some(RefusalCause::Node),
            Operation::Add(element) => {
                let held = self.elements.get(&key(element));
                state(exists && held.is_none_or(|held| held == element))
            }
            Operation::Delete(element) => state(self.elements.contains_key(&key(element))),
        }
    }
}

/// The key of an element: its text without its data.
fn key(element: &TableElement) -> (Family, String) {
    let text = match element {
        TableElement::Slot { frontend, slot, .. } => format!("endpoint {frontend} {slot}"),
        other => other.to_string(),
    };
    (element.family(), text)
}

impl TablesKernel for SharedTables {
    fn read(&mut self) -> Result<ObservedTables, KernelError> {
        let mut model = self.lock();
        model.reads += 1;
        if model.unreadable {
            let reason = "the model is set to be unreadable";
            return Err(KernelError::new("read the tables", reason));
        }
        Ok(model.observed.clone())
    }

    fn layout(&mut self, family: Family) -> Result<Option<LayoutPrint>, KernelError> {
        let model = self.lock();
        let table = model.observed.tables.get(&family);
        Ok(table.map(|table| table.layout.clone()))
    }

    fn commit(
        &mut self,
        transaction: &Transaction,
        tables: &Tables,
        extent: Extent,
    ) -> Result<Vec<RefusedOperation>, CommitFailure> {
        let mut model = self.lock();
        model.attempts += 1;
        let before = (model.observed.clone(), model.elements.clone());
        model.tables = Some(tables.clone());
        let (mut refused, mut executed) = (Vec::new(), Vec::new());
        for (number, operation) in transaction.operations().enumerate() {
            let Some(cause) = model.check(operation) else {
                model.execute(operation);
                executed.push(operation.to_string());
                continue;
            };
            let of_layout = !matches!(operation, Operation::Add(_) | Operation::Delete(_));
            let owner = transaction.owner(number);
            let has_service = owner.is_some_and(|owner| owner.service.is_some());
            let error = KernelError::new(operation, &format!("refused because of the {cause:?}"));
            refused.push(RefusedOperation {
                number,
                cause,
                of_layout,
                error: error.of_service_if(has_service && cause == RefusalCause::Value),
            });
        }
        if extent == Extent::Whole && !refused.is_empty() {
            (model.observed, model.elements) = before;
            return Err(CommitFailure::Refused(refused));
        }
        model.commits.push(executed);
        if model.lost_answers > 0 {
            model.lost_answers -= 1;
            let error = KernelError::new("change the tables", "the answer was lost");
            return Err(CommitFailure::Failed(error.in_doubt_if(true)));
        }
        Ok(refused)
    }

    fn connections(&mut self) -> Result<Vec<(VirtualServerKey, u64)>, KernelError> {
        Ok(self.lock().connections.clone())
    }

    fn purge_affinity(&mut self, family: Family, _: &Tables) -> Result<usize, KernelError> {
        let mut model = self.lock();
        if model.unpurgeable {
            return Err(KernelError::new(
                "purge affinity",
                "the model is set to refuse",
            ));
        }
        Ok(model.stale_clients.remove(&family).unwrap_or(0))
    }

    fn replace_rules(&mut self, family: Family, layout: &Layout) -> Result<bool, KernelError> {
        let mut model = self.lock();
        let Some(table) = model.observed.tables.get_mut(&family) else {
            return Ok(false);
        };
        let print = LayoutPrint::from(layout);
        let chains = print.chains();
        if !chains.is_subset(&table.layout.chains()) {
            return Ok(false);
        }
        table.layout.replace_rules(&chains, &print);
        let commit = format!("replace rules of the {family} table");
        model.commits.push(vec![commit]);
        Ok(true)
    }

    fn replace(&mut self, family: Family, layout: &Layout) -> Result<bool, KernelError> {
        let mut model = self.lock();
        let existed = model.observed.tables.contains_key(&family);
        if existed {
            model.execute(&Operation::DeleteTable(family));
            let table = ObservedTable::new(&layout.chains, &layout.sets, &layout.rules);
            model.observed.tables.insert(family, table);
            model
                .commits
                .push(vec![format!("replace the {family} table")]);
        }
        Ok(existed)
    }

    fn delete(&mut self, family: Family) -> Result<bool, KernelError> {
        let mut model = self.lock();
        let existed = model.observed.tables.contains_key(&family);
        model.execute(&Operation::DeleteTable(family));
        Ok(existed)
    }

    fn is_disturbed(&mut self) -> bool {
        std::mem::take(&mut self.lock().disturbed)
    }

    fn flows(
        &mut self,
        protocol: Protocol,
        family: Family,
        select: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        let mut model = self.lock();
        *model.flow_reads.entry((protocol, family)).or_default() += 1;
        if model.flows_unreadable {
            let reason = "the model is set to be unreadable";
            return Err(KernelError::new("read flows", reason));
        }
        let flows = model.flows.entry(protocol).or_default().iter();
        let flows: Vec<_> = flows
            .filter(|flow| flow.family() == family)
            .copied()
            .collect();
        let seen = u64::try_from(flows.len()).unwrap_or(u64::MAX);
        Ok(StaleFlows {
            seen,
            stale: flows.into_iter().filter(|flow| select(flow)).collect(),
            ..StaleFlows::default()
        })
    }

    fn forget_flows(&mut self, protocol: Protocol, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        let mut model = self.lock();
        let held = model.flows.entry(protocol).or_default();
        for flow in flows {
            held.remove(flow);
        }
        flows.iter().map(|_| Ok(())).collect()
    }
}
