//! Virtual servers that do not exist yet. Their operations are made when they are carried out: a first plan has a hundred
//! thousand of them, and they are made while the kernel carries out others.

use crate::{
    BackendOrder, Desired, IpvsOp, Observed, Op, RealServerKey, VirtualServer, VirtualServerKey,
};

/// The reason to hold back a virtual server.
pub(crate) const NO_SCHEDULER: &str = "held back: the kernel does not have its scheduler";

/// Virtual servers to add with all their real servers.
#[derive(Debug, Default)]
pub struct NewServers(Vec<VirtualServerKey>);

impl NewServers {
    pub(crate) fn push(&mut self, server: VirtualServerKey) {
        self.0.push(server);
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes those whose scheduler the kernel does not have (S-101). Returns their operations with the reason, as
    /// [`ready`](crate::ready) does.
    pub fn hold_back(&mut self, state: &Observed, desired: &Desired) -> Vec<(Op, &'static str)> {
        if self.is_empty() {
            return Vec::new();
        }
        let known = state.schedulers();
        let lacks = |server: &VirtualServer| !known.contains(&server.scheduler);
        let held_back = self.0.extract_if(.., |key| {
            desired.virtual_servers.get(key).is_some_and(lacks)
        });
        held_back
            .filter_map(|key| Some((add(key, desired.virtual_servers.get(&key)?), NO_SCHEDULER)))
            .collect()
    }

    /// Their operations, with about `at_once` in each item. Real servers follow their virtual server.
    pub fn operations(
        self,
        desired: &Desired,
        at_once: usize,
    ) -> impl Iterator<Item = Vec<Op>> + use<'_> {
        let mut servers = self.0.into_iter();
        std::iter::from_fn(move || {
            let mut ops = Vec::with_capacity(at_once.min(servers.len().saturating_mul(8)));
            while ops.len() < at_once
                && let Some(key) = servers.next()
            {
                let Some(wanted) = desired.virtual_servers.get(&key) else {
                    continue;
                };
                ops.push(add(key, wanted));
                let backends = wanted.real_servers.iter();
                add_real_servers(&mut ops, &desired.node, key, backends);
            }
            (!ops.is_empty()).then_some(ops)
        })
    }
}

fn add(server: VirtualServerKey, wanted: &VirtualServer) -> Op {
    let scheduling = wanted.scheduling();
    Op::Ipvs(IpvsOp::AddVirtualServer { server, scheduling })
}

/// Adds real servers in the order of this node.
pub(crate) fn add_real_servers(
    ops: &mut Vec<Op>,
    node: &str,
    server: VirtualServerKey,
    backends: impl Iterator<Item = (RealServerKey, u32)>,
) {
    let order = BackendOrder::of(node, &server);
    let backends = backends.map(|(backend, weight)| (backend.rank(order), backend, weight));
    let mut backends: Vec<_> = backends.collect();
    backends.sort_unstable();
    ops.extend(backends.into_iter().map(|(_, backend, weight)| {
        Op::Ipvs(IpvsOp::AddRealServer {
            server,
            backend,
            weight,
        })
    }));
}
