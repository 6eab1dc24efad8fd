//! The IPVS dataplane in the Linux kernel: virtual servers, sets, and rules of iptables. A node with the nftables
//! dataplane may lack all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::Family;
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{Desired, Network, Observed, Op, OpKind};

use super::{IptablesChoice, Reading, Rules, Servers, Sets, only};
use crate::kernel::{KernelError, LockWait};

/// What the IPVS dataplane needs.
#[derive(Debug)]
pub(super) struct Ipvs {
    pub(super) servers: Servers,
    pub(super) sets: Sets,
    pub(super) rules: Rules,
    /// A read of rules that was begun in advance.
    reading: Option<Reading>,
}

impl Ipvs {
    /// Opens the sockets in the network namespace of the calling thread, and searches for the tools.
    ///
    /// # Errors
    /// Everything that is missing, with a remedy for each.
    pub(super) fn open(iptables: IptablesChoice) -> Result<Self, Vec<KernelError>> {
        match (Servers::open(), Sets::open(), Rules::find(iptables)) {
            (Ok(servers), Ok(sets), Ok(rules)) => {
                rules.log_variant();
                Ok(Self {
                    servers,
                    sets,
                    rules,
                    reading: None,
                })
            }
            (servers, sets, rules) => {
                let errors = [servers.err(), sets.err(), rules.err()];
                Err(errors.into_iter().flatten().collect())
            }
        }
    }

    pub(super) fn begin_reading(&mut self) {
        // An earlier read that was not used is outdated.
        self.reading.take().into_iter().for_each(Reading::end);
        self.reading = Some(self.rules.begin_reading());
    }

    pub(super) fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError> {
        let (mut rules, mut unread_rules) = (BTreeMap::new(), BTreeMap::new());
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.rules.begin_reading(),
        };
        let virtual_servers = self.servers.observe(wanted);
        let timeouts = self.servers.timeouts();
        let sets = self.sets.observe();
        for (family, found) in self.rules.observe(reading) {
            match found {
                Ok(found) => drop(rules.insert(family, found)),
                // The other family, and everything that does not depend on rules, continues.
                Err(error) => drop(unread_rules.insert(family, error.reason)),
            }
        }
        Ok(Observed {
            device_up: network.device_up,
            routes: network.routes,
            policy: network.policy,
            host: network.host,
            virtual_servers: virtual_servers?,
            loaded_schedulers: BTreeSet::new(),
            sets: sets?,
            leftover_sets: self.sets.leftovers()?,
            rules,
            unread_rules,
            sysctls,
            timeouts: timeouts?,
        })
    }

    /// The agent's loaded rules of both families.
    pub(super) fn rules(&mut self) -> Vec<(Family, Result<ObservedRules, KernelError>)> {
        let reading = self.rules.begin_reading();
        self.rules.observe(reading).into()
    }

    /// Whether rules wait for the iptables lock.
    pub(super) fn lock_wait(&mut self) -> LockWait {
        self.rules.lock_wait()
    }

    /// Applies operations of one kind.
    pub(super) fn apply(&mut self, kind: OpKind, run: &[Op]) -> Vec<Result<(), KernelError>> {
        match kind {
            OpKind::Set => self.sets.apply(&only(run, Op::set)),
            OpKind::Rules => self.rules.apply(&only(run, Op::rules)),
            OpKind::Scheduler => {
                let ops = only(run, Op::scheduler).into_iter();
                ops.map(|op| self.servers.load_scheduler(op)).collect()
            }
            OpKind::Ipvs => self.servers.apply(&only(run, Op::ipvs)),
            OpKind::Sysctl | OpKind::Link => Vec::new(),
        }
    }
}
