//! A kernel that lacks something: IPv6 from its start on, then a type of address sets. What can work
//! does, and what cannot is told once, in words that name what to do.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::packet_path::{cluster_files, every_client, serve};
use super::refusals::Loader;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::CLUSTER;
use crate::program::Program;
use crate::topology::world::{Family, Node};
use crate::topology::{Network, Topology};
use crate::traffic::http;
use crate::witness::{self, VirtualServers};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "bare",
    shows: "a kernel without IPv6, then without a type of sets: IPv4 goes on, and what is missing is named",
    run,
};

/// The file of the lab's Nodes.
const NODES: &str = CLUSTER[0];
/// What guards of source ranges are made of.
const SET_TYPE: &str = "ip_set_hash_ipportnet";
const SOON: Duration = Duration::from_secs(10);
/// An agent tries again after at most 30 s.
const BACK_OFF: Duration = Duration::from_secs(30);
const OFTEN: Duration = Duration::from_millis(50);
/// Asking doctor takes about as long.
const LOOK: Duration = Duration::from_secs(1);
const HEALTHZ: u16 = 10256;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    ensure!(
        !Path::new("/proc/net/if_inet6").exists(),
        "this kernel has IPv6; the lab starts one without for this scenario"
    );
    let (manifests, mut texts) = cluster_files(&stage.files)?;
    let nodes = stage.files.text(NODES)?;
    for (_, text) in texts.iter_mut().filter(|(name, _)| *name == file(NODES)) {
        *text = without_ipv6(text);
    }
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let servers = serve(&topology)?;
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
    };
    scene.cluster.start()?;
    let wanted = of_ipv4(manifests.virtual_servers());
    for node in Node::ALL {
        scene.cluster.wait_programmed(node, &wanted)?;
    }
    stage.console.heading("a kernel without IPv6");
    every_client(stage, checks, &topology, &servers, &manifests)?;
    scene.quiet(checks)?;
    scene.contradicted(checks, &nodes)?;
    stage.console.heading("a kernel without a type of sets");
    scene.without_set_type(checks)
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

fn file(path: &str) -> String {
    path.replace('/', "-")
}

fn of_ipv4(mut servers: VirtualServers) -> VirtualServers {
    servers.retain(|server, _| server.address.is_ipv4());
    servers
}

struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
}

