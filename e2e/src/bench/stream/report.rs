//! The printed report, with each figure beside its budget.

use anyhow::Result;
use serde::Serialize;

use super::beside::Beside;
use super::churn::Churn;
use super::cpu::Cpu;
use super::objects::Size;
use super::percentile;
use super::watches::Watches;
use crate::console::{Console, Table};

/// All that is measured.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Figures {
    pub(super) agents: u32,
    pub(super) services: u32,
    pub(super) endpoints: u32,
    /// Whether TLS was spoken and tokens were reviewed.
    pub(super) tls: bool,
    pub(super) connect_s: f64,
    pub(super) snapshot_s: f64,
    pub(super) snapshot_mb: f64,
    pub(super) snapshot_cpu: Cpu,
    pub(super) change_written_ms_p50: f64,
    pub(super) change_written_ms_p99: f64,
    pub(super) change_acked_ms_p99: f64,
    pub(super) large_written_ms_p50: f64,
    pub(super) bytes_per_agent_small: f64,
    pub(super) bytes_per_agent_large: f64,
    #[serde(flatten)]
    pub(super) churn: Churn,
    /// Of any agent, at any time, misbehaving ones too; before TLS.
    pub(super) queued_kb_per_agent_max: f64,
    pub(super) restart_s: f64,
    pub(super) restart_bytes_per_agent: f64,
    pub(super) controller_rss_mb: f64,
    pub(super) controller_cpu_s: f64,
    pub(super) misbehaving: Beside,
    pub(super) watches: Watches,
}

/// Quantity, value, unit and budget.
type Row = (&'static str, f64, &'static str, &'static str);

impl Figures {
    pub(super) fn of(size: Size, tls: bool) -> Self {
        Self {
            agents: size.nodes,
            services: size.services,
            endpoints: size.endpoints,
            tls,
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

    /// All of them.
    fn rows(&self) -> Vec<Row> {
        let singly = [
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
        ];
        singly.into_iter().chain(self.rows_of_many()).collect()
    }

    fn rows_of_many(&self) -> [Row; 11] {
        [
            (
                "changes while many come",
                self.churn.per_s,
                "a second",
                "200 asked",
            ),
            (
                "… the first agent has one, median",
                self.churn.first_ms_p50,
                "ms",
                "",
            ),
            (
                "… it is everywhere, median",
                self.churn.lag_ms_p50,
                "ms",
                "",
            ),
            ("… p99", self.churn.lag_ms_p99, "ms", ""),
            (
                "… all in force after the last",
                self.churn.settles_s,
                "s",
                "",
            ),
            ("… batches", self.churn.batches_per_s, "a second", ""),
            (
                "most that waited for one agent",
                self.queued_kb_per_agent_max,
                "kB",
                "256 kB",
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
        console.line(&format!("plans: {}", self.snapshot_cpu.in_words()));
        console.line(&format!("many changes: {}", self.churn.cpu.in_words()));
        self.misbehaving.table(console);
        console.line(&self.watches.in_words(self));
    }
}
