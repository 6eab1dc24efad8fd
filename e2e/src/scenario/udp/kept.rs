//! What stays with its endpoint: flows over restarts of the programs, and fragments.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Result, bail};

use super::manifests::slices;
use super::{ANSWER, CLIENTS, Checks, Lab, NODE, ON_A1, ON_B1, frontends};
use crate::dataplane::Dataplane;
use crate::topology::world::{Family, Resident};
use crate::traffic::client::Outcome;
use crate::traffic::sender::Sender;

/// Flows of each client to each frontend: 360 in all.
const FLOWS: usize = 20;
/// The length of a datagram that needs several fragments, as on a link with MTU 1500.
const LONG: usize = 9000;

type Flows = Vec<(Resident, Sender)>;

/// S-252: only a change of endpoints moves a flow.
pub(super) fn over_restarts(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("restarts of the programs");
    lab.put("talk.yaml", &slices("talk", &[ON_A1, ON_B1]))?;
    let mut flows = Flows::new();
    for target in Family::ALL.into_iter().flat_map(frontends) {
        flows.extend(lab.open(&[target; FLOWS])?);
    }
    let first = endpoints(lab, &flows)?;
    let of_a1 = first.values().filter(|name| *name == "pod-a1").count();
    checks.require(
        "flows are spread over both endpoints",
        of_a1 > 0 && of_a1 < first.len(),
        &format!("{of_a1} of {} flows reach pod-a1", first.len()),
    );
    let kept = |lab: &Lab<'_>, checks: &mut Checks, when: &str| -> Result<()> {
        let now = endpoints(lab, &flows)?;
        let moved = first
            .iter()
            .filter(|(flow, name)| now.get(*flow) != Some(*name));
        let moved: Vec<_> = moved
            .map(|((from, to), _)| format!("{from} to {to}"))
            .collect();
        let (count, all) = (moved.len(), first.len());
        let details = format!("{count} of {all} moved: {}", moved.join(", "));
        let what = format!("{when}: no UDP flow moves to another endpoint (S-252)");
        checks.require(&what, moved.is_empty(), &details);
        Ok(())
    };
    lab.crash_agent(NODE)?;
    kept(lab, checks, "the agent is killed and starts again")?;
    lab.cluster.stop_agent(NODE)?;
    kept(lab, checks, "the agent has ended, as during an upgrade")?;
    lab.start_agent(NODE)?;
    kept(lab, checks, "and starts again")?;
    lab.cluster.kill_controller()?;
    kept(lab, checks, "the controller is killed")?;
    let before = lab.cluster.applied(NODE)?.len();
    lab.cluster.start_controller()?;
    lab.cluster.wait_applied(NODE, before)?;
    kept(lab, checks, "and starts again, and the agent has its plan")?;
    lab.put("talk.yaml", &slices("talk", &[ON_A1]))
}

/// The server that answers each flow.
fn endpoints(lab: &Lab<'_>, flows: &Flows) -> Result<BTreeMap<(SocketAddr, SocketAddr), String>> {
    let mut found = BTreeMap::new();
    for (client, sender) in flows {
        crate::stop::check()?;
        match sender.ask(lab.limit(ANSWER))? {
            Outcome::Answered { by, .. } => {
                found.insert((sender.source()?, sender.target()), by);
            }
            other => bail!("{} to {}: {other}", client.name(), sender.target()),
        }
    }
    Ok(found)
}

/// S-251: only the first fragment of a datagram has the port.
pub(super) fn fragments(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("datagrams in fragments");
    for family in Family::ALL {
        let frontends = ["cluster IP", "balancer", "node port"]
            .into_iter()
            .zip(frontends(family));
        for (client, (kind, target)) in CLIENTS
            .into_iter()
            .flat_map(|client| frontends.clone().map(move |frontend| (client, frontend)))
        {
            if is_too_long(lab, client, family, kind) {
                continue;
            }
            let sender = Sender::open(lab.topology.of(client)?, target)?;
            let outcome = sender.ask_with(&[b'?'; LONG], lab.limit(ANSWER))?;
            checks.require(
                &format!(
                    "{family}: {} sends {LONG} bytes to a {kind} (S-251)",
                    client.name()
                ),
                matches!(outcome, Outcome::Answered { .. }),
                &outcome.to_string(),
            );
        }
    }
    Ok(())
}

/// IPVS drops a datagram of the node itself that is longer than the MTU and in one piece: any of IPv6, and those to the
/// node's own addresses, whose interface `lo` has a larger MTU.
fn is_too_long(lab: &Lab<'_>, client: Resident, family: Family, kind: &str) -> bool {
    lab.stage.dataplane == Dataplane::Ipvs
        && client == Resident::Node(NODE)
        && (family == Family::IPv6 || kind == "node port")
}
