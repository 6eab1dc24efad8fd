//! Removes everything that Portolan owns.

use std::sync::Arc;

use crate::rules::cleanup_text;
use crate::{IpvsOp, LinkOp, Observed, Op, Owned, RulesOp, SetOp};

/// The operations that remove everything that Portolan owns, in an order that the kernel accepts: rules before the
/// sets they use. Policy rules are removed first, so that packets stop arriving before anything else changes.
pub fn cleanup(observed: &Observed, owned: &Owned, device: &str) -> Vec<Vec<Op>> {
    let device: Arc<str> = device.into();
    let policy = observed.policy.iter();
    let policy = policy.map(|rule| Op::Link(LinkOp::DeletePolicyRule { rule: *rule }));
    let routes = observed.routes.iter().map(|route| {
        Op::Link(LinkOp::DeleteRoute {
            device: device.clone(),
            route: Box::new(*route),
        })
    });
    let servers = observed
        .virtual_servers
        .keys()
        .filter(|server| owned.contains(server))
        .map(|server| Op::Ipvs(IpvsOp::DeleteVirtualServer { server: *server }));
    let rules = observed.rules.iter().filter_map(|(family, rules)| {
        let text = cleanup_text(rules)?;
        Some(Op::Rules(RulesOp {
            family: *family,
            text,
            rules: Box::default(),
        }))
    });
    let sets = observed
        .sets
        .keys()
        .map(|set| Op::Set(SetOp::Destroy { set: *set }));
    let leftovers = observed.leftover_sets.iter();
    let leftovers = leftovers.map(|name| Op::Set(SetOp::DestroyLeftover { name }));
    // A device that exists but is down stays. It may belong to another program with the same device name. Portolan's
    // device is down only between its creation and the next operation, and a device that is down answers no packets.
    let link = observed.device_up.then(|| {
        Op::Link(LinkOp::RemoveDevice {
            device: device.clone(),
        })
    });
    let phases: [Vec<Op>; 5] = [
        policy.chain(routes).collect(),
        servers.collect(),
        rules.collect(),
        sets.chain(leftovers).collect(),
        link.into_iter().collect(),
    ];
    phases.into_iter().filter(|ops| !ops.is_empty()).collect()
}
