//! The preparation of a node by `init`, and the few privileges that the agent needs afterwards.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{
    CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set,
};

use super::packet_path::{cluster_manifests, every_client};
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::CLUSTER;
use crate::manifests::Manifests;
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::Node;
use crate::{harness, mounts};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "privileges",
    shows: "init sets what needs many privileges, and the agent then runs with few",
    run,
};

type Lab<'a> = harness::Lab<'a, Manifests>;

const NODE: Node = Node::A;
/// Settings that init has to change, with their values before and after.
const WRONG: [(&str, &str, &str); 4] = [
    ("net/ipv4/vs/conntrack", "0", "1"),
    ("net/ipv4/ip_forward", "0", "1"),
    (
        "net/netfilter/nf_conntrack_tcp_timeout_established",
        "432000",
        "86400",
    ),
    (
        "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
        "60",
        "3600",
    ),
];

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let manifests = cluster_manifests(&stage.files)?;
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(manifests);
    lab.serve_pods()?;
    lab.serve_nodes()?;
    lab.add_files(CLUSTER)?;
    lab.run_parts(
        checks,
        &[
            ("the machine", the_machine),
            ("init", init),
            ("an agent with few privileges", few_privileges),
            ("commands for operators", tools),
        ],
    )
}

fn init(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("an agent with few privileges");
    let node = lab.node(NODE)?;
    node.set(&WRONG.map(|(name, before, _)| (name.to_owned(), before)))?;
    let state = lab.cluster.state_folder(NODE).display().to_string();
    let init = || node.inside(|| Program::Agent.run(&["init", "--state-dir", &state]));
    let output = init()?;
    checks.check(
        "init corrects settings and prints their previous values (S-181)",
        WRONG.iter().try_for_each(|(name, before, after)| {
            says(
                &output,
                &name.replace('/', "."),
                &format!("set to {after}, was {before}"),
            )
        }),
    );
    let again = init()?;
    checks.check("a second init changes nothing", none_set(&again));
    Ok(())
}

fn few_privileges(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let wanted = lab.state.virtual_servers();
    let cluster = &mut lab.cluster;
    cluster.start_controller()?;
    cluster.start_agent(Node::B)?;
    cluster.start_agent_after(NODE, &[], give_up_privileges)?;
    cluster.wait_programmed(NODE, &wanted)?;
    checks.check(
        "with CAP_NET_ADMIN and CAP_NET_RAW, and settings read-only, the plan is in force (S-181)",
        without_errors(cluster),
    );
    checks.check(
        "it has no other capability",
        has_few(cluster.agent_pid(NODE)?),
    );
    cluster.wait_programmed(Node::B, &wanted)?;
    every_client(lab, checks, &lab.state)?;
    checks.check(
        "an agent with the privilege lowers its oom_score_adj, so it is killed last (S-210)",
        is_last(lab.cluster.agent_pid(Node::B)?),
    );
    Ok(())
}

/// Commands for operators on the node.
fn tools(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let node = lab.node(NODE)?;
    let state = lab.cluster.state_folder(NODE).display().to_string();
    let servers = lab.state.virtual_servers().len();
    lab.heading("commands for operators");
    lab.wait_plan_on_disk(NODE)?;
    let ask = |words: &[&str]| {
        let words = [words, &["-o", "json", "--state-dir", &state]].concat();
        node.inside(|| Program::Agent.try_with_input(&words, ""))
    };
    checks.check(
        "show prints the Service of each virtual server, and no difference from the plan",
        ask(&["show"]).and_then(|said| shows(&said.output, servers)),
    );
    checks.check(
        "doctor reports no failure on a healthy node",
        ask(&["doctor"]).and_then(|said| {
            ensure!(said.status.success(), "{}{}", said.output, said.errors);
            Ok(())
        }),
    );
    node.set(&[("net/ipv4/ip_forward".to_owned(), "0")])?;
    checks.check(
        "and reports a fault with its remedy",
        ask(&["doctor"]).and_then(|said| {
            let remedy = "sysctl -w net.ipv4.ip_forward=1";
            ensure!(
                said.status.code() == Some(1) && said.output.contains(remedy),
                "{}",
                said.output
            );
            Ok(())
        }),
    );
    node.set(&[("net/ipv4/ip_forward".to_owned(), "1")])?;
    Ok(())
}

