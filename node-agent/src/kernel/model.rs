//! The model kernel as a [`Kernel`], for tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_plan::Family;
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{
    Connections, Desired, Flow, IpvsOp, ModelKernel, Network, Observed, Op, Refusal,
    VirtualServerKey,
};

use super::{Kernel, KernelError, SharedTables, StaleFlows};
use crate::traffic::Traffic;

const UNREADABLE: &str = "the model is set to be unreadable";

/// A model kernel that a test can inspect while it is being programmed.
#[derive(Debug, Clone, Default)]
pub struct SharedModel {
    model: Arc<Mutex<ModelKernel>>,
    faults: Arc<Mutex<ObservationFaults>>,
    tables: SharedTables,
}

/// Faults of reads and writes, and counters of reads.
#[derive(Debug, Clone, Default)]
pub struct ObservationFaults {
    /// Number of reads of the network, including failed ones.
    pub network: usize,
    /// Number of reads of virtual servers, sets and rules.
    pub services: usize,
    /// Number of reads of the flows of a family, including failed ones.
    pub flows: BTreeMap<Family, usize>,
    /// If set, the kernel has no nf_tables.
    pub without_nf_tables: bool,
    /// If set, the network cannot be read.
    pub network_unreadable: bool,
    /// If set, flows cannot be read.
    pub flows_unreadable: bool,
    /// If set, lists of flows change while they are read.
    pub interrupted: bool,
    /// Maximum number of stale flows per read, if limited.
    pub flows_at_once: Option<usize>,
    /// Results of the next reads of the network, which changes while it is read.
    pub next_networks: VecDeque<Network>,
    /// Families whose rules cannot be read, with the reason.
    pub unread_rules: BTreeMap<Family, String>,
    /// A family whose rules cannot be loaded.
    pub refused_rules: Option<Family>,
    /// Schedulers whose modules are missing.
    pub missing_schedulers: BTreeSet<Arc<str>>,
    /// Addresses that are not those of a single host, so that no real server may have them.
    pub refused_backends: BTreeSet<IpAddr>,
    /// Virtual servers for which there is no memory.
    pub refused_servers: BTreeSet<VirtualServerKey>,
    /// Traffic counters of virtual servers.
    pub traffic: BTreeMap<VirtualServerKey, Traffic>,
    /// Number of the next successful operations whose answer is lost.
    pub lost_answers: usize,
}

impl SharedModel {
    /// The model itself.
    pub fn lock(&self) -> MutexGuard<'_, ModelKernel> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables of the nftables dataplane.
    pub fn tables(&self) -> &SharedTables {
        &self.tables
    }

    /// The faults and counters.
    pub fn faults(&self) -> MutexGuard<'_, ObservationFaults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel for SharedModel {
    type Tables = SharedTables;

    fn open_tables(&mut self) -> Result<SharedTables, KernelError> {
        if self.faults().without_nf_tables {
            return Err(KernelError::new("open nf_tables", UNREADABLE));
        }
        Ok(self.tables.clone())
    }

    fn may_have_tables(&mut self) -> bool {
        !self.tables.lock().observed.tables.is_empty()
    }

    fn network(&mut self, _: &str) -> Result<Network, KernelError> {
        let mut faults = self.faults();
        faults.network += 1;
        if faults.network_unreadable {
            return Err(KernelError::new("read addresses and routes", UNREADABLE));
        }
        match faults.next_networks.pop_front() {
            Some(network) => Ok(network),
            None => Ok(self.lock().state.network()),
        }
    }

    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
        let state = &self.lock().state;
        let found = names.iter().filter_map(|name| {
            let (name, value) = state.sysctls.get_key_value(name)?;
            Some((name.clone(), value.clone()))
        });
        found.collect()
    }

    fn has_scheduler(&mut self, name: &str) -> bool {
        ModelKernel::has_scheduler(name) && !self.faults().missing_schedulers.contains(name)
    }

    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError> {
        let mut faults = self.faults();
        faults.services += 1;
        let mut observed = self.lock().state.clone();
        observed.unread_rules.clone_from(&faults.unread_rules);
        observed
            .rules
            .retain(|family, _| !faults.unread_rules.contains_key(family));
        observed.sysctls = sysctls;
        observed.set_network(network);
        wanted.into_iter().for_each(|wanted| observed.share(wanted));
        Ok(observed)
    }

    fn rules(&mut self) -> Vec<(Family, Result<ObservedRules, KernelError>)> {
        let model = self.lock();
        let found = model.state.rules.iter();
        found
            .map(|(family, rules)| (*family, Ok(rules.clone())))
            .collect()
    }

    fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        let faults = self.faults();
        let carried = faults.traffic.iter();
        carried
            .map(|(server, traffic)| (*server, *traffic))
            .collect()
    }

    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError> {
        Ok(self.lock().connections(servers))
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        let mut faults = self.faults();
        let mut model = self.lock();
        let mut apply = |op: &Op| {
            if let Some(error) = refused(op, &faults) {
                return Err(error);
            }
            model.apply(op).map_err(|r| KernelError::new(op, &r))?;
            if faults.lost_answers > 0 {
                faults.lost_answers -= 1;
                return Err(KernelError::new(op, "the answer was lost").in_doubt_if(true));
            }
            Ok(())
        };
        ops.iter().map(&mut apply).collect()
    }

    fn stale_flows(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        let mut faults = self.faults();
        *faults.flows.entry(family).or_default() += 1;
        if faults.flows_unreadable {
            return Err(KernelError::new("read flows", UNREADABLE));
        }
        let model = self.lock();
        let of_family = |flow: &&Flow| flow.family() == family;
        let mut stale: Vec<_> = model.flows.iter().filter(of_family).copied().collect();
        let seen = u64::try_from(stale.len()).unwrap_or(u64::MAX);
        stale.retain(is_stale);
        let limit = faults.flows_at_once.unwrap_or(usize::MAX);
        let more = stale.len() > limit;
        stale.truncate(limit);
        Ok(StaleFlows {
            seen,
            stale,
            more,
            interrupted: faults.interrupted,
        })
    }

    fn forget_flows(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        let mut model = self.lock();
        let mut forget = |flow: &Flow| match model.forget(flow) {
            Ok(()) | Err(Refusal::NotFound) => Ok(()),
            Err(refusal) => Err(KernelError::new("delete a flow", &refusal)),
        };
        flows.iter().map(&mut forget).collect()
    }
}

/// The error of an operation that is set to be refused.
fn refused(op: &Op, faults: &ObservationFaults) -> Option<KernelError> {
    let error = |reason: &str| Some(KernelError::new(op, reason));
    let lacks = |scheduler: &Arc<str>| faults.missing_schedulers.contains(scheduler);
    match op {
        Op::Rules(rules) if faults.refused_rules == Some(rules.family) => error("the tool gave up"),
        Op::Scheduler(wanted) if lacks(&wanted.scheduler) => error("there is no such module"),
        Op::Ipvs(
            IpvsOp::AddVirtualServer { scheduling, .. }
            | IpvsOp::EditVirtualServer { scheduling, .. },
        ) if lacks(&scheduling.scheduler) => error("there is no such module"),
        Op::Ipvs(IpvsOp::AddVirtualServer { server, .. })
            if faults.refused_servers.contains(server) =>
        {
            error("no memory")
        }
        Op::Ipvs(IpvsOp::AddRealServer { backend, .. })
            if faults.refused_backends.contains(&backend.address) =>
        {
            error("it is not the address of a host").map(|error| error.of_service_if(true))
        }
        _ => None,
    }
}
