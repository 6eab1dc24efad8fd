//! Our device, the routes over it, and the node's own addresses and routes, through rtnetlink.

mod messages;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use futures::TryStreamExt as _;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::RouteMessage;
use netlink_sys::AsyncSocket as _;
use portolan_reconcile::{LocalRoute, Network, Op};
use rtnetlink::{Handle, LinkDummy, LinkUnspec, RouteMessageBuilder};

use crate::kernel::KernelError;

/// The kernel's links, addresses and routes.
pub struct Links {
    // The library is asynchronous, this thread is not: it runs the library while it waits.
    runtime: tokio::runtime::Runtime,
    handle: Handle,
    port: u32,
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
        let failed = |error: std::io::Error| KernelError::new("open rtnetlink", &error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let entered = runtime.enter();
        let (mut connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
        drop(entered);
        let socket = connection.socket_mut().socket_mut();
        let port = socket.bind_auto().map_err(failed)?.port_number();
        runtime.spawn(connection);
        Ok(Self {
            runtime,
            handle,
            port,
        })
    }

    /// What the kernel calls our socket in the events that we cause ourselves.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Reads links, addresses and routes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn observe(&self, device: &str) -> Result<Network, KernelError> {
        let failed = |error| KernelError::new("read addresses and routes", &error);
        self.runtime
            .block_on(self.observe_all(device))
            .map_err(failed)
    }

    async fn observe_all(&self, device: &str) -> Result<Network, rtnetlink::Error> {
        let mut found = Network::default();
        let (mut index, mut names) = (None, BTreeMap::<u32, Arc<str>>::new());
        let mut links = self.handle.link().get().execute();
        while let Some(link) = links.try_next().await? {
            if messages::name(&link) == Some(device) {
                index = Some(link.header.index);
                found.device_up = link.header.flags.contains(LinkFlags::Up);
            } else if let Some(interface) = messages::host_interface(&link) {
                names.insert(link.header.index, interface.name.clone());
                found.host.interfaces.push(interface);
            }
        }
        let mut addresses = self.handle.address().get().execute();
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
        for family in families {
            let mut routes = self.handle.route().get(family).execute();
            while let Some(route) = routes.try_next().await? {
                if messages::is_learnt(&route) {
                    continue;
                }
                match (index, messages::oif(&route)) {
                    (Some(ours), Some(oif)) if ours == oif => {
                        found.routes.extend(messages::local_route(&route));
                    }
                    _ => found.host.routes.extend(messages::host_route(&route)),
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
            if messages::name(&link) == Some(device) {
                found = Some((link.header.index, link.header.flags.contains(LinkFlags::Up)));
            }
        }
        Ok(found)
    }

    /// Does operations on the device and its routes in order, and answers each.
    pub fn apply(&self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        self.runtime.block_on(async {
            // Routes name the device by a number, which one look finds for all of them.
            let mut index = None;
            let mut results = Vec::with_capacity(ops.len());
            for op in ops {
                let done = self.apply_one(op, &mut index).await;
                results.push(done.map_err(|error| KernelError::new(op, &error)));
            }
            results
        })
    }

    async fn apply_one(&self, op: &Op, index: &mut Option<u32>) -> Result<(), rtnetlink::Error> {
        match op {
            Op::RaiseDevice { device } => {
                *index = None;
                self.raise(device).await
            }
            Op::RemoveDevice { device } => {
                *index = None;
                match self.find(device).await? {
                    Some((index, _)) => self.handle.link().del(index).execute().await,
                    None => Ok(()),
                }
            }
            Op::PutRoute { device, route } => {
                let message = self.message(device, index, route).await?;
                self.handle.route().add(message).replace().execute().await
            }
            Op::DeleteRoute { device, route } => {
                let message = self.message(device, index, route).await?;
                self.handle.route().del(message).execute().await
            }
            _ => Err(rtnetlink::Error::RequestFailed),
        }
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
        known: &mut Option<u32>,
        route: &LocalRoute,
    ) -> Result<RouteMessage, rtnetlink::Error> {
        let index = match *known {
            Some(index) => index,
            None => self.index(device).await?.0,
        };
        *known = Some(index);
        Ok(messages::route_message(index, route))
    }
}
