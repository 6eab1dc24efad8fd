//! When the kernel is looked at, and how much of it. Nothing is written here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan_plan::{Family, NodeEntry, NodePlan};
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{
    Desired, HostNetwork, Ipv6Off, LinkOp, Network, Observed, Op, SetId, SetRole, sysctls,
};
use tracing::{debug, info};

use super::{Outcome, Programmer};
use crate::kernel::IPV6_FORWARDING;
use crate::kernel::{Kernel, KernelError};
use crate::slot::Source;

/// How often the network is looked at until it holds still.
const LOOKS: usize = 4;

/// What has to be known of a plan before the kernel can be looked at.
#[derive(Debug)]
pub(super) struct Ground {
    device: Arc<str>,
    pub(super) node: Arc<NodeEntry>,
    pub(super) period: Duration,
}

impl Ground {
    /// `None` while the plan does not say what the node is.
    pub(super) fn of(plan: &NodePlan) -> Option<Self> {
        let node = plan.node()?;
        Some(Self {
            device: node.settings.device.clone(),
            node: node.clone(),
            period: node.settings.sync.period.as_duration(),
        })
    }

    /// The settings that matter on a node with this network.
    fn sysctls(&self, host: &HostNetwork) -> BTreeSet<Arc<str>> {
        sysctls(&self.node, host).into_keys().collect()
    }
}

/// A look at everything that has seen this and is still to see the rest.
#[derive(Debug)]
pub(super) struct Begun {
    network: Network,
    sysctls: BTreeMap<Arc<str>, Arc<str>>,
}

/// Whether a look may have found something that was not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Some,
    None,
}

/// The plan's Node and its kernel contradict each other, and only people know which is right.
pub(super) fn without_ipv6(off: Ipv6Off) -> KernelError {
    let reason = format!(
        "IPv6 is off on this node ({off}), but its Node object has IPv6 addresses or pod ranges; IPv4 goes \
         on alone: switch IPv6 on, or take them from the Node"
    );
    KernelError::new("serve IPv6", &reason)
}

impl<K: Kernel> Programmer<K> {
    /// Looks at the kernel, unless what it holds is known: then there is nothing new. Without a shadow
    /// afterwards nothing can be written.
    pub(super) fn look(&mut self, ground: &Ground, outcome: &mut Outcome) -> News {
        if self.device.as_ref() != Some(&ground.device) {
            self.retired
                .extend(self.device.replace(ground.device.clone()));
            self.retired.remove(&ground.device);
            self.shadow = None;
            self.last_network = None;
            self.drift.begin_anew();
        }
        self.drift.set_mode(ground.node.settings.drift);
        let disturbed = self.slot.take_disturbance();
        let mut news = News::Some;
        let looked = match &mut self.shadow {
            None => self.look_at_everything(ground, outcome),
            Some(_) if disturbed => self.look_at_network(ground).map(drop),
            Some(shadow) => {
                // The settings of the plan may ask for more than before, or for less: what nobody
                // asks for may be changed by others, and is read again when somebody does.
                let mut names = ground.sysctls(&shadow.host);
                shadow.sysctls.retain(|name, _| names.contains(name));
                names.retain(|name| !shadow.sysctls.contains_key(name));
                if names.is_empty() {
                    news = News::None;
                } else {
                    shadow.sysctls.extend(self.kernel.sysctls(&names));
                }
                Ok(())
            }
        };
        if let Err(error) = looked {
            outcome.fail(&error, &Family::BOTH);
        }
        news
    }

    /// Begins to look at everything; what the plan wants on this network is computed meanwhile.
    ///
    /// Without its addresses a node would lose its node ports and route too much to itself: while
    /// they cannot be read, those last known count, and the rest goes on (S-38).
    fn look_at_everything(
        &mut self,
        ground: &Ground,
        outcome: &mut Outcome,
    ) -> Result<(), KernelError> {
        let last = self.last_network.clone();
        let seen = self.steady_network(&ground.device, last.as_ref());
        let network = match (seen, last) {
            (Ok(network), _) => network,
            (Err(error), None) => return Err(error),
            (Err(error), Some(last)) => {
                outcome.fail(&error, &Family::BOTH);
                last
            }
        };
        self.kernel.foresee_observing();
        let sysctls = self.kernel.sysctls(&ground.sysctls(&network.host));
        self.begun = Some(Begun { network, sysctls });
        Ok(())
    }

