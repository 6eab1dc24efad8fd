//! Virtual and real servers through generic netlink, many messages in one send.

use std::collections::BTreeMap;
use std::path::Path;

use ipvs_rs::{Destination, Flags, Forwarding, Request, Service, ServiceKey, Socket};
use portolan_plan::Protocol;
use portolan_reconcile::{
    Connections, Desired, IpvsOp, RealServerKey, SchedulerOp, Scheduling, Timeouts, VirtualServer,
    VirtualServerKey,
};

use crate::kernel::KernelError;
use crate::traffic::Traffic;

/// The kernel's virtual servers.
#[derive(Debug)]
pub struct Servers {
    pub(super) socket: Socket,
    /// What they had carried when they were observed last; `None` where nobody asks.
    traffic: Option<Vec<(VirtualServerKey, Traffic)>>,
}

impl Servers {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no IPVS, or this process may not use it.
    pub fn open() -> Result<Self, KernelError> {
        let socket = Socket::open().map_err(|error| KernelError::new("open IPVS", &error))?;
        Ok(Self {
            socket,
            traffic: None,
        })
    }

    /// Keeps what they have carried whenever they are observed, from now on.
    pub(super) fn count_traffic(&mut self) {
        self.traffic = Some(Vec::new());
    }

    /// What they had carried when they were observed last, told once.
    pub(super) fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        self.traffic.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// All virtual servers with an address; those of firewall marks are never ours. What is as `wanted` has it shares
    /// that one's memory as soon as it is read: a large node would otherwise hold all its real servers twice meanwhile.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn observe(
        &mut self,
        wanted: Option<&Desired>,
    ) -> Result<BTreeMap<VirtualServerKey, VirtualServer>, KernelError> {
        let failed = |error| KernelError::new("read virtual servers", &error);
        let mut servers = BTreeMap::new();
        self.traffic.iter_mut().for_each(Vec::clear);
        for service in self.socket.services().map_err(failed)? {
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

    /// Timeouts of connections.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn timeouts(&mut self) -> Result<Timeouts, KernelError> {
        let held = self.socket.timeouts();
        let held = held.map_err(|error| KernelError::new("read timeouts", &error))?;
        Ok(Timeouts {
            tcp: held.tcp,
            tcp_fin: held.tcp_fin,
            udp: held.udp,
        })
    }

    /// How many connections the real servers of these have, established and ending (S-113).
    ///
    /// # Errors
    /// What the kernel says, but for a virtual server that is not there any more.
    pub fn connections(
        &mut self,
        servers: &[VirtualServerKey],
    ) -> Result<Connections, KernelError> {
        let mut connections = Connections::new();
        for server in servers {
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

    /// Does operations in order, many in one send.
    pub fn apply(&mut self, ops: &[&IpvsOp]) -> Vec<Result<(), KernelError>> {
        // Once for each: modules come and go meanwhile.
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

    /// Asks the kernel for a scheduler; it loads the module.
    ///
    /// # Errors
    /// The kernel has none of this name, or asking could block IPVS.
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

/// The kernel says "no such file" of a scheduler and of a virtual server alike; the request tells which.
fn explain(op: &IpvsOp, error: &ipvs_rs::Error) -> KernelError {
    match scheduler(op) {
        Some(scheduler) if error.is_unknown_scheduler() => {
            KernelError::new(op, &no_scheduler(scheduler))
        }
        _ => KernelError::new(op, &error.reason()).in_doubt_if(error.is_of_socket()),
    }
}

/// The kernel's modules that are there, with what they show.
const MODULES: &str = "/sys/module";

/// Whether an operation needs a scheduler that was there when it was asked for, and that was removed since. It is
/// not sent then: IPVS would load the module itself.
fn lacks_scheduler(op: &IpvsOp, modules: &Path) -> bool {
    scheduler(op).is_some_and(|name| blocks_when_loaded(name, modules))
}

/// The scheduler that IPVS would load for an operation.
fn scheduler(op: &IpvsOp) -> Option<&str> {
    match op {
        IpvsOp::AddVirtualServer { scheduling, .. }
        | IpvsOp::EditVirtualServer { scheduling, .. } => Some(&scheduling.scheduler),
        _ => None,
    }
}

fn refuse(op: &IpvsOp) -> Result<(), KernelError> {
    let words = not_loaded(scheduler(op).unwrap_or_default());
    // What is known of its modules is not true any more.
    Err(KernelError::new(op, &words).in_doubt_if(true))
}

/// Whether asking for a scheduler may stop all of IPVS for ever.
///
/// IPVS loads the module of one that it does not know while it holds its lock. These two modules
/// then wait for network namespaces that are being removed, whose removal waits for that lock: seen
/// on Linux 6.1. Where IPVS itself is no module, nothing can be told from the modules.
fn blocks_when_loaded(scheduler: &str, modules: &Path) -> bool {
    ["lblc", "lblcr"].contains(&scheduler)
        && modules.join("ip_vs/initstate").exists()
        && !modules.join(format!("ip_vs_{scheduler}")).exists()
}

fn not_loaded(scheduler: &str) -> String {
    format!(
        "its module has to be loaded before it is asked for (modprobe ip_vs_{scheduler} on this node): \
         loaded by IPVS itself it can stop all of IPVS; or name another scheduler in \
         spec.settings.scheduler of the ProxyConfig or, where a Service asks for it, in its \
         annotation proxy.portolan.dev/scheduler"
    )
}

fn no_scheduler(scheduler: &str) -> String {
    format!(
        "the kernel has no scheduler {scheduler:?}: load its module (modprobe ip_vs_{scheduler}), or \
         name another in spec.settings.scheduler of the ProxyConfig or, where a Service asks for it, \
         in its annotation proxy.portolan.dev/scheduler; until then virtual servers keep the one \
         that they have, and new ones are not made"
    )
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

    /// Somebody may remove a module after it was asked for.
    #[test]
    fn a_virtual_server_is_never_given_a_scheduler_that_ipvs_would_have_to_load_and_hang() {
        let modules = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::create_dir(modules.path().join(name)).unwrap();
        let of = |scheduler: &str| {
            let scheduling = Scheduling {
                scheduler: scheduler.into(),
                flags: 0,
                timeout: 0,
            };
            let server = "TCP 10.96.0.1:80".parse().unwrap();
            lacks_scheduler(
                &IpvsOp::AddVirtualServer { server, scheduling },
                modules.path(),
            )
        };
        make("ip_vs");
        std::fs::write(modules.path().join("ip_vs/initstate"), "live\n").unwrap();
        assert!(!of("rr") && of("lblcr"), "S-101");
        make("ip_vs_lblcr");
        assert!(!of("lblcr"));
    }

    #[test]
    fn a_scheduler_whose_module_could_block_ipvs_is_asked_for_only_once_it_is_loaded() {
        let modules = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::create_dir(modules.path().join(name)).unwrap();
        let blocks = |scheduler| blocks_when_loaded(scheduler, modules.path());
        make("ip_vs");
        assert!(!blocks("lblc"), "IPVS is part of the kernel");
        std::fs::write(modules.path().join("ip_vs/initstate"), "live\n").unwrap();
        assert!(blocks("lblc") && blocks("lblcr"), "S-101");
        assert!(!blocks("rr") && !blocks("mh"));
        make("ip_vs_lblc");
        assert!(!blocks("lblc") && blocks("lblcr"));
    }
}
