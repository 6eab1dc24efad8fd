//! What is printed, each figure beside its budget.

use anyhow::Result;
use serde::Serialize;

use super::objects::Size;
use super::percentile;
use crate::console::{Console, Table};

/// All that is measured.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Figures {
    pub(super) agents: u32,
    pub(super) services: u32,
    pub(super) endpoints: u32,
    pub(super) connect_s: f64,
    pub(super) snapshot_s: f64,
    pub(super) snapshot_mb: f64,
    pub(super) change_written_ms_p50: f64,
    pub(super) change_written_ms_p99: f64,
    pub(super) change_acked_ms_p99: f64,
    pub(super) large_written_ms_p50: f64,
    pub(super) bytes_per_agent_small: f64,
    pub(super) bytes_per_agent_large: f64,
    pub(super) churn_per_s: f64,
    pub(super) churn_lag_ms_p99: f64,
    pub(super) restart_s: f64,
    pub(super) restart_bytes_per_agent: f64,
    pub(super) controller_rss_mb: f64,
    pub(super) controller_cpu_s: f64,
    /// What a watch of every node gets for the same small change: the EndpointSlice in protobuf.
    pub(super) slice_bytes: usize,
    /// The same of one slice of the large list.
    pub(super) large_slice_bytes: usize,
}

impl Figures {
    pub(super) fn of(size: Size) -> Self {
        Self {
            agents: size.nodes,
            services: size.services,
            endpoints: size.endpoints,
            ..Self::default()
        }
    }

    pub(super) fn change_written(&mut self, milliseconds: Vec<f64>) -> Result<()> {
        self.change_written_ms_p50 = percentile(milliseconds.clone(), 0.5)?;
        self.change_written_ms_p99 = percentile(milliseconds, 0.99)?;
        Ok(())
    }

    pub(super) fn change_acked(&mut self, milliseconds: Vec<f64>) -> Result<()> {
        self.change_acked_ms_p99 = percentile(milliseconds, 0.99)?;
        Ok(())
    }

    pub(super) fn large_written(&mut self, milliseconds: Vec<f64>) -> Result<()> {
        self.large_written_ms_p50 = percentile(milliseconds, 0.5)?;
        Ok(())
    }

    pub(super) fn churn_lag(&mut self, milliseconds: Vec<f64>) -> Result<()> {
        self.churn_lag_ms_p99 = percentile(milliseconds, 0.99)?;
        Ok(())
    }

    /// What was measured, how much, in which unit, and the budget.
    fn rows(&self) -> [(&'static str, f64, &'static str, &'static str); 15] {
        [
            ("all agents connected", self.connect_s, "s", ""),
            ("all hold their plans", self.snapshot_s, "s", ""),
            ("a whole plan", self.snapshot_mb, "MB an agent", ""),
            (
                "a change is everywhere, median",
                self.change_written_ms_p50,
                "ms",
                "",
            ),
            ("… p99", self.change_written_ms_p99, "ms", "100 ms"),
            (
                "… and answered, p99",
                self.change_acked_ms_p99,
                "ms",
                "1,000 ms",
            ),
            (
                "… of a list of 5,000, median",
                self.large_written_ms_p50,
                "ms",
                "",
            ),
            (
                "bytes of a change",
                self.bytes_per_agent_small,
                "an agent",
                "300",
            ),
            (
                "… of a list of 5,000",
                self.bytes_per_agent_large,
                "an agent",
                "500",
            ),
            ("changes while many come", self.churn_per_s, "a second", ""),
            (
                "… one of them is everywhere, p99",
                self.churn_lag_ms_p99,
                "ms",
                "",
            ),
            ("another controller", self.restart_s, "s", ""),
            (
                "… bytes",
                self.restart_bytes_per_agent,
                "an agent",
                "near 0",
            ),
            (
                "the controller's memory",
                self.controller_rss_mb,
                "MB",
                "600 MB",
            ),
            ("… processor time", self.controller_cpu_s, "s", ""),
        ]
    }

    /// For people.
    pub(super) fn table(&self, console: Console) {
        let mut table = Table::new(["WHAT", "MEASURED", "BUDGET"]);
        for (what, value, unit, budget) in self.rows() {
            table.row([what, &format!("{value:.1} {unit}"), budget]);
        }
        console.table(&table);
        let watches = |bytes: usize| bytes * usize::try_from(self.agents).unwrap_or(usize::MAX);
        console.line(&format!(
            "a watch on every node would be sent {} bytes for the small change ({} in all), {} for the large",
            self.slice_bytes,
            watches(self.slice_bytes),
            self.large_slice_bytes
        ));
    }
}
