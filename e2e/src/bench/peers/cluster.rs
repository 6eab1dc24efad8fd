//! The API server with its objects, and the controller of Portolan.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;

use super::Options;
use super::objects::{self, PLACES, PROBE};
use crate::bench::stream;
use crate::control_plane::{ControlPlane, Reach};
use crate::dataplane::Dataplane;
use crate::installation;
use crate::stage::Stage;

/// How many Services are dialed until a plan counts as in force.
const SAMPLES: u32 = 32;
/// How many Services the connections of a run are spread over, at most.
const DIALED: u32 = 1000;

/// It ends when it is dropped.
pub(super) struct Cluster {
    // The order matters: clients end before the API server.
    controller: stream::Controller,
    client: Client,
    runtime: Runtime,
    plane: ControlPlane,
    options: Options,
    /// Which of its places the probe has.
    place: Cell<usize>,
}

impl Cluster {
    /// Creates all objects, then starts the controller.
    pub(super) fn start(stage: &Stage, options: Options) -> Result<Self> {
        let (plane, runtime, client) = stream::quiet_plane(stage)?;
        if let Some(manifest) = options.dataplane.dataplane().manifest() {
            plane.apply(&manifest)?;
        }
        runtime.block_on(create(&client, options))?;
        let kubeconfig = plane.user(installation::CONTROLLER, None, Reach::Here)?;
        let place = stream::Place::insecure()?;
        let controller = stream::Controller::start(&kubeconfig, place, &[], stage.waits)?;
        Ok(Self {
            controller,
            client,
            runtime,
            plane,
            options,
            place: Cell::new(0),
        })
    }

    /// Arguments of an agent that connects to the controller.
    pub(super) fn way(&self) -> Vec<String> {
        self.controller.place().way().words()
    }

    /// The kubeconfig of the administrator.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig(Reach::Here)
    }

    /// The port of the API server on loopback.
    pub(super) fn port(&self) -> u16 {
        self.plane.port()
    }

    pub(super) fn dataplane(&self) -> Dataplane {
        self.options.dataplane.dataplane()
    }

    /// Addresses of Services spread over all, the first and the last among them.
    pub(super) fn samples(&self) -> Vec<SocketAddr> {
        self.spread(SAMPLES).map(objects::frontend).collect()
    }

    /// The same for many connections.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.spread(DIALED).map(objects::frontend).collect()
    }

    /// The first endpoints of the same Services.
    pub(super) fn endpoints(&self) -> Vec<SocketAddr> {
        let first = |service| objects::backend(service * self.options.endpoints);
        self.spread(DIALED).map(first).collect()
    }

    fn spread(&self, count: u32) -> impl Iterator<Item = u32> {
        let last = self.options.services - 1;
        let steps = (count - 1).min(last);
        (0..=steps).map(move |step| {
            let number = u64::from(last) * u64::from(step) / u64::from(steps);
            // Not more than the last one.
            u32::try_from(number).unwrap_or(last)
        })
    }

    /// The address of the Service whose endpoint moves.
    pub(super) fn probe(&self) -> SocketAddr {
        objects::frontend(self.options.services)
    }

    /// Moves that endpoint, and returns its new address once the API server has stored it.
    pub(super) fn move_probe(&self) -> Result<Ipv4Addr> {
        self.place.set((self.place.get() + 1) % PLACES.len());
        let address = PLACES.get(self.place.get()).copied().context("no place")?;
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), "default");
        let patch = json!({"endpoints": objects::endpoints([address].into_iter())});
        let (patch, parameters) = (Patch::Merge(patch), PatchParams::default());
        let patched = slices.patch(PROBE, &parameters, &patch);
        self.runtime.block_on(patched)?;
        Ok(address)
    }
}

async fn create(client: &Client, options: Options) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    stream::create_all(&nodes, [objects::node()].into_iter()).await?;
    let all = 0..options.services;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let listed = all
        .clone()
        .map(|number| objects::service(&objects::name(number), number));
    let probe = objects::service(PROBE, options.services);
    stream::create_all(&services, listed.chain([probe])).await?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let listed = all.map(|number| objects::slice_of(number, options.endpoints));
    let probe = objects::slice(PROBE, PLACES.into_iter().take(1));
    stream::create_all(&slices, listed.chain([probe])).await
}
