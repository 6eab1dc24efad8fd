//! Controllers that are restarted one after the other: agents gather at the last ones, and then return to their first
//! controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{MOVED, NAMES, NODES, Replica, Replicas};
use crate::checks::Checks;
use crate::traffic::http;
use crate::waits::SOON;

/// Interval at which agents try to return, in place of minutes.
const RETURN_INTERVAL: Duration = Duration::from_secs(2);

pub(super) fn run(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let ways = replicas.ways().with_return_interval(RETURN_INTERVAL);
    replicas.connect_by(NODES, &ways)?;
    replicas.rig.wait_first_plans()?;
    replicas.rig.agents()?.begin_history();
    let mut home: BTreeMap<String, usize> = BTreeMap::new();
    for node in replicas.rig.agents()?.nodes() {
        let first = ways.choose(node, 0)?;
        *home.entry(first.to_string()).or_default() += 1;
    }
    let console = replicas.rig.stage.console;
    console.line(&format!("agents by their first controllers: {home:?}"));
    for name in NAMES {
        restart(replicas, name)?;
        let all = || -> Result<usize> { Ok(connected(replicas)?.values().sum()) };
        replicas.wait_count("all agents to be connected", &usize::from(NODES), all)?;
    }
    checks.check(
        "agents return to their first controllers after all were restarted",
        replicas.wait_count("agents to return", &home, || connected(replicas)),
    );
    let back: Vec<_> = replicas.rig.agents()?.went_back().collect();
    checks.require(
        "and no agent had an older plan in between",
        back.is_empty(),
        &format!("{back:?}"),
    );
    // The other parts expect agents to stay where they are.
    replicas.connect(NODES)?;
    replicas.rig.wait_first_plans()
}

fn restart(replicas: &mut Replicas<'_>, name: &'static str) -> Result<()> {
    replicas.stop(name)?;
    replicas.named(name)?.start()?;
    replicas.wait_ready(name)
}

/// Number of agents with a stream, by the address of the running controller.
pub(super) fn connected(replicas: &Replicas<'_>) -> Result<BTreeMap<String, usize>> {
    let deadline = replicas.rig.stage.waits.limit(SOON);
    let count = |replica: &Replica| -> Result<(String, usize)> {
        let pages = replica.pages().context("it has no pages")?;
        let page = http::get(pages, "/metrics", deadline)?;
        let mut lines = page.body.lines();
        let count =
            lines.find_map(|line| line.strip_prefix("portolan_controller_connected_agents "));
        let count = count.context("no such series")?.parse()?;
        Ok((format!("unix:{}", replica.socket.display()), count))
    };
    let running = replicas.all.iter().filter(|one| one.running.is_some());
    let mut all = running.map(count).collect::<Result<BTreeMap<_, _>>>()?;
    all.retain(|_, count| *count > 0);
    Ok(all)
}

impl Replicas<'_> {
    /// Asks a controller to end, and waits until it has.
    pub(super) fn stop(&mut self, name: &str) -> Result<()> {
        let running = self.named(name)?.running.take();
        let running = running.context("it does not run")?;
        running.ask_to_end()?;
        self.eventually("the controller to end", MOVED, || {
            ensure!(running.ended()?.is_some(), "{name} runs");
            Ok(())
        })
    }

    fn wait_count<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        expected: &T,
        found: impl Fn() -> Result<T>,
    ) -> Result<()> {
        self.eventually(what, MOVED, || {
            let found = found()?;
            ensure!(found == *expected, "{found:?}, not {expected:?}");
            Ok(())
        })
    }
}
