//! Our device, routes and policy rules, and the node's own addresses and routes, through rtnetlink.

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

/// How long all lists together may take; they are long on a node with the routes of the internet.
const LISTS_LIMIT: Duration = Duration::from_secs(60);
/// How long one operation may take. The kernel answers within the send call, so an answer that is not
/// there has been lost.
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
    /// What the system says.
    pub fn open() -> Result<Self, KernelError> {
        let connection = Connection::open();
        let connection = connection.map_err(|error| KernelError::new("open rtnetlink", &error))?;
        Ok(Self { connection })
    }

    /// What the kernel calls our socket in the events that we cause ourselves.
    pub fn port(&self) -> u32 {
        self.connection.port()
    }

    /// Reads links, addresses and routes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn observe(&mut self, device: &str) -> Result<Network, KernelError> {
        let observed = self
            .connection
            .ask(LISTS_LIMIT, |handle| observe(handle, device));
        observed.map_err(|error| KernelError::new("read addresses and routes", &error))
    }

    /// Does operations on the device, routes and policy rules in order, and answers each.
    pub fn apply(&mut self, ops: &[&LinkOp]) -> Vec<Result<(), KernelError>> {
        // Routes name the device by a number, which one look finds for all of them.
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
    let told = match op {
        LinkOp::AddRoute { device, route }
            if failure.errno() == Some(EACCES) && route.family() == Family::Ipv6 =>
        {
            KernelError::new(op, &ipv6_is_off(failure, device))
        }
        _ => KernelError::new(op, failure),
    };
    told.in_doubt_if(failure.is_in_doubt())
}

/// What the kernel says of an IPv6 route over a device without IPv6.
const EACCES: i32 = 13;

fn ipv6_is_off(failure: &Failure, device: &str) -> String {
    format!(
        "{failure}; IPv6 is off on this node (net.ipv6.conf.{device}.disable_ipv6 is 1), so it serves \
         no IPv6 address: set that to 0 there, and net.ipv6.conf.all.disable_ipv6, or give the \
         cluster's Services IPv4 addresses alone"
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
            // A kernel without IPv6 lists the routes of all other families when asked for its.
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
    // A kernel without IPv6 lists the rules of all other families when asked for its; a set holds each once.
    for family in [IpVersion::V4, IpVersion::V6] {
        let mut rules = handle.rule().get(family).execute();
        while let Some(rule) = rules.try_next().await? {
            found.policy.extend(routes::policy_rule(&rule));
        }
    }
    Ok(found)
}

/// A device that was found by its name.
#[derive(Debug, Clone, Copy)]
struct Found {
    index: u32,
    dummy: bool,
}

async fn find(handle: &Handle, device: &str) -> Result<Option<Found>, Error> {
    // Asking for one name answers with an error when there is none, and the library prints it;
    // the list is short.
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
                // Somebody else's: a dummy device has nothing but what was put on it.
                _ => Ok(()),
            }
        }
        LinkOp::AddRoute { device, route } => {
            let index = device_of(&handle, device, index, route).await?;
            let message = routes::message(route, index);
            // A range may still be routed over a device that we had under another name.
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

/// A dummy device that is up, since IPv6 routes need that, and that makes itself no address.
async fn raise(handle: &Handle, device: &str) -> Result<(), Error> {
    if find(handle, device).await?.is_none() {
        handle
            .link()
            .add(LinkDummy::new(device).build())
            .execute()
            .await?;
        let generation = format!("/proc/sys/net/ipv6/conf/{device}/addr_gen_mode");
        // Without IPv6 there is no such file and nothing to keep from happening; elsewhere a
        // link-local address on the device does no harm.
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

/// The number of the device, which a look finds once; the route that delivers is over `lo`.
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
