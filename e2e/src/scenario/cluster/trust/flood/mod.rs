//! Attackers beside honest agents: thousands of forged tokens, silent connections, and nodes in the hands of an
//! attacker that send oversized messages, forge watermarks and open many streams. Honest agents notice nothing, new
//! ones are admitted, and the API server is asked for little (S-232).

mod attackers;
mod sources;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::audit::since;
use super::super::probes::{Probes, SLOWER, p99};
use super::lab::Lab;
use super::{PLANS, prepare};
use crate::checks::Checks;
use crate::control_plane::kubelet::LabNode;
use crate::harness::run_parts;
use crate::light_agents::LightAgents;
use crate::scenario::Scenario;
use crate::stage::Stage;
use attackers::{AHEAD, CAPTURED, Flood, address_of_captured};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "flood",
    shows: "forged tokens in mass, silent connections and captured nodes: honest agents notice nothing",
    run,
};

/// Agents that are connected all the time, and those that start during the flood.
const HONEST: u8 = 30;
const NEWCOMERS: u8 = 10;
const NODES: u8 = HONEST + NEWCOMERS + CAPTURED;
/// Services whose endpoints change, and changes in each measurement.
const SERVICES: usize = 20;
const CHANGES: usize = 150;
/// Measurements without and with attackers, by turns.
const TURNS: u64 = 3;
/// Until the agents that start during the flood have their plans, on hardware.
const ADMITTED: Duration = Duration::from_secs(10);
/// Forged tokens in all, and until there are as many, on hardware.
const FORGED: u64 = 2000;
const EFFECTS: Duration = Duration::from_secs(60);
/// Reviews of tokens whose keys are unknown, from addresses that are not of nodes: at once and a second, and seconds
/// that a token waits (docs/architecture/security.md).
const REVIEWS_AT_ONCE: u64 = 100;
const REVIEWS_A_SECOND: u64 = 20;
const REVIEW_WAIT_SECONDS: u64 = 5;
/// A verdict about a token is kept for, and a node causes one list in this time.
const MINUTE_SECONDS: u64 = 60;
/// By how much the memory of the controller may grow during the flood, and how much of that its allocator may keep.
const GROWTH_KB: u64 = 100_000;
const STAYS_KB: u64 = 40_000;
/// Until the controller is as before, on hardware.
const OVER: Duration = Duration::from_secs(30);

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    sources::raise_open_files()?;
    let mut lab = prepare(stage, NODES)?;
    add_addresses(&lab)?;
    lab.start_controller(&[])?;
    lab.start_agents(usize::from(HONEST))?;
    run_parts(&mut lab, checks, &[("a flood", flooded)])
}

/// Gives nodes the addresses from which agents connect here: one for all honest agents, and those of captured nodes.
fn add_addresses(lab: &Lab<'_>) -> Result<()> {
    let number = |place: u8| HONEST + NEWCOMERS + 1 + place;
    let captured = (0..CAPTURED).map(|place| (number(place), address_of_captured(place)));
    for (number, address) in [(1, Ipv4Addr::LOCALHOST)].into_iter().chain(captured) {
        let mut node = LabNode::numbered(number);
        node.addresses.push(address.into());
        lab.rig.kubelet.register(&node.object())?;
    }
    Ok(())
}

/// The controller and its requests before the flood.
struct Before {
    at: Instant,
    streams: u64,
    forged: u64,
    reviews: usize,
    lists: BTreeMap<String, usize>,
    memory_kb: u64,
    connections: usize,
}

impl Before {
    fn of(lab: &Lab<'_>) -> Result<Self> {
        let connections = lab.connections()?;
        ensure!(
            connections == usize::from(HONEST),
            "{connections} connections are open, not {HONEST}"
        );
        Ok(Self {
            at: Instant::now(),
            streams: lab.rig.agents()?.streams(),
            forged: lab.refused("forged")?,
            reviews: lab.reviews()?,
            lists: lab.rig.audit()?.lists(),
            memory_kb: memory_kb(lab)?,
            connections,
        })
    }

    /// Lists of each kind since then.
    fn lists(&self, lab: &Lab<'_>) -> Result<BTreeMap<String, usize>> {
        Ok(since(&self.lists, &lab.rig.audit()?.lists()))
    }
}

/// Resident memory of the controller.
fn memory_kb(lab: &Lab<'_>) -> Result<u64> {
    let memory = lab.rig.controller()?.memory_kb();
    memory.context("the controller has ended")
}

