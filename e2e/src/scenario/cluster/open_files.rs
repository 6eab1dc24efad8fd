//! A controller with few open files (`ulimit -n`): it serves as many agents as it can, still answers, and the other
//! agents go to another controller.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::replicas::{Replica, Replicas};
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::traffic::http;
use crate::waits::{LATER, SOON};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "open-files",
    shows: "more agents than a controller may have open files: it keeps its own, and the rest go to another one",
    run,
};

const NODES: u8 = 200;
/// The limit of the first controller, soft and hard.
const FILES: u32 = 300;
/// Its connections of agents: half of the limit, because the reserve is more than that.
const PLACES: &str = "150";
/// Until all agents have tried all controllers and have a plan; their longest delay is 10 s.
const CONNECTED: Duration = Duration::from_secs(60);

fn service(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  ports: [{{name: http, port: 80, targetPort: 8080}}]
"
    )
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), NODES, 1)?;
    rig.plane.apply(&service("first"))?;
    let mut few = Replica::new(&rig, "few")?;
    few.start_within(FILES)?;
    let all = vec![few, Replica::new(&rig, "other")?];
    let mut replicas = Replicas { all, rig };
    replicas.eventually("the controller to listen", LATER, || {
        let listens = replicas.all.iter().any(|replica| replica.socket.exists());
        listens.then_some(()).context("it does not")
    })?;
    replicas.connect(NODES)?;
    run_parts(&mut replicas, checks, &[("few open files", few_files)])
}

fn few_files(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "a controller with few open files serves as many agents as it has places",
        replicas.eventually("all places to be taken", CONNECTED, || {
            let connected = metric(replicas, "portolan_controller_connected_agents")?;
            ensure!(connected == PLACES, "{connected} are connected");
            Ok(())
        }),
    );
    let refused = "portolan_controller_stream_refusals_total{reason=\"full\"}";
    let failed = "portolan_controller_accept_errors_total{listener=\"agents\"}";
    let (refused, failed) = (metric(replicas, refused)?, metric(replicas, failed)?);
    checks.require(
        "it refuses the others, answers on its pages, and has files left",
        refused != "0" && failed == "0",
        &format!("{refused} refused, {failed} not accepted"),
    );
    let other = replicas.named("other")?;
    other.start()?;
    checks.check(
        "agents without a place go to another controller",
        replicas
            .rig
            .eventually("all plans", CONNECTED, || is_served(replicas, "first")),
    );
    // It needs the API server, and so a file.
    replicas.rig.plane.apply(&service("second"))?;
    checks.check(
        "and all agents receive a change",
        replicas
            .rig
            .eventually("the change", LATER, || is_served(replicas, "second")),
    );
    Ok(())
}

/// A metric of the controller with few open files.
fn metric(replicas: &Replicas<'_>, series: &str) -> Result<String> {
    let few = replicas.all.first().context("there is no controller")?;
    let pages = few.pages().context("it has no pages")?;
    let deadline = replicas.rig.stage.waits.limit(SOON);
    let page = http::get(pages, "/metrics", deadline)?;
    let mut lines = page.body.lines();
    let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.map(str::to_owned).context("no such series")
}

/// Fails unless the plans of all agents have this Service.
fn is_served(replicas: &Replicas<'_>, service: &str) -> Result<()> {
    let agents = replicas.rig.agents()?;
    for node in agents.nodes() {
        let plan = agents.plan(node).context("no plan")?;
        let has = plan.services.iter().any(|one| *one.name == *service);
        ensure!(has, "the plan of {node} has no {service}");
    }
    Ok(())
}
