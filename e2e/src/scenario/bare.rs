//! A kernel that lacks a feature: IPv6 from boot on, then an ipset type. Everything else works, and
//! the missing feature is logged once, with what to do.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::packet_path::{cluster_manifests, every_client};
use super::refusals::Loader;
use super::{Checks, Scenario, Stage};
use crate::files::CLUSTER;
use crate::harness::{self, manifest_name};
use crate::manifests::Manifests;
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::http;
use crate::waits::{LATER, SOON};
use crate::witness::VirtualServers;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "bare",
    shows: "a kernel without IPv6, then without an ipset type: IPv4 works, and the log names what \
        is missing",
    run,
};

/// The file of the lab's Nodes.
const NODES: &str = CLUSTER[0];
/// The ipset type of source ranges.
const SET_TYPE: &str = "ip_set_hash_ipportnet";
const HEALTHZ: u16 = 10256;

/// What the lab's manifests promise.
type Lab<'a> = harness::Lab<'a, Manifests>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    ensure!(
        !Path::new("/proc/net/if_inet6").exists(),
        "this kernel has IPv6; run the scenario in the lab, which starts a kernel without it"
    );
    let manifests = cluster_manifests(&stage.files)?;
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(manifests);
    lab.serve_pods()?;
    lab.serve_nodes()?;
    lab.add_files(CLUSTER)?;
    let nodes = without_ipv6(&stage.files.text(NODES)?);
    lab.write(&manifest_name(NODES), &nodes)?;
    lab.cluster.start()?;
    let wanted = of_ipv4(lab.state.virtual_servers());
    for node in Node::ALL {
        lab.cluster.wait_programmed(node, &wanted)?;
    }
    lab.run_parts(
        checks,
        &[
            ("a kernel without IPv6", every_ipv4_client),
            ("nodes without IPv6", quiet),
            ("a Node object with IPv6", contradicted),
            ("a kernel without a type of sets", without_set_type),
        ],
    )
}

fn every_ipv4_client(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a kernel without IPv6");
    every_client(lab, checks, &lab.state)
}

/// The lab's Nodes as kubelet would report them here.
fn without_ipv6(nodes: &str) -> String {
    let lines = nodes
        .lines()
        .filter(|line| !line.contains("address: \"fd00:"));
    lines
        .map(|line| match line.split_once(", \"fd00:") {
            Some((ranges, _)) if line.trim_start().starts_with("podCIDRs:") => {
                format!("{ranges}]\n")
            }
            _ => format!("{line}\n"),
        })
        .collect()
}

fn of_ipv4(mut servers: VirtualServers) -> VirtualServers {
    servers.retain(|server, _| server.address.is_ipv4());
    servers
}

/// A node without IPv6, whose Node object has no IPv6 addresses, is healthy.
fn quiet(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for node in Node::ALL {
        let name = node.name();
        let said = lab.cluster.said(node)?;
        let off = "IPv6 is off on this node: Services are served only at their IPv4 addresses";
        checks.check(
            &format!("{name}: the agent logs once that IPv6 is off, and logs no error (S-182)"),
            exactly(&said, off, 1).and_then(|()| exactly(&said, "ERROR", 0)),
        );
        checks.check(
            &format!("{name}: its health is good (S-182)"),
            is_healthy(lab, node, true),
        );
        checks.check(
            &format!("{name}: doctor reports no failure (S-182)"),
            doctor(
                lab,
                node,
                0,
                "IPv6 is off on this node, which serves only IPv4",
            ),
        );
        checks.check(
            &format!("{name}: the agent has no IPv6 rules and routes (S-182)"),
            has_nothing_of_ipv6(lab, node),
        );
    }
    Ok(())
}

fn is_healthy(lab: &Lab<'_>, node: Node, wanted: bool) -> Result<()> {
    let address = (node.address(Family::IPv4), HEALTHZ).into();
    let limit = lab.limit(SOON);
    let ask = || http::get(address, "/healthz", limit);
    let response = lab.inside(Resident::Node(node), ask)?;
    let is_healthy = response.status == 200;
    ensure!(is_healthy == wanted, "it answers {}", response.status);
    Ok(())
}

fn doctor(lab: &Lab<'_>, node: Node, exit: i32, words: &str) -> Result<()> {
    let state = lab.cluster.state_folder(node);
    let state = state.display().to_string();
    let ask = || Program::Agent.try_with_input(&["doctor", "--all", "--state-dir", &state], "");
    // The plan is saved to disk some time after it is applied.
    lab.eventually("doctor to say so", LATER, || {
        let ended = lab.node(node)?.inside(ask)?;
        let said = format!("{}{}{}", ended.status, ended.output, ended.errors);
        let right = ended.status.code() == Some(exit) && said.contains(words);
        ensure!(right, "{said}");
        Ok(())
    })
}

fn has_nothing_of_ipv6(lab: &Lab<'_>, node: Node) -> Result<()> {
    let seen = lab.everything(node)?;
    for (what, text) in seen {
        let rules = what == "IPv6 rules";
        let is_of_ours =
            |line: &&str| line.contains("fd00:") || (rules && line.contains("PORTOLAN"));
        if let Some(line) = text.lines().find(is_of_ours) {
            anyhow::bail!("{what} has {line:?}");
        }
    }
    Ok(())
}

