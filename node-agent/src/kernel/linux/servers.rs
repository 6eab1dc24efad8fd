//! Virtual and real servers through generic netlink, with many messages in one send.

mod schedulers;

use std::collections::BTreeMap;
use std::path::Path;

use ipvs_rs::{Destination, Flags, Forwarding, Request, Service, ServiceKey, Socket};
use portolan_plan::Protocol;
use portolan_reconcile::{
    Connections, Desired, IpvsOp, RealServerKey, SchedulerOp, Scheduling, Timeouts, VirtualServer,
    VirtualServerKey,
};

use self::schedulers::{
    MODULES, blocks_when_loaded, lacks_scheduler, no_scheduler, not_loaded, refuse, scheduler,
};
use crate::heartbeat;
use crate::kernel::KernelError;
use crate::traffic::Traffic;

/// The kernel's virtual servers.
#[derive(Debug)]
pub struct Servers {
    pub(super) socket: Socket,
    /// The traffic counters of the last read; `None` if counting is off.
    traffic: Option<Vec<(VirtualServerKey, Traffic)>>,
}

impl Servers {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel has no IPVS, or this process may not use it.
    pub fn open() -> Result<Self, KernelError> {
        let socket = Socket::open().map_err(|error| KernelError::new("open IPVS", &error))?;
        Ok(Self {
            socket,
            traffic: None,
        })
    }

    /// Enables the traffic counters, which are updated with each [`Servers::observe`].
    pub(super) fn count_traffic(&mut self) {
        self.traffic = Some(Vec::new());
    }

    /// Takes the traffic counters of the last read.
    pub(super) fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        self.traffic.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// All virtual servers with an address; those of firewall marks are never the agent's. A virtual server that
    /// equals the one in `wanted` shares its memory as soon as it is read: otherwise a large node would hold all
    /// its real servers twice during the read.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn observe(
        &mut self,
        wanted: Option<&Desired>,
    ) -> Result<BTreeMap<VirtualServerKey, VirtualServer>, KernelError> {
        let failed = |error| KernelError::new("read virtual servers", &error);
        let mut servers = BTreeMap::new();
        self.traffic.iter_mut().for_each(Vec::clear);
        for service in self.socket.services().map_err(failed)? {
            // Each is a request to the kernel, and there can be many thousands.
            heartbeat::beat();
            let Some(key) = known_key(&service.key) else {
                continue;
            };
            let traffic = self.traffic.as_mut();
            traffic
                .into_iter()
                .for_each(|all| all.push((key, service.traffic)));
            let destinations = self.socket.destinations(&service.key).map_err(failed)?;
            let mut server = virtual_server(&service, &destinations);
            if let Some(wanted) = wanted.and_then(|wanted| wanted.virtual_servers.get(&key)) {
                server.share(wanted);
            }
            servers.insert(key, server);
        }
        Ok(servers)
    }

    /// The timeouts of connections.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn timeouts(&mut self) -> Result<Timeouts, KernelError> {
        let held = self.socket.timeouts();
        let held = held.map_err(|error| KernelError::new("read timeouts", &error))?;
        Ok(Timeouts {
            tcp: held.tcp,
            tcp_fin: held.tcp_fin,
            udp: held.udp,
        })
    }

    /// The number of connections of the real servers of these virtual servers, established and closing (S-113).
    ///
    /// # Errors
    /// Those of the kernel, except for a virtual server that does not exist any more.
    pub fn connections(
        &mut self,
        servers: &[VirtualServerKey],
    ) -> Result<Connections, KernelError> {
        let mut connections = Connections::new();
        for server in servers {
            heartbeat::beat();
            let destinations = match self.socket.destinations(&key(server)) {
                Ok(destinations) => destinations,
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    let action = format!("count connections of {server}");
                    return Err(KernelError::new(&action, &error));
                }
            };
            let counts = destinations.iter().map(|d| {
                let (address, port) = (d.address, d.port);
                let count = u64::from(d.active_connections) + u64::from(d.inactive_connections);
                (RealServerKey { address, port }, count)
            });
            connections.insert(*server, counts.collect());
        }
        Ok(connections)
    }

    /// Applies operations in order, with many in one send.
    pub fn apply(&mut self, ops: &[&IpvsOp]) -> Vec<Result<(), KernelError>> {
        // Checked once per operation, because modules can be loaded and removed in between.
        let lacks = |op: &&IpvsOp| lacks_scheduler(op, Path::new(MODULES));
        let refused: Vec<_> = ops.iter().map(lacks).collect();
        let mut results = Vec::with_capacity(ops.len());
        let mut rest = ops;
        for run in refused.chunk_by(|left, right| left == right) {
            let (ops, after) = rest.split_at(run.len());
            rest = after;
            if run.first() == Some(&true) {
                results.extend(ops.iter().map(|op| refuse(op)));
            } else {
                results.extend(self.send(ops));
            }
        }
        results
    }

    /// Whether the kernel has a scheduler, or can load it without a risk for IPVS. If the kernel cannot be asked, the
    /// operation that needs the scheduler reports why.
    pub(super) fn has_scheduler(&mut self, name: &str) -> bool {
        !blocks_when_loaded(name, Path::new(MODULES))
            && !matches!(self.socket.has_scheduler(name), Ok(false))
    }

    /// Requests a scheduler from the kernel, which loads its module.
    ///
    /// # Errors
    /// If the kernel has no scheduler with this name, or the request could block IPVS.
    pub fn load_scheduler(&mut self, op: &SchedulerOp) -> Result<(), KernelError> {
        let scheduler = &op.scheduler;
        if blocks_when_loaded(scheduler, Path::new(MODULES)) {
            return Err(KernelError::new(op, &not_loaded(scheduler)));
        }
        match self.socket.has_scheduler(scheduler) {
            Ok(true) => Ok(()),
            Ok(false) => Err(KernelError::new(op, &no_scheduler(scheduler))),
            Err(error) => Err(KernelError::new(op, &error)),
        }
    }

    fn send(&mut self, ops: &[&IpvsOp]) -> Vec<Result<(), KernelError>> {
        let request = |op: &&IpvsOp| request(op);
        let per_send = ipvs_rs::DEFAULT_PER_SEND;
        let failed = self.socket.execute_each(ops, request, per_send);
        let mut failed = failed.into_iter().peekable();
        let answer = |(place, op): (usize, &&IpvsOp)| match failed.next_if(|(at, _)| *at == place) {
            Some((_, error)) => Err(explain(op, &error)),
            None => Ok(()),
        };
        ops.iter().enumerate().map(answer).collect()
    }
}

