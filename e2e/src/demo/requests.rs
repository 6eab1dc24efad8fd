//! Requests of every kind of client to every Service, and who answered.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::pod_at;
use crate::checks::Checks;
use crate::console::Table;
use crate::manifests::{Frontend, Manifests};
use crate::stage::Stage;
use crate::topology::Topology;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::client::{self, Outcome};

fn clients() -> [Resident; 5] {
    let pod = |node, number| Resident::Pod(Pod { node, number });
    [
        pod(Node::A, 3),
        pod(Node::B, 2),
        Resident::Node(Node::A),
        Resident::Node(Node::B),
        Resident::Outside,
    ]
}

/// Connects, prints client × Service, and checks that every endpoint answered and no other.
pub(super) fn show(
    stage: &Stage,
    checks: &mut Checks,
    topology: &Topology,
    promised: &Manifests,
) -> Result<()> {
    let mut frontends = promised.frontends();
    frontends.sort_by_key(|frontend| frontend.address);
    let names = frontends.iter().map(|frontend| {
        let family = Family::of(frontend.address.ip());
        format!("{} {} {family}", frontend.service, frontend.protocol)
    });
    let mut table = Table::new(
        ["CLIENT".to_owned()]
            .into_iter()
            .chain(names)
            .chain(["SEEN AS".to_owned()]),
    );
    for client in clients() {
        let mut row = vec![client.name()];
        let mut seen = BTreeSet::new();
        for frontend in &frontends {
            let answers = ask(stage, topology, client, frontend)?;
            let counted: Vec<_> = answers
                .by
                .iter()
                .map(|(name, count)| format!("{}x{count}", short(name)))
                .collect();
            row.push(counted.join(" "));
            seen.extend(answers.seen.iter().map(|address| whose(client, *address)));
            let what = format!(
                "{} -> {} {}",
                client.name(),
                frontend.service,
                frontend.address
            );
            checks.check_quietly(&what, answers.judge(frontend));
        }
        row.push(seen.into_iter().collect::<Vec<_>>().join(", "));
        table.row(row);
    }
    stage.console.table(&table);
    Ok(())
}

#[derive(Default)]
struct Answers {
    by: BTreeMap<String, u32>,
    seen: BTreeSet<IpAddr>,
}

impl Answers {
    fn judge(&self, frontend: &Frontend) -> Result<()> {
        let met: BTreeSet<_> = self.by.keys().cloned().collect();
        let ready: BTreeSet<_> = frontend
            .endpoints
            .iter()
            .map(|address| pod_at(*address))
            .collect();
        ensure!(met == ready, "{met:?} answered, {ready:?} are ready");
        Ok(())
    }
}

fn ask(stage: &Stage, topology: &Topology, client: Resident, to: &Frontend) -> Result<Answers> {
    let deadline = stage.waits.limit(Duration::from_secs(2));
    let rounds = stage.dataplane.rounds();
    topology.of(client)?.inside(|| {
        let mut answers = Answers::default();
        for _ in 0..rounds * to.endpoints.len() {
            let by = match client::attempt(to.protocol, to.address, deadline).outcome {
                Outcome::Answered { by, seen } => {
                    answers.seen.insert(seen);
                    by
                }
                other => other.to_string(),
            };
            *answers.by.entry(by).or_default() += 1;
        }
        Ok(answers)
    })
}

/// `pod-a1` is `a1` where there is little room.
fn short(name: &str) -> &str {
    name.strip_prefix("pod-").unwrap_or(name)
}

/// The owner of the address that an endpoint saw.
fn whose(client: Resident, seen: IpAddr) -> String {
    let family = Family::of(seen);
    let of = |node: &Node| node.all_addresses(family).contains(&seen);
    match (client, Node::ALL.into_iter().find(of)) {
        (_, None) if client.address(family) == seen => "itself".to_owned(),
        (Resident::Node(own), Some(node)) if own == node => "itself".to_owned(),
        (_, Some(node)) => node.name().to_owned(),
        (_, None) => seen.to_string(),
    }
}