/// The Node object has IPv6 addresses but the kernel has no IPv6: one of the two is wrong, and only
/// an operator knows which.
fn contradicted(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let (node, nodes) = (Node::A, lab.stage.files.text(NODES)?);
    let mark = lab.log_end(node)?;
    lab.write(&manifest_name(NODES), &nodes)?;
    let words = "serve IPv6: IPv6 is off on this node (this kernel runs without IPv6";
    checks.check(
        "a Node object with IPv6 is the only reported failure (S-182)",
        fails_once(lab, node, mark, words),
    );
    checks.check(
        "doctor reports it too (S-182)",
        doctor(lab, node, 1, "its Node object has IPv6 addresses"),
    );
    checks.check(
        "the plan is in force once the Node object is corrected (S-182)",
        lab.put_on(node, &manifest_name(NODES), &without_ipv6(&nodes)),
    );
    Ok(())
}

fn without_set_type(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a kernel without a type of sets");
    let node = Node::A;
    for node in Node::ALL {
        lab.cluster.stop_agent(node)?;
        lab.clean_up(node)?;
    }
    unload_set_type(lab)?;
    let loader = Loader::take_away()?;
    let mark = lab.log_end(node)?;
    let applied = lab.cluster.applied(node)?.len();
    lab.cluster.start_agent(node)?;
    let words = "create set PORTOLAN-ALLOW for 65536 entries: the kernel has no sets of type \
                 hash:ip,port,net: load its module (modprobe ip_set_hash_ipportnet)";
    checks.check(
        "a missing ipset type is the only reported failure (S-180)",
        fails_once(lab, node, mark, words),
    );
    checks.check(
        "and its health is not good (S-169)",
        is_healthy(lab, node, false),
    );
    checks.check(
        "nothing is sent to IPVS while source ranges cannot be enforced (S-186)",
        leads_nothing(lab, node),
    );
    drop(loader);
    checks.check(
        "the plan is in force once the kernel has the type, without a restart (S-180)",
        until_applied(lab, node, applied),
    );
    Ok(())
}

/// The module can be unloaded once the kernel has freed its last set.
fn unload_set_type(lab: &Lab<'_>) -> Result<()> {
    lab.eventually("the type to be unloaded", SOON, || {
        drop(Program::Modprobe.run(&["-r", SET_TYPE]));
        let modules = std::fs::read_to_string("/proc/modules").context("read /proc/modules")?;
        let mut names = modules.lines().filter_map(|line| line.split(' ').next());
        let loaded = names.any(|name| name == SET_TYPE);
        ensure!(!loaded, "a set of this type still exists");
        Ok(())
    })
}

fn leads_nothing(lab: &Lab<'_>, node: Node) -> Result<()> {
    let list = || Program::IptablesSave.run(&["-t", "raw"]);
    let rules = lab.node(node)?.inside(list)?;
    ensure!(!rules.contains("PORTOLAN"), "{rules}");
    Ok(())
}

fn until_applied(lab: &Lab<'_>, node: Node, before: usize) -> Result<()> {
    lab.eventually("the plan to be in force", LATER + SOON, || {
        let applied = lab.cluster.applied(node)?.len();
        ensure!(applied > before, "it is not");
        Ok(())
    })
}

/// Checks that the log after the mark has one failure with these words, and no other.
fn fails_once(lab: &Lab<'_>, node: Node, mark: usize, words: &str) -> Result<()> {
    lab.wait_logged(node, mark, &["the plan is not fully in force"], SOON)?;
    let said = lab.log_since(node, mark)?;
    let causes = said
        .lines()
        .filter_map(|line| line.split_once("ERROR "))
        .filter(|(_, cause)| !cause.contains("the plan is not fully in force"));
    for (_, cause) in causes {
        ensure!(cause.contains(words), "{cause}");
    }
    ensure!(said.contains(words), "no {words:?} in {said}");
    Ok(())
}

fn exactly(said: &str, words: &str, wanted: usize) -> Result<()> {
    let found = said.matches(words).count();
    ensure!(found == wanted, "{words:?} is there {found} times: {said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_lose_their_ipv6_addresses_and_ranges_and_nothing_else() {
        let text = "podCIDRs: [\"10.244.1.0/24\", \"fd00:10:244:1::/64\"]\n\
                    - {type: InternalIP, address: 192.168.50.11}\n\
                    - {type: InternalIP, address: \"fd00:50::11\"}\n\
                    cidrs: [\"10.96.0.0/12\", \"fd00:10:96::/112\"]\n";
        let wanted = "podCIDRs: [\"10.244.1.0/24\"]\n\
                      - {type: InternalIP, address: 192.168.50.11}\n\
                      cidrs: [\"10.96.0.0/12\", \"fd00:10:96::/112\"]\n";
        assert_eq!(without_ipv6(text), wanted);
    }
}
