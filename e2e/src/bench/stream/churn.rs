//! Many changes at a time: how many of them are delivered, the latency of each, and which process uses the processors
//! meanwhile.

use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;
use serde::Serialize;
use tokio::task::JoinSet;

use super::cpu::Cpu;
use super::objects::{self, PROBE, Size};
use super::{Bench, CHURN, Seen, percentile};

/// Interval of probes while endpoints change.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Measurements.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Churn {
    /// Changes that the API server took.
    #[serde(rename = "churn_per_s")]
    pub(super) per_s: f64,
    /// Latency until the first agent had the probed change.
    #[serde(rename = "churn_first_ms_p50")]
    pub(super) first_ms_p50: f64,
    #[serde(rename = "churn_first_ms_p99")]
    pub(super) first_ms_p99: f64,
    /// And the last.
    #[serde(rename = "churn_lag_ms_p50")]
    pub(super) lag_ms_p50: f64,
    #[serde(rename = "churn_lag_ms_p99")]
    pub(super) lag_ms_p99: f64,
    /// After the last change, until all of them are in force everywhere.
    #[serde(rename = "churn_settles_s")]
    pub(super) settles_s: f64,
    /// Batches that the controller sent to all agents together.
    #[serde(rename = "churn_batches_per_s")]
    pub(super) batches_per_s: f64,
    #[serde(rename = "churn_mb_per_s")]
    pub(super) mb_per_s: f64,
    /// From the first change until all are in force.
    #[serde(rename = "churn_cpu")]
    pub(super) cpu: Cpu,
}

impl Bench<'_> {
    /// Many changes, and a probe among them.
    pub(super) fn churn(&mut self, seconds: u64) -> Result<Churn> {
        let (client, size) = (self.client.clone(), self.size);
        let changes = seconds * CHURN;
        let (page, cpu) = (self.controller.page()?, self.cpu()?);
        let churn = self.runtime.spawn(churn(client, size, changes));
        let begin = Instant::now();
        let mut seen = Vec::new();
        while !churn.is_finished() {
            seen.push(self.see(PROBE, size.endpoints)?);
            std::thread::sleep(PROBE_EVERY);
        }
        self.runtime.block_on(churn)??;
        let length = begin.elapsed();
        let all = f64::from(size.nodes);
        self.controller
            .wait("nodes_in_force", all, self.stage.waits)?;
        let whole = begin.elapsed();
        let after = self.controller.page()?;
        let rate = |name| -> Result<f64> {
            Ok((after.value(name)? - page.value(name)?) / whole.as_secs_f64())
        };
        let of = |what: fn(&Seen) -> f64, share| percentile(seen.iter().map(what).collect(), share);
        let changes = u32::try_from(changes).unwrap_or(u32::MAX);
        Ok(Churn {
            per_s: f64::from(changes) / length.as_secs_f64(),
            first_ms_p50: of(|seen| seen.first, 0.5)?,
            first_ms_p99: of(|seen| seen.first, 0.99)?,
            lag_ms_p50: of(|seen| seen.last, 0.5)?,
            lag_ms_p99: of(|seen| seen.last, 0.99)?,
            settles_s: (whole - length).as_secs_f64(),
            batches_per_s: rate("batches_total")?,
            mb_per_s: rate("stream_bytes_total")? / 1e6,
            cpu: self.cpu()?.since(cpu),
        })
    }
}

/// Moves endpoints of one Service after the other.
async fn churn(client: Client, size: Size, changes: u64) -> Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / CHURN));
    let mut under_way: JoinSet<Result<()>> = JoinSet::new();
    for number in 0..changes {
        ticks.tick().await;
        if under_way.len() >= objects::AT_ONCE
            && let Some(done) = under_way.join_next().await
        {
            done??;
        }
        let client = client.clone();
        let service = u32::try_from(number % u64::from(size.services)).unwrap_or(0);
        let generation = u32::try_from(number).unwrap_or(0) + 1_000;
        under_way.spawn(async move {
            let name = objects::service_name(service);
            let from = service * size.endpoints;
            objects::change(&client, size, &name, from, size.endpoints, generation).await
        });
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(())
}