/// Explains an error. For a missing scheduler and a missing virtual server the kernel returns the same error
/// number, so the request has to be considered.
fn explain(op: &IpvsOp, error: &ipvs_rs::Error) -> KernelError {
    match scheduler(op) {
        Some(scheduler) if error.is_unknown_scheduler() => {
            KernelError::new(op, &no_scheduler(scheduler))
        }
        _ => KernelError::new(op, &error.reason())
            .in_doubt_if(error.is_of_socket())
            .of_service_if(is_of_service(op, error)),
    }
}

/// Whether the address of an endpoint caused an error: the kernel takes only those of hosts. The planner leaves out
/// addresses that are never one, but that an address is the broadcast address of a network only its nodes know.
fn is_of_service(op: &IpvsOp, error: &ipvs_rs::Error) -> bool {
    matches!(op, IpvsOp::AddRealServer { .. }) && error.is_invalid()
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
    // The kernel sets this flag on every virtual server.
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

/// The weight. For a real server with another forwarding method than masquerading it is a value that no plan
/// contains, so that the real server is repaired (S-107).
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

fn service(server: &VirtualServerKey, wanted: &Scheduling) -> Service {
    Service {
        flags: Flags(wanted.flags),
        timeout: wanted.timeout,
        ..Service::new(key(server), &*wanted.scheduler)
    }
}

fn destination(backend: &RealServerKey, weight: u32) -> Destination {
    Destination::masquerade(backend.address, backend.port, weight)
}

fn request(op: &IpvsOp) -> Request {
    match op {
        IpvsOp::AddVirtualServer {
            server,
            scheduling: wanted,
        } => Request::NewService(service(server, wanted)),
        IpvsOp::EditVirtualServer {
            server,
            scheduling: wanted,
        } => Request::SetService(service(server, wanted)),
        IpvsOp::DeleteVirtualServer { server } => Request::DelService(key(server)),
        IpvsOp::AddRealServer {
            server,
            backend,
            weight,
        } => Request::NewDestination(key(server), destination(backend, *weight)),
        IpvsOp::EditRealServer {
            server,
            backend,
            weight,
        } => Request::SetDestination(key(server), destination(backend, *weight)),
        IpvsOp::DeleteRealServer { server, backend } => {
            Request::DelDestination(key(server), destination(backend, 0).key())
        }
        IpvsOp::SetTimeouts { timeouts } => Request::SetTimeouts(ipvs_rs::Timeouts {
            tcp: timeouts.tcp,
            tcp_fin: timeouts.tcp_fin,
            udp: timeouts.udp,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-229: a tenant chooses the addresses of endpoints, and nothing else that the kernel could refuse.
    #[test]
    fn only_the_address_of_an_endpoint_is_the_fault_of_its_service() {
        let server: VirtualServerKey = "TCP 10.96.0.1:80".parse().unwrap();
        let backend = RealServerKey {
            address: [10, 0, 0, 255].into(),
            port: 80,
        };
        let scheduling = Scheduling {
            scheduler: "rr".into(),
            flags: 0,
            timeout: 0,
        };
        let add = IpvsOp::AddRealServer {
            server,
            backend,
            weight: 1,
        };
        let create = IpvsOp::AddVirtualServer { server, scheduling };
        let of_service = |op: &IpvsOp, errno| {
            let request = Box::new(request(op));
            explain(op, &ipvs_rs::Error::Kernel { errno, request }).of_service
        };
        let (invalid, no_memory, not_permitted) = (22, 12, 1);
        assert!(of_service(&add, invalid), "S-229");
        assert!(!of_service(&add, no_memory) && !of_service(&add, not_permitted));
        assert!(!of_service(&create, invalid));
    }
}