/// In the first network namespace the limit of tracked connections can be set.
fn the_machine(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("the machine");
    let state = crate::work_folder::WorkFolder::make()?;
    let state = state.path.display().to_string();
    Program::Agent.run(&["init", "--state-dir", &state])?;
    let processors = std::thread::available_parallelism()?.get();
    let wanted = (32_768 * processors).clamp(131_072, 1_048_576);
    let number = |name: &str| -> Result<usize> {
        let path = Path::new("/proc/sys/net/netfilter").join(name);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().parse()?)
    };
    let (limit, buckets) = (number("nf_conntrack_max")?, number("nf_conntrack_buckets")?);
    checks.require(
        "the limit of tracked connections follows the processors (S-178)",
        limit == wanted,
        &format!("{limit}, not {wanted}"),
    );
    checks.require(
        "and the hash table follows the limit (S-178)",
        buckets >= wanted / 4,
        &format!("{buckets} buckets"),
    );
    Ok(())
}

fn says(output: &str, name: &str, words: &str) -> Result<()> {
    let mut lines = output.lines();
    let line = lines.find(|line| line.split_whitespace().nth(1) == Some(name));
    let line = line.with_context(|| format!("nothing about {name} in:\n{output}"))?;
    ensure!(
        line.ends_with(words),
        "{line:?} does not end with {words:?}"
    );
    Ok(())
}

fn none_set(output: &str) -> Result<()> {
    let mut set = output
        .lines()
        .filter(|line| line.contains("set to") || line.contains("FAILED"));
    match set.next() {
        None => Ok(()),
        Some(line) => bail!("{line}"),
    }
}

fn without_errors(cluster: &Cluster) -> Result<()> {
    let said = cluster.said(NODE)?;
    let errors: Vec<_> = said.lines().filter(|line| line.contains("ERROR")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

fn has_few(pid: u32) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    for name in ["CapEff", "CapPrm", "CapBnd"] {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:\t")));
        let bits = u64::from_str_radix(line.context("no such line")?, 16)?;
        // CAP_NET_ADMIN is 12, CAP_NET_RAW 13.
        ensure!(bits == 0b11 << 12, "{name} is {bits:#x}");
    }
    Ok(())
}

fn shows(output: &str, wanted: usize) -> Result<()> {
    let shown: serde_json::Value = serde_json::from_str(output)?;
    let servers = shown["virtualServers"].as_array().context("no list")?;
    let in_order = |server: &&serde_json::Value| {
        let mut backends = server["backends"].as_array().into_iter().flatten();
        server["owner"]["kind"] == "service"
            && server["present"] == true
            && backends.all(|backend| backend["state"] == "Serving")
    };
    let found = servers.iter().filter(in_order).count();
    ensure!(
        (found, servers.len()) == (wanted, wanted),
        "{found} of {} in order, {wanted} wanted: {output}",
        servers.len()
    );
    Ok(())
}

fn is_last(pid: u32) -> Result<()> {
    let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?;
    ensure!(score.trim() == "-999", "oom_score_adj is {score}");
    Ok(())
}

/// For the calling thread and what it starts: two capabilities, and settings that cannot be written.
fn give_up_privileges() -> Result<()> {
    mounts::make_settings_read_only()?;
    let dropped =
        CapabilitySet::all().difference(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW);
    for capability in dropped.iter() {
        // Capabilities that this kernel does not have cannot be queried.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability).context("give up a capability")?;
        }
    }
    Ok(())
}
