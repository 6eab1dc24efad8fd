//! Virtual and real servers through generic netlink, many messages in one send.

use std::collections::BTreeMap;

use ipvs_rs::{Destination, Flags, Forwarding, Request, Service, ServiceKey, Socket};
use portolan_plan::Protocol;
use portolan_reconcile::{Op, RealServerKey, VirtualServer, VirtualServerKey};

use crate::kernel::KernelError;

/// The kernel's virtual servers.
#[derive(Debug)]
pub struct Servers {
    socket: Socket,
}

impl Servers {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no IPVS, or this process may not use it.
    pub fn open() -> Result<Self, KernelError> {
        let socket = Socket::open().map_err(|error| KernelError::new("open IPVS", &error))?;
        Ok(Self { socket })
    }

    /// All virtual servers with an address. Those of firewall marks are never ours.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn observe(&mut self) -> Result<BTreeMap<VirtualServerKey, VirtualServer>, KernelError> {
        let failed = |error| KernelError::new("read virtual servers", &error);
        let mut servers = BTreeMap::new();
        for service in self.socket.services().map_err(failed)? {
            let Some(key) = known_key(&service.key) else {
                continue;
            };
            let destinations = self.socket.destinations(&service.key).map_err(failed)?;
            servers.insert(key, virtual_server(&service, &destinations));
        }
        Ok(servers)
    }

    /// Does operations in order, many in one send.
    pub fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        let requests: Vec<_> = ops.iter().filter_map(request).collect();
        let mut results = self
            .socket
            .execute(&requests, ipvs_rs::DEFAULT_PER_SEND)
            .into_iter();
        let answer = |op: &Op| match request(op).and_then(|_| results.next()) {
            Some(result) => result.map_err(|error| KernelError::new(op, &error)),
            None => Err(KernelError::new(op, "no IPVS operation")),
        };
        ops.iter().map(answer).collect()
    }
}

fn known_key(key: &ServiceKey) -> Option<VirtualServerKey> {
    let ServiceKey::Address {
        protocol,
        address,
        port,
    } = *key
    else {
        return None;
    };
    let protocol = match protocol {
        ipvs_rs::Protocol::Tcp => Protocol::Tcp,
        ipvs_rs::Protocol::Udp => Protocol::Udp,
        ipvs_rs::Protocol::Sctp => Protocol::Sctp,
        ipvs_rs::Protocol::Other(_) => return None,
    };
    Some(VirtualServerKey {
        address,
        port,
        protocol,
    })
}

fn virtual_server(service: &Service, destinations: &[Destination]) -> VirtualServer {
    // The kernel sets a flag of its own on every virtual server it holds.
    let flags = service.flags.without(Flags::HASHED);
    let persistent = flags.contains(Flags::PERSISTENT);
    VirtualServer {
        scheduler: service.scheduler.as_str().into(),
        flags: flags.0,
        timeout: if persistent { service.timeout } else { 0 },
        real_servers: destinations
            .iter()
            .map(|d| {
                (
                    RealServerKey {
                        address: d.address,
                        port: d.port,
                    },
                    weight(d),
                )
            })
            .collect(),
    }
}

/// The weight; for a real server that does not forward by masquerading, one that no plan has, so that
/// it is put right (S-107).
fn weight(destination: &Destination) -> u32 {
    match destination.forwarding {
        Forwarding::Masquerade => destination.weight,
        _ => u32::MAX,
    }
}

fn key(server: &VirtualServerKey) -> ServiceKey {
    let protocol = match server.protocol {
        Protocol::Tcp => ipvs_rs::Protocol::Tcp,
        Protocol::Udp => ipvs_rs::Protocol::Udp,
        Protocol::Sctp => ipvs_rs::Protocol::Sctp,
    };
    ServiceKey::address(protocol, server.address, server.port)
}

fn service(server: &VirtualServerKey, wanted: &VirtualServer) -> Service {
    Service {
        flags: Flags(wanted.flags),
        timeout: wanted.timeout,
        ..Service::new(key(server), &*wanted.scheduler)
    }
}

fn destination(backend: &RealServerKey, weight: u32) -> Destination {
    Destination::masquerade(backend.address, backend.port, weight)
}

fn request(op: &Op) -> Option<Request> {
    Some(match op {
        Op::AddVirtualServer {
            server,
            service: wanted,
        } => Request::NewService(service(server, wanted)),
        Op::EditVirtualServer {
            server,
            service: wanted,
        } => Request::SetService(service(server, wanted)),
        Op::DeleteVirtualServer { server } => Request::DelService(key(server)),
        Op::AddRealServer {
            server,
            backend,
            weight,
        } => Request::NewDestination(key(server), destination(backend, *weight)),
        Op::EditRealServer {
            server,
            backend,
            weight,
        } => Request::SetDestination(key(server), destination(backend, *weight)),
        Op::DeleteRealServer { server, backend } => {
            Request::DelDestination(key(server), destination(backend, 0).key())
        }
        _ => return None,
    })
}