impl Scene<'_> {
    /// A node that has no IPv6, and is not said to have any, is in order.
    fn quiet(&self, checks: &mut Checks) -> Result<()> {
        for node in Node::ALL {
            let name = node.name();
            let said = self.cluster.said(node)?;
            let off = "IPv6 is off on this node: Services are served at their IPv4 addresses alone";
            checks.check(
                &format!(
                    "{name}: it says once that IPv6 is off, and calls nothing an error (S-182)"
                ),
                exactly(&said, off, 1).and_then(|()| exactly(&said, "ERROR", 0)),
            );
            checks.check(
                &format!("{name}: its health is good (S-182)"),
                self.is_healthy(node, true),
            );
            checks.check(
                &format!("{name}: doctor finds nothing that fails (S-182)"),
                self.doctor(node, 0, "it is off on this node, which serves IPv4 alone"),
            );
            checks.check(
                &format!("{name}: there are no rules and no routes of ours for IPv6 (S-182)"),
                self.has_nothing_of_ipv6(node),
            );
        }
        Ok(())
    }

    fn is_healthy(&self, node: Node, wanted: bool) -> Result<()> {
        let address = (node.address(Family::IPv4), HEALTHZ).into();
        let limit = self.stage.waits.limit(SOON);
        let namespace = self.topology.node(node)?;
        let response = namespace.inside(|| http::get(address, "/healthz", limit))?;
        let is_healthy = response.status == 200;
        ensure!(is_healthy == wanted, "it answers {}", response.status);
        Ok(())
    }

    fn doctor(&self, node: Node, exit: i32, words: &str) -> Result<()> {
        let state = self.cluster.state_folder(node);
        let state = state.display().to_string();
        let ask = || Program::Agent.try_with_input(&["doctor", "--all", "--state-dir", &state], "");
        let mut said = String::new();
        // The plan reaches the disk a while after the kernel.
        let says = || {
            let ended = self.topology.node(node)?.inside(ask)?;
            said = format!("{}{}{}", ended.status, ended.output, ended.errors);
            let right = ended.status.code() == Some(exit) && said.contains(words);
            Ok(right.then_some(()))
        };
        let waits = self.stage.waits;
        let waited = waits.until("doctor to say so", BACK_OFF, LOOK, says, String::new);
        waited.with_context(|| said.clone())
    }

    fn has_nothing_of_ipv6(&self, node: Node) -> Result<()> {
        let seen = witness::everything(self.topology.node(node)?)?;
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

    /// A Node object that says the node has IPv6: one of the two is wrong, and only people know which.
    fn contradicted(&mut self, checks: &mut Checks, nodes: &str) -> Result<()> {
        let node = Node::A;
        let mark = self.cluster.said(node)?.len();
        self.cluster.write_manifest(&file(NODES), nodes)?;
        let words = "serve IPv6: IPv6 is off on this node (this kernel runs without it";
        checks.check(
            "a Node object that has IPv6 here is named as the one thing that is wrong (S-182)",
            self.fails_once(node, mark, words),
        );
        checks.check(
            "doctor names it too (S-182)",
            self.doctor(node, 1, "its Node object has IPv6 addresses or pod ranges"),
        );
        let applied = self.cluster.applied(node)?.len();
        let nodes = without_ipv6(nodes);
        self.cluster.write_manifest(&file(NODES), &nodes)?;
        checks.check(
            "all is in force once it is put right (S-182)",
            self.cluster.wait_applied(node, applied).map(drop),
        );
        Ok(())
    }

    fn without_set_type(&mut self, checks: &mut Checks) -> Result<()> {
        let node = Node::A;
        for node in Node::ALL {
            self.cluster.stop_agent(node)?;
            let ended = self.cluster.clean_up(node)?;
            ensure!(ended.status.success(), "cleanup: {}", ended.errors);
        }
        self.unload_set_type()?;
        let loader = Loader::take_away()?;
        let mark = self.cluster.said(node)?.len();
        let applied = self.cluster.applied(node)?.len();
        self.cluster.start_agent(node)?;
        let words = "create set PORTOLAN-ALLOW for 65536 entries: the kernel has no sets of type \
                     hash:ip,port,net: load its module (modprobe ip_set_hash_ipportnet)";
        checks.check(
            "a type of sets that the kernel lacks is named as the one thing that is wrong (S-180)",
            self.fails_once(node, mark, words),
        );
        checks.check(
            "and its health is not good (S-169)",
            self.is_healthy(node, false),
        );
        checks.check(
            "no address is routed here while nothing could refuse its unused ports (S-186)",
            self.routes_nothing(node),
        );
        drop(loader);
        checks.check(
            "all is in force once the kernel has it, without a restart (S-180)",
            self.until_applied(node, applied),
        );
        Ok(())
    }

    /// It can be unloaded once the kernel has freed the last set of it.
    fn unload_set_type(&self) -> Result<()> {
        let gone = || {
            drop(Program::Modprobe.run(&["-r", SET_TYPE]));
            let modules = std::fs::read_to_string("/proc/modules").context("read /proc/modules")?;
            let mut names = modules.lines().filter_map(|line| line.split(' ').next());
            Ok((!names.any(|name| name == SET_TYPE)).then_some(()))
        };
        let loaded = || "somebody has a set of it".to_owned();
        let waits = self.stage.waits;
        waits.until("the type to be unloaded", SOON, OFTEN, gone, loaded)
    }

    fn routes_nothing(&self, node: Node) -> Result<()> {
        let list = || Program::Ip.run(&["route", "show", "table", "local", "dev", "kube-ipvs0"]);
        let routes = self.topology.node(node)?.inside(list)?;
        ensure!(routes.trim().is_empty(), "{routes}");
        Ok(())
    }

    fn until_applied(&mut self, node: Node, before: usize) -> Result<()> {
        let waits = self.stage.waits;
        waits.until(
            "the plan to be in force",
            BACK_OFF + SOON,
            OFTEN,
            || {
                self.cluster.check_running()?;
                Ok((self.cluster.applied(node)?.len() > before).then_some(()))
            },
            || "it is not".to_owned(),
        )
    }

    /// One failure is told behind the mark, in these words, and no other.
    fn fails_once(&mut self, node: Node, mark: usize, words: &str) -> Result<()> {
        let waits = self.stage.waits;
        let mut said = String::new();
        waits.until(
            "a failure that is told",
            SOON,
            OFTEN,
            || {
                self.cluster.check_running()?;
                said = self.cluster.said(node)?.split_off(mark);
                let told = said.contains("the plan is not in force");
                Ok(told.then_some(()))
            },
            || "nothing is".to_owned(),
        )?;
        let causes = said
            .lines()
            .filter_map(|line| line.split_once("ERROR "))
            .filter(|(_, cause)| !cause.contains("the plan is not in force"));
        for (_, cause) in causes {
            ensure!(cause.contains(words), "{cause}");
        }
        ensure!(said.contains(words), "no {words:?} in {said}");
        Ok(())
    }
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
