//! The cost of a change does not depend on the size of the cluster: counted, never timed. `cargo
//! lab bench node` prints times beside the kernel's limit.

use anyhow::{Result, ensure};
use portolan_reconcile::OpKind;

use super::{Checks, Scenario, Stage};
use crate::bench::plan::Plan;
use crate::bench::scale::Scale;
use crate::bench::{Agent, Asked, NO_TAP, Nodes, wait_held, write_manifests};
use crate::console::Table;
use crate::work_folder::WorkFolder;
use crate::{stop, witness};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "costs",
    shows: "messages of a change at 100 and 1,000 Services, of a restart, of 5,000 endpoints (counts)",
    run,
};

/// A Service whose endpoint moves; every scale has it.
const MOVES: u32 = 0;
/// The most messages that one endpoint may cost.
const MOST: u64 = 10;

const SMALL: Scale = Scale {
    services: 100,
    endpoints: 10,
};
const LARGE: Scale = Scale {
    services: 1000,
    endpoints: 10,
};
const WIDE: Scale = Scale {
    services: 1,
    endpoints: 5000,
};

/// Requests of the agent to the kernel at one scale.
struct Counted {
    scale: Scale,
    whole: Asked,
    one: Asked,
    /// Two endpoints of two Services at once, where there are two.
    two: Option<Asked>,
    restart: Asked,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let mut nodes = Nodes::new(stage.waits);
    let mut counted = Vec::new();
    for scale in [SMALL, LARGE, WIDE] {
        stop::check()?;
        counted.push(count(stage, &mut nodes, scale, checks)?);
    }
    show(stage, &counted);
    if let [small, large, wide] = &counted[..] {
        judge_changes(checks, small, large, wide);
        judge_bulk(checks, small, large);
    }
    judge_restarts(checks, &counted);
    Ok(())
}

fn count(stage: &Stage, nodes: &mut Nodes, scale: Scale, checks: &mut Checks) -> Result<Counted> {
    let folder = WorkFolder::private()?;
    let manifests = folder.path.join("manifests");
    write_manifests(&manifests, &scale, "sync: {period: 30s}")?;
    let mut plan = Plan::of(&manifests)?;
    let node = nodes.fresh()?;
    let state = folder.path.join("state");
    let start = || Agent::start(node.namespace(), &state, stage.waits, NO_TAP);
    let agent = start()?;
    let whole = agent.program(plan.whole())?.asked;
    let one = agent.program(plan.move_endpoints([MOVES])?)?.asked;
    let two = if scale.services > 1 {
        let moved = plan.move_endpoints([MOVES, MOVES + 1])?;
        Some(agent.program(moved)?.asked)
    } else {
        None
    };
    let (servers, backends) = scale.servers();
    checks.check(
        &format!(
            "{} x {}: the kernel holds all of it, S-190",
            scale.services, scale.endpoints
        ),
        wait_held(node.namespace(), servers, backends, stage.waits),
    );
    agent.stop()?;
    let agent = start()?;
    let restart = agent.program(plan.whole())?.asked;
    agent.stop()?;
    Ok(Counted {
        scale,
        whole,
        one,
        two,
        restart,
    })
}

fn show(stage: &Stage, counted: &[Counted]) {
    let mut table = Table::new(["SCALE", "WHAT", "MESSAGES", "BYTES", "WRITES", "DUMPS"]);
    for part in counted {
        let Scale {
            services,
            endpoints,
        } = part.scale;
        let scale = format!("{services} x {endpoints}");
        let rows = [
            ("all of it", Some(&part.whole)),
            ("one endpoint moves", Some(&part.one)),
            ("two endpoints move", part.two.as_ref()),
            ("a restart", Some(&part.restart)),
        ];
        for (what, asked) in rows {
            let Some(asked) = asked else { continue };
            table.row([
                scale.clone(),
                what.to_owned(),
                asked.messages().to_string(),
                asked.sent.bytes.to_string(),
                asked.writes().to_string(),
                (asked.looks + asked.dumps).to_string(),
            ]);
        }
    }
    stage.console.table(&table);
}

fn judge_changes(checks: &mut Checks, small: &Counted, large: &Counted, wide: &Counted) {
    checks.check(
        "one endpoint moves: the same messages and bytes at 100 and 1,000 Services, S-185",
        same(&small.one, &large.one),
    );
    checks.check(
        "one endpoint of 5,000 costs what one of 10 costs, S-190",
        same(&small.one, &wide.one),
    );
    let all = [small, large, wide];
    checks.check(
        "one endpoint moves: at most 10 messages, S-185",
        all.iter().try_for_each(|part| few(&part.one)),
    );
    checks.check(
        "one endpoint moves: nothing else is read, S-185",
        all.iter().try_for_each(|part| reads_little(&part.one)),
    );
    // The checks above have to be able to fail.
    checks.check("two endpoints that move count as more than one", {
        let two = large.two.as_ref().unwrap_or(&large.one);
        noticed(&same(&large.one, two))
    });
    checks.check("a restart counts as one that reads", {
        noticed(&reads_little(&large.restart))
    });
}

fn judge_restarts(checks: &mut Checks, counted: &[Counted]) {
    checks.check(
        "a restart with a correct kernel state writes nothing",
        counted.iter().try_for_each(|part| {
            let writes = part.restart.writes();
            ensure!(writes == 0, "{writes} writes at {:?}", part.scale);
            Ok(())
        }),
    );
}

/// Many entries go into few messages, and the cost of rules does not grow.
fn judge_bulk(checks: &mut Checks, small: &Counted, large: &Counted) {
    let servers = large.whole.of(OpKind::Ipvs) + large.whole.of(OpKind::Scheduler);
    let entries = large.whole.of(OpKind::Set);
    let messages = large.whole.sent.writes.saturating_sub(servers);
    checks.require(
        "entries of sets go many in a message, S-160",
        messages * 10 <= entries,
        &format!("{messages} messages for {entries} entries"),
    );
    let fixed =
        |asked: &Asked| [OpKind::Rules, OpKind::Link, OpKind::Sysctl].map(|kind| asked.of(kind));
    let (few, many) = (fixed(&small.whole), fixed(&large.whole));
    checks.require(
        "rules, settings and routes cost the same at any scale",
        few == many,
        &format!("{few:?} at 100 Services, {many:?} at 1,000"),
    );
}

fn same(left: &Asked, right: &Asked) -> Result<()> {
    let cost = |asked: &Asked| (asked.messages(), asked.sent.bytes);
    let (left, right) = (cost(left), cost(right));
    ensure!(
        left == right,
        "{} messages of {} bytes, and {} of {}",
        left.0,
        left.1,
        right.0,
        right.1
    );
    Ok(())
}

fn few(asked: &Asked) -> Result<()> {
    let messages = asked.messages();
    ensure!(
        (1..=MOST).contains(&messages),
        "{messages} messages, not 1 to {MOST}"
    );
    Ok(())
}

/// Only the connections of the endpoint that goes are counted, at its virtual server.
fn reads_little(asked: &Asked) -> Result<()> {
    let reads = asked.sent.messages - asked.sent.writes;
    ensure!(
        asked.looks + asked.dumps == 0 && asked.counted <= 1 && reads <= asked.counted,
        "the network was read {} times, the whole kernel {} times, and {} virtual servers with \
         {reads} messages",
        asked.looks,
        asked.dumps,
        asked.counted,
    );
    Ok(())
}

/// Passes if a check failed.
fn noticed(failed: &Result<()>) -> Result<()> {
    match failed {
        Err(_) => Ok(()),
        Ok(()) => Err(anyhow::anyhow!("the check passed")),
    }
}
