//! Kernel state across the lifecycle of agents: a stop keeps everything, a restart over a correct
//! state writes nothing, and a cleanup leaves only foreign state.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, ensure};

use super::Checks;
use crate::dataplane::Dataplane;
use crate::expectation::{Expect, Row};
use crate::harness::{Lab, wrote_nothing};
use crate::manifests::Manifests;
use crate::program::Program;
use crate::topology::world::Node;
use crate::witness::{self, VirtualServer, VirtualServers};

/// All that a Service proxy could write on a node, as text.
pub(super) type Baselines = BTreeMap<Node, BTreeMap<&'static str, String>>;

const FOREIGN_SERVER: &str = "198.51.100.9:443";
const FOREIGN_BACKEND: &str = "10.244.1.11:8443";

/// Creates foreign state on node-a: rules, a route, and of the dataplane a virtual server and a set, or a table.
pub(super) fn make_foreign_state(lab: &Lab<'_>) -> Result<()> {
    let server = format!("-A -t {FOREIGN_SERVER} -s rr");
    let backend = format!("-a -t {FOREIGN_SERVER} -r {FOREIGN_BACKEND} -m");
    let of_dataplane: &[(Program, &str)] = match lab.stage.dataplane {
        Dataplane::Ipvs => &[
            (Program::Ipvsadm, &server),
            (Program::Ipvsadm, &backend),
            (Program::Ipset, "create FOREIGN hash:ip"),
            (Program::Ipset, "add FOREIGN 203.0.113.7"),
        ],
        Dataplane::Nftables => &[
            (Program::Nft, "add table ip foreign"),
            (
                Program::Nft,
                "add set ip foreign portolan { type ipv4_addr; }",
            ),
            (
                Program::Nft,
                "add element ip foreign portolan { 203.0.113.7 }",
            ),
        ],
    };
    lab.tools(Node::A, of_dataplane)?;
    let lines = [
        (Program::Iptables, "-w -N FOREIGN"),
        (
            Program::Iptables,
            "-w -A FOREIGN -s 203.0.113.0/24 -j RETURN",
        ),
        (Program::Iptables, "-w -A INPUT -j FOREIGN"),
        (
            Program::Ip,
            "route add local 198.51.100.9/32 dev lo table local",
        ),
    ];
    lab.tools(Node::A, &lines)
}

/// Every node as it is now.
pub(super) fn baselines(lab: &Lab<'_>) -> Result<Baselines> {
    Node::ALL
        .into_iter()
        .map(|node| Ok((node, lab.everything(node)?)))
        .collect()
}

/// The virtual servers of a node: those of the manifests and, with IPVS on node-a, the foreign one (S-109).
pub(super) fn expected(node: Node, manifests: &Manifests, dataplane: Dataplane) -> VirtualServers {
    let mut servers = manifests.virtual_servers();
    if dataplane == Dataplane::Nftables {
        return servers;
    }
    if let (Node::A, Ok(address), Ok(backend)) =
        (node, FOREIGN_SERVER.parse(), FOREIGN_BACKEND.parse())
    {
        let key = VirtualServer {
            protocol: "TCP".to_owned(),
            address,
        };
        servers.insert(key, BTreeMap::from([(backend, 1)]));
    }
    servers
}

/// Runs all of it; `before` is the state of the nodes before their first agent.
pub(super) fn run(
    checks: &mut Checks,
    lab: &mut Lab<'_>,
    rows: &[Row],
    before: &Baselines,
) -> Result<()> {
    let running = baselines(lab)?;
    checks.check("agents end with status 0 after SIGTERM", lab.stop_agents());
    checks.check(
        "stopped agents leave everything in place (S-199)",
        unchanged(lab, &running),
    );
    checks.check(
        "traffic flows without agents (S-199)",
        traffic_flows(lab, rows),
    );
    for node in Node::ALL {
        let what = format!("a second agent on {} writes nothing", node.name());
        let result = starts_without_writing(lab, node, &running[&node]);
        checks.check(&what, result);
    }
    checks.check("agents end once more", lab.stop_agents());
    for node in Node::ALL {
        let name = node.name();
        let what =
            format!("cleanup leaves {name} as it was before Portolan (S-109, S-196, S-197, S-198)");
        checks.check(&what, cleans_up(lab, node, &before[&node]));
        let what = format!("a second cleanup of {name} finds nothing and succeeds (S-196)");
        checks.check(&what, cleans_up(lab, node, &before[&node]));
    }
    Ok(())
}

pub(super) fn unchanged(lab: &Lab<'_>, running: &Baselines) -> Result<()> {
    for (node, text) in running {
        let now = lab.everything(*node)?;
        witness::must_equal(text, &now).with_context(|| node.name())?;
    }
    Ok(())
}

/// Every row of the first Service, from every client.
fn traffic_flows(lab: &Lab<'_>, rows: &[Row]) -> Result<()> {
    let first = rows.iter().find(|row| row.expect == Expect::Answered);
    let service = &first
        .ok_or_else(|| anyhow!("the table expects no answers"))?
        .to;
    for row in rows
        .iter()
        .filter(|row| row.to == *service && row.expect == Expect::Answered)
    {
        let cell = lab.run_cell(row)?;
        ensure!(cell.passed(), "{}", cell.explain());
    }
    Ok(())
}

fn starts_without_writing(
    lab: &mut Lab<'_>,
    node: Node,
    before: &BTreeMap<&'static str, String>,
) -> Result<()> {
    wrote_nothing(&lab.start_agent(node)?)?;
    witness::must_equal(before, &lab.everything(node)?)
}

pub(super) fn cleans_up(
    lab: &Lab<'_>,
    node: Node,
    before: &BTreeMap<&'static str, String>,
) -> Result<()> {
    lab.clean_up(node)?;
    witness::must_equal(before, &lab.everything(node)?)
}