    /// Ends a look at everything, if one was begun. What is as it is wanted takes no room.
    pub(super) fn finish_look(&mut self, wanted: Option<&Desired>, outcome: &mut Outcome) {
        let Some(Begun { network, sysctls }) = self.begun.take() else {
            return;
        };
        outcome.step("observe", |outcome| {
            match self.kernel.observe(network, sysctls, wanted) {
                Ok(observed) => {
                    self.read_traffic(&observed.host);
                    self.tell_of_ipv6(observed.host.machine.ipv6_off);
                    self.shadow = Some(observed);
                }
                Err(error) => outcome.fail(&error, &Family::BOTH),
            }
        });
    }

    /// The network as it is known, also in the middle of a look.
    pub(super) fn host(&self) -> Option<&HostNetwork> {
        let known = self.shadow.as_ref().map(|shadow| &shadow.host);
        known.or_else(|| self.begun.as_ref().map(|begun| &begun.network.host))
    }

    /// Looks at links, addresses and routes only; true when the shadow did not have it so.
    fn look_at_network(&mut self, ground: &Ground) -> Result<bool, KernelError> {
        let known = self.shadow.as_ref().map(Observed::network);
        let network = self.steady_network(&ground.device, known.as_ref())?;
        // An interface that came back has lost its settings.
        let names = ground.sysctls(&network.host);
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
        // Pods come and go all the time; a pass over all Services for each would cost more than they.
        let changed = differs
            || ground.sysctls(&shadow.host) != names
            || !shadow
                .host
                .is_like(&network.host, &ground.node.service_cidrs);
        let ipv6_off = network.host.machine.ipv6_off;
        shadow.set_network(network);
        shadow.sysctls = sysctls;
        self.tell_of_ipv6(ipv6_off);
        Ok(changed)
    }

    /// Says that the node has no IPv6, or has it again, if that is news (S-182).
    fn tell_of_ipv6(&mut self, off: Option<Ipv6Off>) {
        if self.ipv6_off == off {
            return;
        }
        match off {
            Some(why) => {
                info!(%why, "IPv6 is off on this node: Services are served at their IPv4 addresses alone");
            }
            None => info!("IPv6 is on again on this node"),
        }
        self.ipv6_off = off;
    }

    /// The network as it was known, or as two looks one after the other saw it: lists that change while
    /// they are read may lack what is there, without a word from the kernel. One that never holds
    /// still counts as seen last; whatever changes it rings again.
    fn steady_network(
        &mut self,
        device: &str,
        known: Option<&Network>,
    ) -> Result<Network, KernelError> {
        let mut seen = self.kernel.network(device)?;
        for _ in 1..LOOKS {
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

    /// Whether something that happened to the network asks for a pass.
    pub(super) fn network_changed(&mut self) -> bool {
        self.slot.take_disturbance();
        // Without a plan there is nothing to do, and without a shadow a look is due anyhow.
        let ground = self.slot.peek(Ground::of);
        let Some(ground) = ground.filter(|_| self.shadow.is_some()) else {
            return false;
        };
        match self.look_at_network(&ground) {
            Ok(changed) => changed,
            Err(error) => {
                debug!(%error, "looking again at everything");
                self.forget();
                true
            }
        }
    }

    /// What to tell where IPv6 Services are served and the node passes no IPv6 packets on (S-239).
    pub(super) fn forwards_no_ipv6(&mut self) -> Option<String> {
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
                "{IPV6_FORWARDING} is 0, so pods and IPv6 clients from elsewhere do not reach each other through Services; \
                 set it to 1, and accept_ra to 2 on interfaces that routers give addresses (the agent does not: it would \
                 end that)"
            )
        })
    }

    /// Whether somebody changed rules of ours; then everything is looked at again. While something is left alone as it
    /// drifted, what is known differs from what is there, and the period looks.
    pub(super) fn rules_changed(&mut self) -> bool {
        if self.shadow.is_none() || self.drift.leaves_alone() {
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
            self.forget();
        }
        changed
    }

    /// Removes what carried our routes before the settings named another device, once all that should
    /// be in force is in force over that one. What the old routes stood in the way of is looked at anew.
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
                        self.slot.disturb();
                    }
                    Err(error) => {
                        outcome.fail_op(&op, &error);
                        self.retired.insert(device.clone());
                    }
                }
            }
        }
    }

    /// Gives up what is known of the kernel, so that the next pass looks again.
    pub(super) fn forget(&mut self) {
        if let Some(shadow) = self.shadow.take() {
            self.last_network = Some(shadow.network());
            self.drift.give_up(shadow);
        }
    }
}
