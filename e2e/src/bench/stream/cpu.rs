//! Processor time by process.

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::control_plane::{ControlPlane, Part};
use crate::program::{Running, cpu_seconds};

/// Processor seconds of each process, and idle ones.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Cpu {
    pub(super) controller_s: f64,
    pub(super) agents_s: f64,
    pub(super) api_server_s: f64,
    /// etcd.
    pub(super) store_s: f64,
    /// The process that makes and times the changes.
    pub(super) bench_s: f64,
    pub(super) idle_s: f64,
}

impl Cpu {
    /// Processor time used so far.
    pub(super) fn read(controller: &Running, agents: u32, plane: &ControlPlane) -> Result<Self> {
        let of_part = |part| plane.cpu_seconds(part).context("a part has ended");
        let of = |process| cpu_seconds(process).context("a process has ended");
        Ok(Self {
            controller_s: controller.cpu_seconds().context("the controller ended")?,
            agents_s: of(agents)?,
            api_server_s: of_part(Part::ApiServer)?,
            store_s: of_part(Part::Etcd)?,
            bench_s: of(std::process::id())?,
            idle_s: idle_seconds(&std::fs::read_to_string("/proc/stat")?).context("/proc/stat")?,
        })
    }

    /// Processor time used since then.
    pub(super) fn since(self, then: Self) -> Self {
        Self {
            controller_s: self.controller_s - then.controller_s,
            agents_s: self.agents_s - then.agents_s,
            api_server_s: self.api_server_s - then.api_server_s,
            store_s: self.store_s - then.store_s,
            bench_s: self.bench_s - then.bench_s,
            idle_s: self.idle_s - then.idle_s,
        }
    }

    /// For people, in the order of the way that a change takes.
    pub(super) fn in_words(self) -> String {
        format!(
            "bench {:.1} s, store {:.1} s, API server {:.1} s, controller {:.1} s, agents {:.1} s, idle {:.1} s",
            self.bench_s,
            self.store_s,
            self.api_server_s,
            self.controller_s,
            self.agents_s,
            self.idle_s
        )
    }
}

/// Idle time of all processors together, from `/proc/stat`.
fn idle_seconds(stat: &str) -> Option<f64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let mut fields = all.split_whitespace().skip(3);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_all_processors() {
        let stat = "cpu  10 20 30 4000 500 60 70 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n";
        assert_eq!(idle_seconds(stat), Some(45.0));
        assert_eq!(idle_seconds("cpu0 1 2 3 4"), None);
    }
}
