//! The agent's device, routes and policy rules, and the node's own addresses and routes, through rtnetlink.

mod connection;
mod messages;
mod routes;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use netlink_packet_route::link::LinkFlags;
use portolan_plan::Family;
use portolan_reconcile::{LinkOp, Network, PolicyRule, Route};
use rtnetlink::{Error, Handle, IpVersion, LinkDummy, LinkUnspec, RouteMessageBuilder};

use self::connection::{Connection, Failure};
use crate::kernel::KernelError;

/// Timeout for all lists together; they are long on a node with a full internet routing table.
const LISTS_LIMIT: Duration = Duration::from_secs(60);
/// Timeout of one operation. The kernel replies during the send call, so a missing reply was lost.
const OPERATION_LIMIT: Duration = Duration::from_secs(10);

/// The kernel's links, addresses and routes.
pub struct Links {
    connection: Connection,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

impl Links {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// That of the system.
    pub fn open() -> Result<Self, KernelError> {
        let connection = Connection::open();
        let connection = connection.map_err(|error| KernelError::new("open rtnetlink", &error))?;
        Ok(Self { connection })
    }

    /// The netlink port of the socket, which the kernel includes in events that this socket caused.
    pub fn port(&self) -> u32 {
        self.connection.port()
    }

    /// Reads links, addresses and routes.
    ///
    /// # Errors
    /// That of the kernel.
    pub fn observe(&mut self, device: &str) -> Result<Network, KernelError> {
        let observed = self
            .connection
            .ask(LISTS_LIMIT, |handle| observe(handle, device));
        observed.map_err(|error| KernelError::new("read addresses and routes", &error))
    }

