//! Services whose endpoints change again and again, and the time until every agent has a change.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::bulk::Bulk;
use super::memory::object;
use super::rig::Rig;
use crate::waits;

/// How much slower changes may become beside what is tested.
pub(super) const SLOWER: f64 = 1.5;
/// One in this number of changes may take longer than the compared time.
const ONE_IN: usize = 100;
/// Pause between two changes.
const EVERY: Duration = Duration::from_millis(30);
/// Until one change is everywhere, on hardware.
const CHANGED: Duration = Duration::from_secs(20);

/// The Services. No endpoint ever returns, so that no plan equals an earlier one.
pub(super) struct Probes {
    services: usize,
    /// Number of changes so far.
    changes: u16,
}

/// A change that the API server has stored.
pub(super) struct Change {
    service: String,
    endpoint: IpAddr,
}

impl Probes {
    /// Creates this number of Services, each with one endpoint.
    pub(super) fn create(bulk: &Bulk, services: usize) -> Result<Self> {
        bulk.create("default", (0..services).map(service))?;
        bulk.create("default", (0..services).map(slice))?;
        Ok(Self {
            services,
            changes: 0,
        })
    }

    /// Gives the next Service another endpoint.
    pub(super) fn change(&mut self, bulk: &Bulk) -> Result<Change> {
        self.changes = self.changes.checked_add(1).context("too many changes")?;
        let number = usize::from(self.changes) % self.services;
        let change = Change {
            service: name(number),
            endpoint: endpoint(number, self.changes),
        };
        let patch = json!({"endpoints": [{"addresses": [change.endpoint], "nodeName": "node-1"}]});
        bulk.run(async |client: Client| {
            let slices: Api<EndpointSlice> = Api::default_namespaced(client);
            let params = PatchParams::default();
            slices
                .patch(&change.service, &params, &Patch::Merge(patch))
                .await?;
            Ok(())
        })?;
        Ok(change)
    }

    /// Makes changes one by one. Returns the time of each in milliseconds, from the response of the API server until
    /// every agent of the rig has it.
    pub(super) fn measure(
        &mut self,
        rig: &Rig<'_>,
        bulk: &Bulk,
        changes: usize,
    ) -> Result<Vec<f64>> {
        let mut taken = Vec::new();
        let mut next = Instant::now();
        for _ in 0..changes {
            let change = self.change(bulk)?;
            let stored = Instant::now();
            change.wait_arrived(rig)?;
            taken.push(stored.elapsed().as_secs_f64() * 1000.0);
            next = (next + EVERY).max(Instant::now());
            waits::sleep_until(next)?;
        }
        Ok(taken)
    }
}

impl Change {
    /// Waits until every agent has it.
    fn wait_arrived(&self, rig: &Rig<'_>) -> Result<()> {
        let agents = rig.agents()?;
        let limit = rig.stage.waits.limit(CHANGED);
        let start = Instant::now();
        let Self { service, endpoint } = self;
        loop {
            let has = |node: &str| {
                agents
                    .endpoints(node, "default", service)
                    .contains(endpoint)
            };
            let Some(without) = agents.nodes().find(|node| !has(node)) else {
                return Ok(());
            };
            ensure!(
                start.elapsed() < limit,
                "{without} does not have endpoint {endpoint} of {service} after {limit:?}"
            );
            // Short, because it is part of what is measured.
            waits::sleep_until(Instant::now() + Duration::from_millis(1))?;
        }
    }
}

/// The time within which 99 % of the changes were everywhere.
pub(super) fn p99(times: &[f64]) -> Result<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let found = times.iter().rev().nth(times.len() / ONE_IN);
    found.copied().context("no change was measured")
}

fn name(number: usize) -> String {
    format!("honest-{number}")
}

/// An address that no other Service and no other version has.
fn endpoint(number: usize, version: u16) -> IpAddr {
    let [high, low] = version.to_be_bytes();
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    [10, 100 + number, high, low].into()
}

fn service(number: usize) -> Service {
    object(json!({
        "metadata": {"name": name(number)},
        "spec": {"ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80}]},
    }))
}

fn slice(number: usize) -> EndpointSlice {
    object(json!({
        "metadata": {
            "name": name(number),
            "labels": {"kubernetes.io/service-name": name(number)},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [endpoint(number, 0)], "nodeName": "node-1"}],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_in_a_hundred_may_take_longer() {
        let mut times = vec![1.0; 297];
        times.extend([100.0; 3]);
        assert!(p99(&times).unwrap() < 2.0);
        times.push(100.0);
        assert!(p99(&times).unwrap() > 99.0);
        assert!(p99(&[]).is_err());
    }
}
