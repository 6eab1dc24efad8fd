//! Conntrack (connection tracking) through netlink: lists the flows of a protocol, and deletes exactly those that are
//! named. `programmer::flows` cleans up UDP; the nftables dataplane also ends connections after their drain deadline.

mod codec;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod faults;
mod socket;

use netlink_blocking::message::messages;
use netlink_blocking::{Channel, Error as SocketError};
use netlink_sys::protocols::NETLINK_NETFILTER;
use portolan_plan::{Family, Protocol};
use portolan_reconcile::Flow;

use self::socket::{Error, Socket};
use crate::kernel::{KernelError, StaleFlows};

/// Maximum number of reads of a list that changes while it is read (S-130).
const ATTEMPTS: usize = 4;
/// Maximum number of stale flows in memory; a table may have millions, and an agent has only a few megabytes.
const MAX_STALE_FLOWS: usize = 32_768;

/// The kernel's connection tracking.
pub struct Conntrack {
    socket: Socket,
    at_once: usize,
}

impl std::fmt::Debug for Conntrack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conntrack").finish_non_exhaustive()
    }
}

impl Conntrack {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If this process may not use it.
    pub fn open() -> Result<Self, KernelError> {
        let channel = Channel::open(NETLINK_NETFILTER);
        let channel =
            channel.map_err(|e| KernelError::new("open connection tracking", &Error::from(e)))?;
        Ok(Self::over(channel))
    }

    fn over(channel: Channel) -> Self {
        Self {
            socket: Socket::over(channel),
            at_once: MAX_STALE_FLOWS,
        }
    }

    /// Limits the number of stale flows in memory.
    #[must_use]
    pub fn at_most(mut self, flows: usize) -> Self {
        self.at_once = flows;
        self
    }

    /// Reads all UDP flows of a family, and returns the stale ones (S-130).
    ///
    /// # Errors
    /// That of the kernel.
    pub fn stale(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        self.stale_of(Protocol::Udp, family, is_stale)
    }

    /// Reads all flows of a protocol and family, and returns the stale ones (S-130). A list that changes is read several
    /// times, so `is_stale` may get a flow more than once.
    ///
    /// # Errors
    /// That of the kernel.
    pub fn stale_of(
        &mut self,
        protocol: Protocol,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        let limit = self.at_once;
        let mut found = StaleFlows::default();
        for _ in 0..ATTEMPTS {
            found.seen = 0;
            let stale = &mut found.stale;
            let (seen, more) = (&mut found.seen, &mut found.more);
            let interrupted = self.socket.dump(protocol, family, |flow| {
                *seen += 1;
                match is_stale(&flow) {
                    true if stale.len() < limit => stale.push(flow),
                    true => *more = true,
                    false => {}
                }
            });
            let failed = |e| KernelError::new(&format!("read {family} flows"), &explain(&e));
            found.interrupted = match interrupted {
                // Part of the list was lost, which has the same effect as a change.
                Err(Error::Socket(SocketError::AnswerLost)) => true,
                other => other.map_err(failed)?,
            };
            // Flows that one attempt missed may be found by the next one.
            if !found.interrupted || found.more {
                break;
            }
        }
        found.stale.sort_unstable();
        found.stale.dedup();
        Ok(found)
    }

    /// Deletes exactly these UDP flows, many in one send.
    pub fn forget(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        self.forget_of(Protocol::Udp, flows)
    }

    /// Deletes exactly these flows of a protocol, many in one send.
    pub fn forget_of(
        &mut self,
        protocol: Protocol,
        flows: &[Flow],
    ) -> Vec<Result<(), KernelError>> {
        let failed = |flow: &Flow, error: &Error| {
            let action = format!(
                "delete the {protocol} flow from {} to {}",
                flow.source, flow.destination
            );
            KernelError::new(&action, &explain(error))
        };
        match self.socket.delete(protocol, flows) {
            Ok(results) => flows
                .iter()
                .zip(results)
                .map(|(flow, result)| result.map_err(|e| failed(flow, &e)))
                .collect(),
            Err(error) => flows.iter().map(|flow| Err(failed(flow, &error))).collect(),
        }
    }
}

/// The flows in a datagram of the kernel, of all protocols with ports, up to the first message that cannot be decoded.
pub fn flows_in(datagram: &[u8]) -> Vec<Flow> {
    let messages = messages(datagram).map_while(Result::ok);
    let flows = messages.map(|message| codec::flow_of(&message));
    flows
        .map_while(Result::ok)
        .flatten()
        .map(|(_, flow)| flow)
        .collect()
}

fn explain(error: &Error) -> String {
    /// The error number of nfnetlink for a missing subsystem.
    const EINVAL: i32 = 22;
    const EPERM: i32 = 1;
    match error {
        Error::Kernel(EINVAL) => {
            format!(
                "{error}; is the module nf_conntrack_netlink loaded (modprobe it on this node)?"
            )
        }
        Error::Kernel(EPERM) => format!("{error}; the agent needs CAP_NET_ADMIN"),
        _ => error.to_string(),
    }
}
