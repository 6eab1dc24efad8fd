//! Our device, the routes over it, and the node's own addresses and routes, through rtnetlink.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt as _;
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use portolan_reconcile::{HostAddress, HostNetwork, HostRoute, LocalRoute, Op};
use rtnetlink::{Handle, LinkDummy, LinkUnspec, RouteMessageBuilder};

use crate::kernel::KernelError;

/// The table of addresses that are this node's own; the library has no name for it.
const RT_TABLE_LOCAL: u8 = 255;

/// The kernel's links, addresses and routes.
pub struct Links {
    // The library is asynchronous, this thread is not: it runs the library while it waits.
    runtime: tokio::runtime::Runtime,
    handle: Handle,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

/// What is there.
#[derive(Debug, Default)]
pub struct FoundLinks {
    /// Whether our device is there and up.
    pub device_up: bool,
    /// Local routes over it that somebody wrote.
    pub routes: BTreeSet<LocalRoute>,
    /// Everything else.
    pub host: HostNetwork,
}

impl Links {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> Result<Self, KernelError> {
        let failed = |error: std::io::Error| KernelError::new("open rtnetlink", &error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let entered = runtime.enter();
        let (connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
        drop(entered);
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// Reads links, addresses and routes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn observe(&self, device: &str) -> Result<FoundLinks, KernelError> {
        let failed = |error| KernelError::new("read addresses and routes", &error);
        self.runtime
            .block_on(self.observe_all(device))
            .map_err(failed)
    }

    async fn observe_all(&self, device: &str) -> Result<FoundLinks, rtnetlink::Error> {
        let link = self.find(device).await?;
        let index = link.map(|(index, _)| index);
        let mut found = FoundLinks {
            device_up: link.is_some_and(|(_, up)| up),
            ..FoundLinks::default()
        };
        let mut addresses = self.handle.address().get().execute();
        while let Some(address) = addresses.try_next().await? {
            if Some(address.header.index) != index {
                found.host.addresses.extend(host_address(&address));
            }
        }
        let families = [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ];
        for family in families {
            let mut routes = self.handle.route().get(family).execute();
            while let Some(route) = routes.try_next().await? {
                match (index, oif(&route)) {
                    (Some(ours), Some(oif)) if ours == oif => {
                        found.routes.extend(local_route(&route));
                    }
                    _ => found.host.routes.extend(host_route(&route)),
                }
            }
        }
        Ok(found)
    }

    async fn find(&self, device: &str) -> Result<Option<(u32, bool)>, rtnetlink::Error> {
        // Asking for one name answers with an error when there is none, and the library prints it;
        // the list is short.
        let mut links = self.handle.link().get().execute();
        let mut found = None;
        while let Some(link) = links.try_next().await? {
            let named = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::IfName(name) if name == device);
            if link.attributes.iter().any(named) {
                found = Some((link.header.index, link.header.flags.contains(LinkFlags::Up)));
            }
        }
        Ok(found)
    }

    /// Does one operation on the device or its routes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn apply(&self, op: &Op) -> Result<(), KernelError> {
        let done = self.runtime.block_on(async {
            match op {
                Op::RaiseDevice { device } => self.raise(device).await,
                Op::RemoveDevice { device } => match self.find(device).await? {
                    Some((index, _)) => self.handle.link().del(index).execute().await,
                    None => Ok(()),
                },
                Op::PutRoute { device, route } => {
                    let message = self.message(device, route).await?;
                    self.handle.route().add(message).replace().execute().await
                }
                Op::DeleteRoute { device, route } => {
                    let message = self.message(device, route).await?;
                    self.handle.route().del(message).execute().await
                }
                _ => Err(rtnetlink::Error::RequestFailed),
            }
        });
        done.map_err(|error| KernelError::new(op, &error))
    }

    /// A dummy device that is up, since IPv6 routes need that, and that makes itself no address.
    async fn raise(&self, device: &str) -> Result<(), rtnetlink::Error> {
        if self.find(device).await?.is_none() {
            self.handle
                .link()
                .add(LinkDummy::new(device).build())
                .execute()
                .await?;
            let generation = format!("/proc/sys/net/ipv6/conf/{device}/addr_gen_mode");
            // Without IPv6 there is no such file and nothing to keep from happening; elsewhere a
            // link-local address on the device does no harm.
            drop(std::fs::write(generation, "1"));
        }
        let (index, _) = self.index(device).await?;
        let up = LinkUnspec::new_with_index(index).up().build();
        self.handle.link().set(up).execute().await
    }

    async fn index(&self, device: &str) -> Result<(u32, bool), rtnetlink::Error> {
        let missing = || rtnetlink::Error::NamespaceError(format!("there is no device {device}"));
        self.find(device).await?.ok_or_else(missing)
    }

    async fn message(
        &self,
        device: &str,
        route: &LocalRoute,
    ) -> Result<RouteMessage, rtnetlink::Error> {
        let (index, _) = self.index(device).await?;
        Ok(route_message(index, route))
    }
}

fn route_message(index: u32, route: &LocalRoute) -> RouteMessage {
    let length = route.destination.prefix_len();
    let mut message = match (route.destination.network(), route.source) {
        (IpAddr::V4(address), source) => {
            let builder =
                RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(address, length);
            match source {
                Some(IpAddr::V4(source)) => builder.pref_source(source).build(),
                _ => builder.build(),
            }
        }
        (IpAddr::V6(address), source) => {
            let builder =
                RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(address, length);
            match source {
                Some(IpAddr::V6(source)) => builder.pref_source(source).build(),
                _ => builder.build(),
            }
        }
    };
    message.header.table = RT_TABLE_LOCAL;
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    message.header.protocol = RouteProtocol::Static;
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn oif(route: &RouteMessage) -> Option<u32> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })
}

fn destination(route: &RouteMessage) -> Option<IpNet> {
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => ip(address),
            _ => None,
        })?;
    IpNet::new(address, route.header.destination_prefix_length).ok()
}

/// A local route as we write them; what the kernel keeps for addresses, and what others wrote in
/// another way, is not ours.
fn local_route(route: &RouteMessage) -> Option<LocalRoute> {
    let ours = route.header.kind == RouteType::Local
        && route.header.table == RT_TABLE_LOCAL
        && route.header.protocol == RouteProtocol::Static;
    if !ours {
        return None;
    }
    let source = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => ip(address),
            _ => None,
        });
    Some(LocalRoute {
        destination: destination(route)?,
        source,
    })
}

/// A route of the node; those without a destination are default routes, wider than any range.
fn host_route(route: &RouteMessage) -> Option<HostRoute> {
    let gateway = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            _ => None,
        });
    let unspecified = match route.header.address_family {
        netlink_packet_route::AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        netlink_packet_route::AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let everything = || IpNet::new(unspecified, 0).ok();
    Some(HostRoute {
        destination: destination(route).or_else(everything)?,
        gateway,
    })
}

fn host_address(message: &AddressMessage) -> Option<HostAddress> {
    let find =
        |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    let local = find(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    // On ordinary links the kernel says the same address twice; IPv6 says it only once.
    let other = find(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let address = local.or(other)?;
    Some(HostAddress {
        address,
        peer: other.filter(|other| *other != address),
    })
}
