//! Long form: a controller that receives nothing from the API server any more. Its agents move to the other one, and
//! have a stream at each moment. While both receive nothing, no agent moves (S-231).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::delay::Delay;
use super::{MOVED, NODES, Replica, Replicas, Rig, SERVICE, WRITTEN, pod};
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::Environment as _;
use crate::stage::Stage;
use crate::traffic::http;
use crate::waits::{ANSWER, sleep_until};

/// The controller that is cut off, and the other one.
const NAMES: [&str; 2] = ["a", "b"];
/// Until a controller is not ready, on hardware.
const UNREADY: Duration = Duration::from_secs(120);
/// Until all agents have moved, on hardware: the ages have to differ by 75 s, bookmarks come every minute, and an agent
/// asks every 20 s.
const MOVED_AWAY: Duration = Duration::from_secs(240);
/// How long both controllers receive nothing: longer than moving takes.
const BOTH_CUT_OFF: Duration = Duration::from_secs(240);
const NEVER: Duration = Duration::from_secs(86_400);
/// Age from which a controller is outdated.
const OUTDATED_SECONDS: u64 = 90;

pub(super) fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), NODES, 2)?;
    rig.plane.apply(&(SERVICE.to_owned() + &pod(1) + &pod(2)))?;
    let (mut all, mut delays) = (Vec::new(), Vec::new());
    for name in NAMES {
        let (replica, delay) = behind_delay(&rig, name)?;
        all.push(replica);
        delays.push(delay);
    }
    let mut replicas = Replicas { all, rig };
    let tried = partition(&mut replicas, &delays, checks);
    let tried = tried.and_then(|()| replicas.check_running());
    tried.map_err(|error| replicas.with_logs(error))
}

/// A controller with a proxy of its own to the API server.
fn behind_delay(rig: &Rig<'_>, name: &'static str) -> Result<(Replica, Delay)> {
    let mut replica = Replica::new(rig, name)?;
    // All controllers are the same user, whose file they share.
    let own = rig.file(&format!("{name}.kubeconfig"));
    std::fs::copy(&replica.kubeconfig, &own)?;
    replica.kubeconfig = own;
    let delay = Delay::before(&replica.kubeconfig)?;
    Ok((replica, delay))
}

fn partition(replicas: &mut Replicas<'_>, delays: &[Delay], checks: &mut Checks) -> Result<()> {
    let [own, other] = NAMES;
    let console = replicas.rig.stage.console;
    // Only the first one runs, so it has all agents.
    replicas.named(own)?.start()?;
    replicas.wait_ready(own)?;
    // No agent returns to its first controller meanwhile.
    let ways = replicas.ways().with_return_interval(NEVER);
    replicas.connect_by(NODES, &ways)?;
    replicas.rig.wait_first_plans()?;
    replicas.named(other)?.start()?;
    replicas.wait_ready(other)?;
    replicas.connected(own, NODES)?;
    console.line(&format!("controller {own} is cut off from the API server"));
    let streams = replicas.rig.agents()?.streams();
    hold(&delays[..1], true);
    replicas.rig.plane.apply(&pod(3))?;
    checks.check("it is not ready within two minutes", replicas.unready(own));
    checks.check("its metrics have the age", replicas.shows_age(own));
    let mut lost = BTreeSet::new();
    let moved = replicas.all_move(streams, &mut lost);
    checks.check("its agents move to the other controller, once each", moved);
    let why = format!("{lost:?}");
    checks.require("and have a stream meanwhile", lost.is_empty(), &why);
    checks.check(
        "with the plan of the other controller",
        replicas.rig.wait_equal(MOVED),
    );
    hold(&delays[..1], false);
    checks.check("it is ready again", replicas.wait_ready(own));

    console.line("both are cut off");
    let streams = replicas.rig.agents()?.streams();
    hold(delays, true);
    for name in NAMES {
        checks.check(&format!("{name} is not ready"), replicas.unready(name));
    }
    sleep_until(Instant::now() + BOTH_CUT_OFF)?;
    let agents = replicas.rig.agents()?;
    let now = agents.streams();
    let why = format!("{now} streams, {streams} before");
    checks.require("no agent moves", now == streams, &why);
    let trouble = agents
        .nodes()
        .find(|node| agents.link(node).trouble.is_some());
    checks.require(
        "all have a stream",
        trouble.is_none(),
        &format!("{trouble:?}"),
    );
    checks.check("of the same controller", replicas.connected(other, NODES));
    hold(delays, false);
    replicas.rig.plane.apply(&pod(4))?;
    checks.check(
        "they follow it once it receives events again",
        replicas.rig.wait_equal(WRITTEN),
    );
    Ok(())
}

fn hold(delays: &[Delay], holds: bool) {
    for delay in delays {
        delay.hold(holds);
    }
}

impl Replicas<'_> {
    fn address(&self, name: &str) -> Result<SocketAddr> {
        let mut all = self.all.iter();
        let replica = all.find(|replica| replica.name == name);
        let pages = replica.context("no such controller")?.pages();
        pages.context("it has no pages")
    }

    fn page(&self, name: &str, path: &str) -> Result<http::Response> {
        let limit = self.rig.stage.waits.limit(ANSWER);
        http::get(self.address(name)?, path, limit)
    }

    fn unready(&self, name: &str) -> Result<()> {
        self.eventually("it to be unready", UNREADY, || {
            let answer = self.page(name, "/readyz")?;
            let said = answer.body.starts_with("stale: nothing about");
            ensure!(answer.status == 503 && said, "{answer:?}");
            let health = self.page(name, "/healthz")?;
            ensure!(
                health.status == 200,
                "a restart would lose plans: {health:?}"
            );
            Ok(())
        })
    }

    /// The values of a metric, one for each series.
    fn metric(&self, name: &str, metric: &str) -> Result<Vec<u64>> {
        let page = self.page(name, "/metrics")?.body;
        let series = page.lines().filter(|line| line.starts_with(metric));
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse().ok());
        Ok(series.filter_map(value).collect())
    }

    fn shows_age(&self, name: &str) -> Result<()> {
        let ages = self.metric(name, "portolan_controller_objects_age_seconds")?;
        let is_shown = ages.iter().any(|age| *age >= OUTDATED_SECONDS);
        ensure!(is_shown, "the ages are {ages:?}");
        Ok(())
    }

    /// Waits until a controller has the streams of this number of agents, and no others have any.
    fn connected(&self, name: &str, agents: u8) -> Result<()> {
        self.eventually("the agents to be connected", MOVED, || {
            for other in NAMES {
                let wanted = if other == name { agents } else { 0 };
                let found = self.metric(other, "portolan_controller_connected_agents")?;
                ensure!(found == [u64::from(wanted)], "{other} has {found:?}");
            }
            Ok(())
        })
    }

    /// Waits until every agent has opened one more stream than before, and notes those that have none.
    fn all_move(&self, streams: u64, lost: &mut BTreeSet<String>) -> Result<()> {
        self.eventually("the agents to move", MOVED_AWAY, || {
            let agents = self.rig.agents()?;
            for node in agents.nodes() {
                if agents.link(node).trouble.is_some() {
                    lost.insert(node.to_owned());
                }
            }
            let moved = agents.streams() - streams;
            ensure!(moved == u64::from(NODES), "{moved} have moved");
            Ok(())
        })
    }
}