    /// Applies operations on the device, routes and policy rules in order, with a result for each.
    pub fn apply(&mut self, ops: &[&LinkOp]) -> Vec<Result<(), KernelError>> {
        // Routes contain the index of the device, which is looked up once for all of them.
        let mut index = None;
        let apply = |op: &&LinkOp| {
            let index = &mut index;
            let applied = self
                .connection
                .ask(OPERATION_LIMIT, |handle| apply(handle, op, index));
            applied.map_err(|failure| explain(op, &failure))
        };
        ops.iter().map(apply).collect()
    }
}

fn explain(op: &LinkOp, failure: &Failure) -> KernelError {
    let error = match op {
        LinkOp::AddRoute { device, route }
            if failure.errno() == Some(EACCES) && route.family() == Family::Ipv6 =>
        {
            KernelError::new(op, &ipv6_is_off(failure, device))
        }
        _ => KernelError::new(op, failure),
    };
    error.in_doubt_if(failure.is_in_doubt())
}

/// The error number for an IPv6 route over a device without IPv6.
const EACCES: i32 = 13;

fn ipv6_is_off(failure: &Failure, device: &str) -> String {
    format!(
        "{failure}; IPv6 is off on this node (net.ipv6.conf.{device}.disable_ipv6 is 1), so it serves \
         no IPv6 addresses: set this and net.ipv6.conf.all.disable_ipv6 to 0 on the node, or give the \
         cluster's Services only IPv4 addresses"
    )
}

async fn observe(handle: Handle, device: &str) -> Result<Network, Error> {
    let mut found = Network::default();
    let (mut index, mut names) = (None, BTreeMap::<u32, Arc<str>>::new());
    let mut links = handle.link().get().execute();
    while let Some(link) = links.try_next().await? {
        if messages::name(&link) == Some(device) {
            index = Some(link.header.index);
            found.device_up = link.header.flags.contains(LinkFlags::Up);
        } else if let Some(interface) = messages::host_interface(&link) {
            names.insert(link.header.index, interface.name.clone());
            found.host.interfaces.push(interface);
        }
    }
    let mut addresses = handle.address().get().execute();
    while let Some(address) = addresses.try_next().await? {
        if Some(address.header.index) != index {
            let address = messages::host_address(&address, &names);
            found.host.addresses.extend(address);
        }
    }
    let families = [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ];
    for asked in families {
        let family = asked.header.address_family;
        let mut all = handle.route().get(asked).execute();
        while let Some(route) = all.try_next().await? {
            // A kernel without IPv6 lists the routes of all other families instead.
            if routes::is_learnt(&route) || route.header.address_family != family {
                continue;
            }
            if routes::is_ours(&route) || routes::is_over(&route, index) {
                found.routes.extend(routes::route(&route, index));
            } else {
                found.host.routes.extend(routes::host_route(&route));
            }
        }
    }
    // A kernel without IPv6 lists the rules of all other families instead; the set removes duplicates.
    for family in [IpVersion::V4, IpVersion::V6] {
        let mut rules = handle.rule().get(family).execute();
        while let Some(rule) = rules.try_next().await? {
            found.policy.extend(routes::policy_rule(&rule));
        }
    }
    Ok(found)
}

/// A device found by name.
#[derive(Debug, Clone, Copy)]
struct Found {
    index: u32,
    dummy: bool,
}

async fn find(handle: &Handle, device: &str) -> Result<Option<Found>, Error> {
    // A request for one name fails if there is none, and the library prints that error. The list is short anyway.
    let mut links = handle.link().get().execute();
    let mut found = None;
    while let Some(link) = links.try_next().await? {
        if messages::name(&link) == Some(device) {
            found = Some(Found {
                index: link.header.index,
                dummy: messages::is_dummy(&link),
            });
        }
    }
    Ok(found)
}

async fn apply(handle: Handle, op: &LinkOp, index: &mut Option<u32>) -> Result<(), Error> {
    match op {
        LinkOp::RaiseDevice { device } => {
            *index = None;
            raise(&handle, device).await
        }
        LinkOp::RemoveDevice { device } => {
            *index = None;
            match find(&handle, device).await? {
                Some(found) => handle.link().del(found.index).execute().await,
                None => Ok(()),
            }
        }
        LinkOp::RetireDevice { device } => {
            *index = None;
            match find(&handle, device).await? {
                Some(found) if found.dummy => handle.link().del(found.index).execute().await,
                // The device of another program: the agent only creates dummy devices.
                _ => Ok(()),
            }
        }
        LinkOp::AddRoute { device, route } => {
            let index = device_of(&handle, device, index, route).await?;
            let message = routes::message(route, index);
            // A range may still be routed over a device of the agent with an earlier name.
            handle.route().add(message).replace().execute().await
        }
        LinkOp::DeleteRoute { device, route } => {
            let index = device_of(&handle, device, index, route).await?;
            let message = routes::message(route, index);
            handle.route().del(message).execute().await
        }
        LinkOp::AddPolicyRule { rule } => {
            let mut request = handle.rule().add();
            *request.message_mut() = routes::rule_message(rule);
            request.execute().await
        }
        LinkOp::DeletePolicyRule { rule } => delete(&handle, rule).await,
    }
}

/// Creates the dummy device without an automatic address, and sets it up, which IPv6 routes require.
async fn raise(handle: &Handle, device: &str) -> Result<(), Error> {
    if find(handle, device).await?.is_none() {
        handle
            .link()
            .add(LinkDummy::new(device).build())
            .execute()
            .await?;
        let generation = format!("/proc/sys/net/ipv6/conf/{device}/addr_gen_mode");
        // Without IPv6 the file does not exist and no address is generated. If the write fails for another reason,
        // the link-local address on the device does no harm.
        drop(std::fs::write(generation, "1"));
    }
    let index = index_of(handle, device).await?;
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await
}

async fn index_of(handle: &Handle, device: &str) -> Result<u32, Error> {
    let missing = || Error::NamespaceError(device.to_owned());
    let found = find(handle, device).await?.ok_or_else(missing)?;
    Ok(found.index)
}

/// The index of the device, looked up once; a [`Route::Deliver`] uses `lo` instead.
async fn device_of(
    handle: &Handle,
    device: &str,
    known: &mut Option<u32>,
    route: &Route,
) -> Result<u32, Error> {
    if matches!(route, Route::Deliver { .. }) {
        return Ok(0);
    }
    let index = match *known {
        Some(index) => index,
        None => index_of(handle, device).await?,
    };
    *known = Some(index);
    Ok(index)
}

async fn delete(handle: &Handle, rule: &PolicyRule) -> Result<(), Error> {
    let message = routes::rule_message(rule);
    handle.rule().del(message).execute().await
}
