//! Reads the kernel state, completely or in part. Nothing is written here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan_plan::{Family, NodeEntry, NodePlan};
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{
    Desired, HostNetwork, Ipv6Off, LinkOp, Network, Observed, Op, SetId, SetRole, ports_warning,
    sysctls,
};
use tracing::{debug, info};

use super::{Outcome, Programmer};
use crate::kernel::IPV6_FORWARDING;
use crate::kernel::{Kernel, KernelError};
use crate::plan_watch::Source;

/// Maximum number of reads of the network until two agree.
const MAX_READS: usize = 4;

/// The values of a plan that are needed to read the kernel.
#[derive(Debug)]
pub(super) struct ReadParams {
    device: Arc<str>,
    pub(super) node: Arc<NodeEntry>,
    pub(super) period: Duration,
}

impl ReadParams {
    /// `None` while the plan has no entry for the node.
    pub(super) fn of(plan: &NodePlan) -> Option<Self> {
        let node = plan.node()?;
        Some(Self {
            device: node.settings.device.clone(),
            node: node.clone(),
            period: node.settings.sync.period.as_duration(),
        })
    }

    /// The kernel settings that are needed on a node with this network.
    fn sysctls(&self, host: &HostNetwork) -> BTreeSet<Arc<str>> {
        sysctls(&self.node, host, &BTreeSet::new())
            .into_keys()
            .collect()
    }
}

/// The partial result of a complete read.
#[derive(Debug)]
pub(super) struct PartialRead {
    network: Network,
    sysctls: BTreeMap<Arc<str>, Arc<str>>,
}

/// Whether a read may have found something that was not in the shadow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadResult {
    MaybeChanged,
    Unchanged,
}

/// The Node object and the kernel contradict each other, and only an operator knows which is right.
pub(super) fn without_ipv6(off: Ipv6Off) -> KernelError {
    let reason = format!(
        "IPv6 is off on this node ({off}), but its Node object has IPv6 addresses or pod ranges; only IPv4 is \
         served: enable IPv6, or remove them from the Node"
    );
    KernelError::new("serve IPv6", &reason)
}

impl<K: Kernel> Programmer<K> {
    /// Reads the kernel as far as the shadow is missing or outdated. Without a shadow afterwards, nothing can be
    /// written.
    pub(super) fn refresh_shadow(
        &mut self,
        params: &ReadParams,
        outcome: &mut Outcome,
    ) -> ReadResult {
        if self.device.as_ref() != Some(&params.device) {
            self.retired
                .extend(self.device.replace(params.device.clone()));
            self.retired.remove(&params.device);
            self.shadow = None;
            self.last_network = None;
            self.drift.reset();
        }
        self.drift.set_mode(params.node.settings.drift);
        let disturbed = self.plans.take_disturbance();
        let mut read = ReadResult::MaybeChanged;
        let result = match &mut self.shadow {
            None => self.begin_full_read(params, outcome),
            Some(_) if disturbed => self.refresh_network(params).map(drop),
            Some(shadow) => {
                // The plan may require more kernel settings than before, or fewer. A setting that is not required
                // may be changed by other programs, so it is read again when it is required again.
                let mut names = params.sysctls(&shadow.host);
                shadow.sysctls.retain(|name, _| names.contains(name));
                names.retain(|name| !shadow.sysctls.contains_key(name));
                if names.is_empty() {
                    read = ReadResult::Unchanged;
                } else {
                    shadow.sysctls.extend(self.kernel.sysctls(&names));
                }
                Ok(())
            }
        };
        if let Err(error) = result {
            outcome.fail(&error, &Family::BOTH);
        }
        read
    }

