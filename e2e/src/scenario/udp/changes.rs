//! One change after the other, and the next datagram of every client after each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::manifests::Endpoint;
use super::tracked;
use super::{B1, CLIENTS, Checks, Lab, MADE_UP, MOVED, NODE, ON_A1, ON_B1, balancer, frontends};
use crate::topology::world::{Family, Resident};
use crate::waits;

/// Several of the agent's periods.
const QUIET: Duration = Duration::from_secs(4);
/// Flows move a second after their endpoint has left, with IPVS up to one more.
const FLOWS_MOVE: Duration = Duration::from_secs(3);

/// Checks for both families that the clients of `talk` are answered.
fn answered(lab: &Lab<'_>, checks: &mut Checks, name: &str, at: Endpoint, what: &str) {
    for family in Family::ALL {
        let result = lab.reach(family, &lab.state.senders, name, at);
        checks.check(&format!("{family}: {what}"), result);
    }
}

/// The same for clients of an endpoint that has left: their flows go on for a second.
fn answered_soon(lab: &Lab<'_>, checks: &mut Checks, name: &str, at: Endpoint, what: &str) {
    for family in Family::ALL {
        let result = lab.within("flows to move", FLOWS_MOVE, || {
            lab.reach(family, &lab.state.senders, name, at)
        });
        checks.check(&format!("{family}: {what}"), result);
    }
}

/// S-126, S-129: a client that sent before the rules existed is answered once they exist.
pub(super) fn before_the_agent(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("clients from before the agent");
    let targets: Vec<_> = Family::ALL.into_iter().flat_map(frontends).collect();
    lab.state.senders = lab.open(&targets)?;
    for family in Family::ALL {
        let what = format!("{family}: datagrams sent before the agent starts are tracked and lost");
        checks.check(&what, lab.lost(family, &lab.state.senders));
    }
    lab.start()?;
    let what = "after the start the next datagram of every client is answered (S-126, S-129)";
    answered(lab, checks, "pod-a1", ON_A1, what);
    Ok(())
}

pub(super) fn replaced(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("endpoints that are replaced");
    lab.lead("talk", Some(ON_B1))?;
    let what = "an endpoint is replaced, and a second later datagrams reach the new one (S-116, S-124, S-132)";
    answered_soon(lab, checks, "pod-b1", ON_B1, what);
    lab.lead("talk", Some(MOVED))?;
    let what =
        "an endpoint changes its port only, and a second later datagrams reach it there (S-125)";
    answered_soon(lab, checks, "pod-b1-moved", MOVED, what);
    Ok(())
}

/// S-127, with flows that are unknown to IPVS, so that it cannot have ended them itself.
pub(super) fn outage(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("no endpoint for a while");
    lab.lead("talk", None)?;
    for family in Family::ALL {
        let what = format!(
            "{family}: without an endpoint, the former pod answers no client from the same port \
             (S-238)"
        );
        checks.check(&what, lab.unanswered(family));
    }
    let looks = lab.looks()?;
    let mut made = BTreeSet::new();
    for family in Family::ALL {
        let client = (Resident::Outside.address(family), MADE_UP).into();
        for frontend in frontends(family) {
            tracked::insert(&lab.node(NODE)?, "udp", client, frontend)?;
            made.insert((client, frontend));
        }
    }
    let left = |lab: &Lab<'_>| -> Result<usize> {
        let tracked = tracked::all(&lab.node(NODE)?)?;
        let udp = tracked.iter().filter(|flow| flow.protocol == "udp");
        let ours = udp.filter(|flow| made.contains(&(flow.source, flow.destination)));
        Ok(ours.count())
    };
    let start = Instant::now();
    waits::sleep_until(start + lab.limit(QUIET))?;
    let (now, still) = (lab.looks()?, left(lab)?);
    let all = made.len();
    checks.require(
        "without an endpoint, no flow is searched for or deleted (S-127)",
        now == looks && still == all,
        &format!("{looks} searches became {now}, {still} of {all} are left"),
    );
    lab.lead("talk", Some(ON_A1))?;
    let still = left(lab)?;
    checks.require(
        "once there is an endpoint again they are deleted (S-124, S-126)",
        still == 0,
        &format!("{still} are left"),
    );
    answered(
        lab,
        checks,
        "pod-a1",
        ON_A1,
        "after an outage the next datagram of every client is answered (S-127)",
    );
    Ok(())
}

/// S-129: nothing but the Service changes.
pub(super) fn new_address(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a new address");
    let targets = Family::ALL.map(|family| balancer(family, 0x72));
    let early = lab.open(&targets)?;
    for family in Family::ALL {
        let what = format!("{family}: datagrams to an unused address are tracked and lost");
        checks.check(&what, lab.lost(family, &early));
    }
    let [v4, v6] = targets.map(|target| target.ip());
    let from = "externalIPs: []";
    ensure!(
        lab.state.services.matches(from).count() == 1,
        "{from:?} in the manifest"
    );
    let to = format!("externalIPs: [\"{v4}\", \"{v6}\"]");
    let text = lab.state.services.replace(from, &to);
    lab.put("services.yaml", &text)?;
    for family in Family::ALL {
        let what = format!(
            "{family}: once a Service has it, the next datagram is answered (S-126, S-129)"
        );
        checks.check(&what, lab.reach(family, &early, "pod-a1", ON_A1));
    }
    let what = "and those of other addresses of the Service go on (S-124)";
    answered(lab, checks, "pod-a1", ON_A1, what);
    Ok(())
}

/// Clients of a Service without endpoints are refused, and answered once it has an endpoint.
pub(super) fn first_endpoint(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a first endpoint");
    let targets = Family::ALL.map(|family| balancer(family, 0x73));
    let early = lab.open(&targets)?;
    for (_, sender) in &early {
        // A datagram of the node itself fails with EPERM: a rule refuses it before it leaves.
        drop(sender.send());
    }
    lab.lead("late", Some(MOVED))?;
    ensure!(
        early.len() == CLIENTS.len() * targets.len(),
        "clients are missing"
    );
    for family in Family::ALL {
        let what = format!(
            "{family}: with the first endpoint the next datagram of every client is answered \
             (S-126)"
        );
        checks.check(&what, lab.reach(family, &early, "pod-b1-moved", MOVED));
    }
    Ok(())
}

/// S-128.
pub(super) fn quiet(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("no search without a reason");
    let looks = lab.looks()?;
    ensure!(looks > 0, "the agent has not logged a search");
    let plain = Endpoint {
        pod: B1,
        port: 8080,
    };
    for to in [Some(plain), None, Some(ON_A1)] {
        lab.lead("plain", to)?;
    }
    let same = |now: usize| {
        ensure!(now == looks, "{looks} searches became {now}");
        Ok(())
    };
    checks.check(
        "changes of a Service without UDP ports cause no search for flows (S-128)",
        same(lab.looks()?),
    );
    let start = Instant::now();
    waits::sleep_until(start + lab.limit(QUIET))?;
    checks.check("and a resync causes none (S-128)", same(lab.looks()?));
    let what = "and every client is still answered (S-124)";
    answered(lab, checks, "pod-a1", ON_A1, what);
    Ok(())
}
