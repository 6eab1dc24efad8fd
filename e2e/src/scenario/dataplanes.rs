//! A node changes from IPVS to nftables and back under load: no connection fails, open ones continue, and nothing of the
//! other dataplane stays.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::draining;
use super::packet_path::{cluster_manifests, every_client_with};
use super::restarts::targets;
use super::{Checks, Scenario, Stage};
use crate::dataplane::Dataplane;
use crate::harness::loads::Loads;
use crate::harness::{self, clients_of, proxy_config};
use crate::manifests::Manifests;
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node};
use crate::traffic::Protocol;
use crate::traffic::line::Line;
use crate::traffic::load::Rate;
use crate::waits::{self, ANSWER, LATER};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "dataplanes",
    shows: "nodes change from IPVS to nftables and back under load, and no connection fails",
    run,
};

const SETTINGS: &str = "settings.yaml";
/// The port of the Service whose connections stay open.
const FRONTEND: u16 = 7000;
/// The observed node; the other one changes with it.
const NODE: Node = Node::A;
/// New connections per second of each load, about 100 in all.
const PER_SECOND: u32 = 17;
/// A load that reaches less than this share of its rate has shown nothing.
const ENOUGH: f64 = 0.9;
const LASTS: Duration = Duration::from_secs(45);
/// The times of the changes.
const TO_NFTABLES: Duration = Duration::from_secs(4);
const TO_IPVS: Duration = Duration::from_secs(25);
/// IPVS remembers closed connections for two minutes.
const FORGOTTEN: Duration = Duration::from_secs(150);

struct Open {
    manifests: Manifests,
    /// Open connections, with what made them.
    lines: Vec<(String, Line)>,
}

type Lab<'a> = harness::Lab<'a, Open>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let open = Open {
        manifests: cluster_manifests(&stage.files)?,
        lines: Vec::new(),
    };
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(open);
    draining::serve_beside_cluster(&mut lab, stage)?;
    lab.write(SETTINGS, &settings("ipvs"))?;
    lab.start()?;
    load_modules()?;
    lab.run_parts(
        checks,
        &[("changes under load", under_load), ("what is left", left)],
    )
}

/// As `portolan-agent init` does where the plan asks for nftables. An emulated kernel takes long for each, and the change
/// of a node under load is about something else.
fn load_modules() -> Result<()> {
    let modules = [
        "nft_chain_nat",
        "nft_ct",
        "nft_fib_ipv4",
        "nft_fib_ipv6",
        "nft_hash",
        "nft_masq",
        "nft_nat",
        "nft_numgen",
        "nft_reject_ipv4",
        "nft_reject_ipv6",
    ];
    let words = [&["-a"], &modules[..]].concat();
    Program::Modprobe.run(&words).map(drop)
}

fn settings(dataplane: &str) -> String {
    proxy_config(&["sync: {period: 2s}", &format!("dataplane: {dataplane}")])
}

fn under_load(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.open("ipvs")?;
    let start = Instant::now() + Duration::from_millis(200);
    let mut loads = Loads::at(start);
    for client in clients_of(NODE) {
        for (service, protocol) in [("web", Protocol::Tcp), ("dns", Protocol::Udp)] {
            let rate = Rate {
                protocol,
                targets: targets(&lab.state.manifests, service, protocol)?,
                per_second: PER_SECOND,
                lasts: LASTS,
                deadline: lab.limit(Duration::from_secs(2)),
            };
            let name = format!("{} -> {service} {protocol}", client.name());
            loads.add(name, lab.topology.of(client)?, rate)?;
        }
    }
    waits::sleep_until(start + TO_NFTABLES)?;
    lab.change_to("nftables")?;
    let tables = |lab: &Lab<'_>| lab.tool(NODE, Program::Nft, "list tables");
    let found = tables(lab)?;
    checks.require(
        "nftables serves Services",
        ["table ip portolan", "table ip6 portolan"]
            .iter()
            .all(|table| found.contains(table)),
        &found,
    );
    lab.open("nftables")?;
    waits::sleep_until(start + TO_IPVS)?;
    lab.change_to("ipvs")?;
    lab.open("ipvs again")?;
    for load in loads.finish()? {
        lab.line(&load.summary("connections"));
        let what = format!("{}: no connection fails", load.name);
        checks.check(&what, load.none_failed(ENOUGH));
    }
    checks.check(
        "open connections of both dataplanes continue",
        lab.all_live(),
    );
    Ok(())
}

fn left(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.change_to("nftables")?;
    lab.line(&format!("closing {} connections", lab.state.lines.len()));
    lab.state.lines.clear();
    checks.check(
        "without its connections, nothing of IPVS is left",
        lab.eventually("the end of IPVS", FORGOTTEN, || lab.is_without_ipvs()),
    );
    lab.open("nftables alone")?;
    checks.check("nftables alone serves", lab.all_live());
    every_client_with(Dataplane::Nftables, lab, checks, &lab.state.manifests)?;
    lab.change_to("ipvs")?;
    checks.check("its connections continue under IPVS", lab.all_live());
    let log = lab.log_end(NODE)?;
    lab.state.lines.clear();
    checks.check(
        "without their connections, the tables are deleted",
        lab.wait_logged(NODE, log, &["deleted the table"], FORGOTTEN + LATER),
    );
    Ok(())
}

impl Lab<'_> {
    /// Changes the dataplane and waits for both nodes. For its first tables, an emulated kernel loads a dozen modules.
    fn change_to(&self, dataplane: &str) -> Result<()> {
        let before = self.applied()?;
        self.write(SETTINGS, &settings(dataplane))?;
        for (node, before) in Node::ALL.into_iter().zip(before) {
            let what = format!("{dataplane} on {}", node.name());
            self.eventually(&what, LATER, || {
                let applied = self.cluster.applied(node)?.len();
                ensure!(applied > before, "{applied} plans are in force");
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Opens a connection of each client over each family.
    fn open(&mut self, made_by: &str) -> Result<()> {
        for family in Family::ALL {
            for client in clients_of(NODE) {
                let to: SocketAddr = draining::at(family, FRONTEND);
                let deadline = self.limit(ANSWER);
                let line = Line::open(self.topology.of(client)?, to, deadline);
                let name = format!("{made_by}: {} to {to}", client.name());
                let line = line.with_context(|| name.clone())?;
                self.state.lines.push((name, line));
            }
        }
        Ok(())
    }

    fn all_live(&mut self) -> Result<()> {
        let lines = self.state.lines.iter_mut();
        for (name, line) in lines {
            line.lives().with_context(|| name.clone())?;
        }
        Ok(())
    }

    fn is_without_ipvs(&self) -> Result<()> {
        for (program, line) in [
            (Program::Ipvsadm, "-Sn"),
            (Program::Ipset, "list -n"),
            (Program::IptablesSave, "-t mangle"),
            (Program::Ip, "rule"),
            (Program::Ip, "link"),
        ] {
            let found = self.tool(NODE, program, line)?;
            let of_ipvs = ["-A ", "PORTOLAN", "fwmark", "kube-ipvs0"];
            let found = found
                .lines()
                .find(|line| of_ipvs.iter().any(|of| line.contains(of)));
            ensure!(found.is_none(), "{program:?} {line}: {found:?}");
        }
        Ok(())
    }
}