fn flooded(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.rig.wait_first_plans()?;
    let mut probes = Probes::create(&lab.bulk, SERVICES)?;
    // The first changes take longer, and the controller grows a little.
    probes.measure(&lab.rig, &lab.bulk, CHANGES)?;
    let before = Before::of(lab)?;
    let (mut quiet, mut beside, mut granted) = (Vec::new(), Vec::new(), 0);
    let captured = usize::from(HONEST + NEWCOMERS);
    let captured = lab.tokens.get(captured..).context("too few nodes")?;
    for turn in 1..=TURNS {
        quiet.extend(probes.measure(&lab.rig, &lab.bulk, CHANGES)?);
        let flood = Flood::start(lab, captured, turn)?;
        flood.wait_at_work(lab)?;
        beside.extend(probes.measure(&lab.rig, &lab.bulk, CHANGES)?);
        if turn == TURNS {
            during(lab, &before, checks)?;
        }
        let done = flood.end();
        lab.rig.stage.console.line(&format!("{done:?}"));
        granted += done.granted();
    }
    checks.require(
        "no invalid token and no oversized message is accepted (S-232)",
        granted == 0,
        &format!("{granted} were"),
    );
    let (quiet, beside) = (p99(&quiet)?, p99(&beside)?);
    lab.rig.stage.console.line(&format!(
        "99 % of changes reach {HONEST} agents within {quiet:.1} ms, beside attackers within {beside:.1} ms"
    ));
    checks.require(
        &format!(
            "changes reach honest agents within {SLOWER} times the time without attackers (S-232)"
        ),
        beside <= quiet * SLOWER,
        &format!("{quiet:.1} ms alone, {beside:.1} ms beside attackers"),
    );
    after(lab, &before, checks)?;
    let later = p99(&probes.measure(&lab.rig, &lab.bulk, CHANGES)?)?;
    checks.require(
        "and again after the flood",
        later <= quiet * SLOWER,
        &format!("{quiet:.1} ms before, {later:.1} ms after it"),
    );
    checks.check(
        "nothing was lost: every agent's plan equals one made from scratch (S-232)",
        lab.rig.wait_equal(PLANS),
    );
    Ok(())
}

/// While the attackers are at work.
fn during(lab: &Lab<'_>, before: &Before, checks: &mut Checks) -> Result<()> {
    checks.check(
        "agents that start meanwhile have their plans within 10 s (S-232)",
        admitted(lab),
    );
    let what = "thousands of forged tokens, and lists for forged watermarks";
    lab.rig.eventually(what, EFFECTS, || {
        let forged = lab.refused("forged")? - before.forged;
        ensure!(forged >= FORGED, "{forged} tokens were refused as forged");
        let lists = before.lists(lab)?;
        ensure!(lists.contains_key("nodes"), "nothing was listed: {lists:?}");
        Ok(())
    })?;
    bounded(lab, before, checks)
}

/// Starts agents of further nodes, and waits until they have their plans.
fn admitted(lab: &Lab<'_>) -> Result<()> {
    let nodes = lab.tokens.iter().skip(usize::from(HONEST));
    let ways = nodes
        .take(usize::from(NEWCOMERS))
        .map(|(node, token)| Ok((node.clone(), lab.access(node, Some(token))?)));
    let agents = LightAgents::start_with(ways.collect::<Result<Vec<_>>>()?)?;
    lab.rig.eventually("all plans", ADMITTED, || {
        match agents.nodes().find(|node| agents.hash(node).is_none()) {
            Some(node) => bail!("{node} has no plan: {:?}", agents.link(node)),
            None => Ok(()),
        }
    })
}

/// The requests to the API server so far, as its audit log counts them.
fn bounded(lab: &Lab<'_>, before: &Before, checks: &mut Checks) -> Result<()> {
    let (reviews, lists) = (lab.reviews()? - before.reviews, before.lists(lab)?);
    let seconds = before.at.elapsed().as_secs() + 1;
    let minutes = 1 + seconds / MINUTE_SECONDS;
    lab.rig.stage.console.line(&format!(
        "in {seconds} s the API server was asked for {reviews} TokenReviews, and for lists {lists:?}"
    ));
    // Those of agents and of captured nodes, with valid tokens, and those of unknown keys.
    let valid = u64::from(NEWCOMERS) + u64::from(CAPTURED) * minutes;
    let most = valid + REVIEWS_AT_ONCE + REVIEWS_A_SECOND * (seconds + REVIEW_WAIT_SECONDS);
    checks.require(
        "TokenReviews stay within the budget of unknown clients (S-232)",
        u64::try_from(reviews)? <= most,
        &format!("{reviews} in {seconds} s, of {most}"),
    );
    let most = usize::from(AHEAD) * usize::try_from(minutes)?;
    checks.require(
        "a node causes at most one list of each kind a minute (S-232)",
        lists.values().all(|count| *count <= most),
        &format!("{lists:?} in {seconds} s, by {AHEAD} nodes"),
    );
    Ok(())
}

/// Once the attackers are gone.
fn after(lab: &Lab<'_>, before: &Before, checks: &mut Checks) -> Result<()> {
    let agents = lab.rig.agents()?;
    let opened = agents.streams() - before.streams;
    let trouble = agents.nodes().find_map(|node| agents.link(node).trouble);
    checks.require(
        "no stream of an honest agent ended (S-232)",
        opened == 0 && trouble.is_none(),
        &format!("{opened} were opened again; {trouble:?}"),
    );
    let closed = lab.rig.eventually("connections to be closed", OVER, || {
        let open = lab.connections()?;
        let usual = before.connections;
        ensure!(
            open <= usual,
            "{open} are open, more than the {usual} of honest agents"
        );
        Ok(())
    });
    checks.check("the connections of attackers are closed", closed);
    let peak = lab.rig.controller()?.peak_memory_kb();
    let peak = peak.context("the controller has ended")?;
    let now = memory_kb(lab)?;
    let before = before.memory_kb;
    let words = format!("{before} kB before, {peak} kB at most, {now} kB after it");
    lab.rig.stage.console.line(&format!("memory: {words}"));
    checks.require(
        "the controller's memory grows by a limited amount",
        peak <= before + GROWTH_KB,
        &words,
    );
    let returned = lab.rig.eventually("memory to be freed", OVER, || {
        let now = memory_kb(lab)?;
        ensure!(now <= before + STAYS_KB, "{now} kB, {before} kB before");
        Ok(())
    });
    checks.check("and is free again afterwards", returned);
    Ok(())
}