    /// Begins a complete read; meanwhile the desired state for this network is computed.
    ///
    /// Without its addresses a node would lose its node ports and route too much to itself. So while they cannot be
    /// read, the last known ones are used, and the rest continues (S-38).
    fn begin_full_read(
        &mut self,
        params: &ReadParams,
        outcome: &mut Outcome,
    ) -> Result<(), KernelError> {
        let last = self.last_network.clone();
        let seen = self.stable_network(&params.device, last.as_ref());
        let network = match (seen, last) {
            (Ok(network), _) => network,
            (Err(error), None) => return Err(error),
            (Err(error), Some(last)) => {
                outcome.fail(&error, &Family::BOTH);
                last
            }
        };
        if !self.tables.is_alone() {
            self.kernel.prepare_observe();
        }
        let sysctls = self.kernel.sysctls(&params.sysctls(&network.host));
        self.partial_read = Some(PartialRead { network, sysctls });
        Ok(())
    }

    /// Finishes a complete read, if one was started. Parts that equal the desired state take no extra memory.
    pub(super) fn finish_full_read(&mut self, wanted: Option<&Desired>, outcome: &mut Outcome) {
        let Some(PartialRead { network, sysctls }) = self.partial_read.take() else {
            return;
        };
        if self.tables.is_alone() {
            self.read_traffic(&network.host);
            self.log_ipv6(network.host.machine.ipv6_off);
            let mut observed = Observed {
                sysctls,
                ..Observed::default()
            };
            observed.set_network(network);
            self.shadow = Some(observed);
            return;
        }
        outcome.step("observe", |outcome| {
            match self.kernel.observe(network, sysctls, wanted) {
                Ok(observed) => {
                    self.read_traffic(&observed.host);
                    self.log_ipv6(observed.host.machine.ipv6_off);
                    self.shadow = Some(observed);
                }
                Err(error) => outcome.fail(&error, &Family::BOTH),
            }
        });
    }

    /// The known network, also during a read.
    pub(super) fn host(&self) -> Option<&HostNetwork> {
        let known = self.shadow.as_ref().map(|shadow| &shadow.host);
        known.or_else(|| {
            self.partial_read
                .as_ref()
                .map(|partial_read| &partial_read.network.host)
        })
    }

    /// Reads only links, addresses and routes. Returns whether the shadow differed in a way that needs a pass.
    fn refresh_network(&mut self, params: &ReadParams) -> Result<bool, KernelError> {
        let known = self.shadow.as_ref().map(Observed::network);
        let network = self.stable_network(&params.device, known.as_ref())?;
        // An interface that was recreated has lost its settings.
        let names = params.sysctls(&network.host);
        let sysctls = self.kernel.sysctls(&names);
        let Some(shadow) = &mut self.shadow else {
            return Ok(true);
        };
        let differs = shadow.device_up != network.device_up
            || shadow.routes != network.routes
            || shadow.policy != network.policy
            || shadow.sysctls != sysctls;
        if differs {
            self.drift.network_differs(shadow);
        }
        // Pods are created and deleted all the time; a complete pass for each would cost too much.
        let changed = differs
            || params.sysctls(&shadow.host) != names
            || !shadow
                .host
                .is_like(&network.host, &params.node.service_cidrs, &self.balancers);
        let ipv6_off = network.host.machine.ipv6_off;
        shadow.set_network(network);
        shadow.sysctls = sysctls;
        self.log_ipv6(ipv6_off);
        Ok(changed)
    }

    /// Logs if IPv6 was disabled or enabled on the node (S-182).
    fn log_ipv6(&mut self, off: Option<Ipv6Off>) {
        if self.ipv6_off == off {
            return;
        }
        match off {
            Some(why) => {
                info!(%why, "IPv6 is off on this node: Services are served only at their IPv4 addresses");
            }
            None => info!("IPv6 is on again on this node"),
        }
        self.ipv6_off = off;
    }

    /// Reads the network until the result equals the known one or the previous read: a list that changes while it is
    /// read may lack entries, and the kernel does not report that. If no two reads agree, the last one is used; the
    /// event of the next change causes another read.
    fn stable_network(
        &mut self,
        device: &str,
        known: Option<&Network>,
    ) -> Result<Network, KernelError> {
        let mut seen = self.kernel.network(device)?;
        for _ in 1..MAX_READS {
            if known == Some(&seen) {
                break;
            }
            let again = self.kernel.network(device)?;
            let steady = again == seen;
            seen = again;
            if steady {
                break;
            }
        }
        Ok(seen)
    }

