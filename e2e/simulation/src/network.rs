//! The simulated network between agents and controllers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use portolan_agent::receive::{Access, AccessError, Address, Connection, Dialer, RequestError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tower::Service as _;
use tower::util::{BoxCloneService, BoxService};

use crate::link::{LinkState, Passage};
use crate::relay::{Way, relay};

/// Timeout of opening a connection, as in agents.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The port of the first controller.
const FIRST_PORT: u16 = 10_270;

/// The service of a controller.
pub(crate) type PlanService = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

/// All connections of agents to controllers.
#[derive(Debug)]
pub(crate) struct Connections {
    links: BTreeMap<(usize, usize), watch::Sender<LinkState>>,
    services: Mutex<Vec<Option<PlanService>>>,
}

impl Connections {
    /// The connections of this number of agents to this number of controllers.
    pub(crate) fn new(agents: usize, controllers: usize) -> Self {
        let pairs = (0..agents).flat_map(|agent| (0..controllers).map(move |slot| (agent, slot)));
        let link = |pair| {
            let link = LinkState {
                passage: Passage::Up,
                generation: 0,
                latency: Duration::from_millis(1),
                wrong_hashes: Arc::default(),
            };
            (pair, watch::Sender::new(link))
        };
        Self {
            links: pairs.map(link).collect(),
            services: Mutex::new(vec![None; controllers]),
        }
    }

    /// Changes a connection. If it is cut, open connections break.
    pub(crate) fn set_passage(&self, agent: usize, slot: usize, passage: Passage) {
        self.change(agent, slot, |link| {
            link.passage = passage;
            if passage == Passage::Cut {
                link.generation += 1;
            }
        });
    }

    /// Changes a connection without breaking it.
    pub(crate) fn change(&self, agent: usize, slot: usize, change: impl FnOnce(&mut LinkState)) {
        if let Some(link) = self.links.get(&(agent, slot)) {
            link.send_modify(change);
        }
    }

    /// Changes the announced hash of the next batch.
    pub(crate) fn add_wrong_hash(&self, agent: usize, slot: usize) {
        if let Some(link) = self.links.get(&(agent, slot)) {
            link.borrow().wrong_hashes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts the service of a controller.
    pub(crate) fn serve(&self, slot: usize, service: PlanService) {
        if let Some(place) = self.services().get_mut(slot) {
            *place = Some(service);
        }
    }

    /// Ends the service of a controller, and breaks its connections.
    pub(crate) fn end(&self, slot: usize) {
        if let Some(place) = self.services().get_mut(slot) {
            *place = None;
        }
        for ((_, controller), link) in &self.links {
            if *controller == slot {
                link.send_modify(|link| link.generation += 1);
            }
        }
    }

    fn service(&self, slot: usize) -> Option<PlanService> {
        self.services().get(slot).cloned().flatten()
    }

    fn services(&self) -> MutexGuard<'_, Vec<Option<PlanService>>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self, agent: usize, slot: usize) -> Option<Way> {
        let link = self.links.get(&(agent, slot))?;
        Some(Way::new(link.subscribe()))
    }
}

/// The address of a controller.
pub(crate) fn address(slot: usize) -> Address {
    let port = FIRST_PORT.saturating_add(u16::try_from(slot).unwrap_or(u16::MAX));
    Address::Tcp(([127, 0, 0, 1], port).into())
}

/// The controller at an address.
pub(crate) fn slot(address: &Address) -> Option<usize> {
    match address {
        Address::Tcp(address) => address.port().checked_sub(FIRST_PORT).map(usize::from),
        Address::Unix(_) => None,
    }
}

/// Opens the connections of an agent.
#[derive(Debug)]
pub(crate) struct SimulatedDialer {
    pub(crate) connections: Arc<Connections>,
    pub(crate) agent: usize,
    /// Notified of each message that arrives.
    pub(crate) arrived: Arc<Notify>,
}

impl SimulatedDialer {
    async fn open(&self, controller: &Access) -> Result<Connection, AccessError> {
        let refused = || AccessError::Open(io::ErrorKind::ConnectionRefused.into());
        let slot = slot(&controller.address).ok_or_else(refused)?;
        let mut way = self.connections.way(self.agent, slot).ok_or_else(refused)?;
        sleep(way.latency()).await;
        match timeout(CONNECT_TIMEOUT, way.passes()).await {
            Ok(true) => {}
            Ok(false) => return Err(refused()),
            Err(_) => return Err(AccessError::Silent(CONNECT_TIMEOUT)),
        }
        let service = self.connections.service(slot).ok_or_else(refused)?;
        let arrived = self.arrived.clone();
        let connection = tower::service_fn(move |request: Request<Body>| {
            let mut service = service.clone();
            let (up, down, arrived) = (way.clone(), way.clone(), arrived.clone());
            async move {
                let request = request.map(|body| relay(body, up, None));
                match service.call(request).await {
                    Ok(response) => {
                        let response = response.map(|body| relay(body, down, Some(arrived)));
                        Ok::<_, RequestError>(response)
                    }
                    Err(never) => match never {},
                }
            }
        });
        Ok(BoxService::new(connection))
    }
}

impl Dialer for SimulatedDialer {
    fn dial<'a>(
        &'a self,
        controller: &'a Access,
    ) -> BoxFuture<'a, Result<Connection, AccessError>> {
        Box::pin(self.open(controller))
    }
}
