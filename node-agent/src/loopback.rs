//! Node ports on loopback addresses for the node's own clients (`nodePortAddresses: localhost`, S-234). The kernel
//! cannot translate packets from 127.0.0.1 or ::1 to another address, so this proxies TCP streams in user space.
//!
//! Touches: the network. A connection goes to a backend of the plan that is current at its start. The number of
//! connections and the time to connect are limited.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portolan_plan::{Entry, EntryKey, Family, FrontendKind, NodePlan, Protocol, ServiceId};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::health::Health;
use crate::plan_watch::PlanWatch;
use crate::programmer::Applied;

/// The value in `nodePortAddresses` that enables it.
pub const LOCALHOST: &str = "localhost";
/// Maximum number of proxied connections; further ones wait.
const MAX_CONNECTIONS: usize = 1024;
/// Maximum number of backends that are tried for one connection.
const MAX_ATTEMPTS: usize = 3;
/// Timeout for connecting to a backend.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Retry delay for a port that is in use.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The listen addresses with the Service ports that they serve.
type Ports = BTreeMap<SocketAddr, Target>;

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    service: ServiceId,
    port: Arc<str>,
    family: Family,
}

/// Listens on the node ports of the current plan until the program ends.
pub async fn serve(
    plans: Arc<PlanWatch>,
    mut applied: watch::Receiver<Applied>,
    health: Arc<Health>,
) {
    let mut open: BTreeMap<SocketAddr, (Target, Listening)> = BTreeMap::new();
    let mut taken: BTreeMap<SocketAddr, String> = BTreeMap::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        applied.mark_unchanged();
        let wanted = plans.peek(ports);
        open.retain(|place, (target, _)| wanted.get(place) == Some(target));
        taken.retain(|place, _| wanted.contains_key(place));
        for (place, target) in wanted {
            if open.contains_key(&place) {
                continue;
            }
            match TcpListener::bind(place).await {
                Ok(listener) => {
                    if taken.remove(&place).is_some() {
                        info!(%place, service = %target.service, "now listening for a node port on loopback");
                    }
                    let (plans, health) = (plans.clone(), health.clone());
                    let task = accept(listener, target.clone(), plans, health, room.clone());
                    open.insert(place, (target, Listening(tokio::spawn(task))));
                }
                Err(error) => log_failure(&mut taken, place, &target, &error),
            }
        }
        tokio::select! {
            changed = applied.changed() => if changed.is_err() { return },
            () = sleep(RETRY_DELAY), if !taken.is_empty() => {}
        }
    }
}

/// Logs each reason once.
fn log_failure(
    taken: &mut BTreeMap<SocketAddr, String>,
    place: SocketAddr,
    target: &Target,
    error: &io::Error,
) {
    let why = error.to_string();
    if taken.get(&place) != Some(&why) {
        let (service, port) = (&target.service, place.port());
        warn!(
            "cannot listen on {place} for the node port of {service}: {error}; `ss -ltnp sport = {port}` on the node shows \
             the program that uses it"
        );
    }
    taken.insert(place, why);
}

/// The node ports of a plan, where its settings ask for loopback addresses.
fn ports(plan: &NodePlan) -> Ports {
    let asks = plan.node().is_some_and(|node| {
        let mut words = node.settings.node_port_addresses.iter();
        words.any(|word| word == LOCALHOST)
    });
    let mut found = Ports::new();
    for (service, head) in plan.heads().filter(|_| asks) {
        for port in head
            .ports
            .iter()
            .filter(|port| port.protocol == Protocol::Tcp)
        {
            let node_ports = port.frontends.iter();
            let node_ports = node_ports.filter(|frontend| frontend.kind == FrontendKind::NodePort);
            for (frontend, family) in
                node_ports.flat_map(|one| Family::BOTH.map(|family| (one, family)))
            {
                if port.has_family(family) {
                    let target = Target {
                        service: service.clone(),
                        port: port.name.clone(),
                        family,
                    };
                    found.insert(SocketAddr::new(loopback(family), frontend.port), target);
                }
            }
        }
    }
    found
}

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::LOCALHOST.into(),
        Family::Ipv6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A socket that is open for the lifetime of this value. Its connections continue after that.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: Target,
    plans: Arc<PlanWatch>,
    health: Arc<Health>,
    room: Arc<Semaphore>,
) {
    let turn = AtomicUsize::new(0);
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                sleep(health.counters.accept_errors.note("loopback", &error)).await;
                continue;
            }
        };
        // Acquired after accept, so that an unused port does not take capacity from others.
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let backends = plans.peek(|plan| backends(plan, &target));
        let first = turn.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            pass_on(client, &backends, first).await;
            drop(place);
        });
    }
}

/// The backends of a port for clients on the node itself.
fn backends(plan: &NodePlan, target: &Target) -> Vec<SocketAddr> {
    let head = match plan.get(&EntryKey::Head(target.service.clone())) {
        Some(Entry::Head(head)) => &*head.ports,
        _ => &[],
    };
    let mut ports = head
        .iter()
        .filter(|port| port.protocol == Protocol::Tcp && port.name == target.port);
    let list = ports.next().and_then(|port| {
        let list = port.external.as_ref()?;
        plan.backends(&target.service, port, list, target.family)
    });
    let backends = list.into_iter().flat_map(|list| list.as_slice());
    let backends = backends.filter(|backend| backend.weight > 0);
    backends
        .map(|backend| SocketAddr::new(backend.address, backend.port))
        .collect()
}

/// Proxies a stream to the first backend that accepts it; without one the client's connection is closed.
async fn pass_on(mut client: TcpStream, backends: &[SocketAddr], first: usize) {
    for turn in 0..backends.len().min(MAX_ATTEMPTS) {
        let Some(backend) = backends.get((first + turn) % backends.len()) else {
            return;
        };
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(backend)).await {
            Ok(Ok(mut server)) => {
                // Errors of the stream concern only the client and the backend.
                drop(copy_bidirectional(&mut client, &mut server).await);
                return;
            }
            Ok(Err(error)) => debug!(%backend, %error, "cannot connect to a backend"),
            Err(_) => debug!(%backend, "a backend did not answer in time"),
        }
    }
}