    /// Reads the network after an event. Returns whether a pass is needed.
    pub(super) fn network_changed(&mut self) -> bool {
        self.plans.take_disturbance();
        // Without a plan there is nothing to do, and without a shadow a complete read is due anyway.
        let params = self.plans.peek(ReadParams::of);
        let Some(params) = params.filter(|_| self.shadow.is_some()) else {
            return false;
        };
        match self.refresh_network(&params) {
            Ok(changed) => changed,
            Err(error) => {
                debug!(%error, "could not read the network; reading the complete kernel state");
                self.discard_shadow();
                true
            }
        }
    }

    /// The warning for a node that serves IPv6 Services but does not forward IPv6 (S-239).
    pub(super) fn ipv6_forwarding_warning(&mut self) -> Option<String> {
        let id = SetId {
            role: SetRole::Frontend,
            family: Family::Ipv6,
        };
        let frontends = self.shadow.as_ref()?.sets.get(&id)?;
        if frontends.entries.is_empty() {
            return None;
        }
        let found = self.kernel.sysctls(&[IPV6_FORWARDING.into()].into());
        let is_off = found
            .get(IPV6_FORWARDING)
            .is_some_and(|value| &**value == "0");
        is_off.then(|| {
            format!(
                "{IPV6_FORWARDING} is 0, so pods and IPv6 clients on other hosts cannot reach each other through \
                 Services; set it to 1, and accept_ra to 2 on interfaces that use router advertisements (the agent \
                 does not set it, because that would disable them)"
            )
        })
    }

    /// The warning for a node that would have too few ports to connect from if all node ports were reserved (S-242).
    pub(super) fn ports_warning(&self) -> Option<String> {
        let machine = &self.shadow.as_ref()?.host.machine;
        let params = self.plans.peek(ReadParams::of)?;
        ports_warning(params.node.settings.node_port_range, machine)
    }

    /// Whether another program changed the agent's rules; then the shadow is discarded. While drift is left alone,
    /// the shadow differs from the kernel, so this returns false, and changes are found in the next sync period.
    pub(super) fn rules_changed(&mut self) -> bool {
        if self.shadow.is_none() || self.drift.leaves_alone() || self.tables.is_alone() {
            return false;
        }
        let found = self.kernel.rules();
        let Some(shadow) = &self.shadow else {
            return false;
        };
        let nothing = ObservedRules::default();
        let known = |family| shadow.rules.get(family).unwrap_or(&nothing);
        let changed = found
            .iter()
            .any(|(family, found)| found.as_ref().is_ok_and(|found| found != known(family)));
        if changed {
            self.discard_shadow();
        }
        changed
    }

    /// Removes devices of earlier settings once everything is applied on the new device. This counts as a disturbance
    /// of the network, because the old routes may have been in the way of others.
    pub(super) fn retire_devices(&mut self, outcome: &mut Outcome) {
        if outcome.failed > 0 || self.source != Source::Controller {
            return;
        }
        for device in std::mem::take(&mut self.retired) {
            let op = Op::Link(LinkOp::RetireDevice {
                device: device.clone(),
            });
            for result in self.kernel.apply(std::slice::from_ref(&op)) {
                match result {
                    Ok(()) => {
                        outcome.operations += 1;
                        self.plans.disturb();
                    }
                    Err(error) => {
                        outcome.fail_op(&op, &error);
                        self.retired.insert(device.clone());
                    }
                }
            }
        }
    }

    /// Discards the shadow, so that the next pass reads the kernel again.
    pub(super) fn discard_shadow(&mut self) {
        if let Some(shadow) = self.shadow.take() {
            self.last_network = Some(shadow.network());
            self.drift.keep_discarded(shadow);
        }
        self.tables.discard_shadow();
    }
}
