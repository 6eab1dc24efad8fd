//! One change after the other, and the next datagram of everybody after each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::manifests::Endpoint;
use super::tracked;
use super::{B1, CLIENTS, Checks, MADE_UP, MOVED, ON_A1, ON_B1, Scene, balancer, frontends};
use crate::topology::world::{Family, Node, Resident};
use crate::waits;

/// Several of the agent's periods.
const QUIET: Duration = Duration::from_secs(4);

pub(super) fn run(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    before_the_agent(scene, checks)?;
    replaced(scene, checks)?;
    outage(scene, checks)?;
    new_address(scene, checks)?;
    first_endpoint(scene, checks)?;
    quiet(scene, checks)
}

/// Checks for both families that the clients of `talk` are answered.
fn answered(scene: &Scene<'_>, checks: &mut Checks, name: &str, at: Endpoint, what: &str) {
    for family in Family::ALL {
        let result = scene.reach(family, &scene.senders, name, at);
        checks.check(&format!("{family}: {what}"), result);
    }
}

/// S-126, S-129: who sent before the rules were there is answered once they are.
fn before_the_agent(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("clients from before the agent");
    let targets: Vec<_> = Family::ALL.into_iter().flat_map(frontends).collect();
    scene.senders = scene.open(&targets)?;
    for family in Family::ALL {
        let what = format!("{family}: what is sent before the agent starts is tracked and lost");
        checks.check(&what, scene.lost(family, &scene.senders));
    }
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    let what = "after the start the next datagram of everybody is answered (S-126, S-129)";
    answered(scene, checks, "pod-a1", ON_A1, what);
    Ok(())
}

fn replaced(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("endpoints that are replaced");
    scene.lead("talk", Some(ON_B1))?;
    let what =
        "an endpoint is replaced, and the next datagram reaches the new one (S-116, S-124, S-132)";
    answered(scene, checks, "pod-b1", ON_B1, what);
    scene.lead("talk", Some(MOVED))?;
    let what = "an endpoint changes its port only, and the next datagram reaches it there (S-125)";
    answered(scene, checks, "pod-b1-moved", MOVED, what);
    Ok(())
}

/// S-127, with flows that IPVS knows nothing of, so that it cannot have ended them itself.
fn outage(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("no endpoint for a while");
    scene.lead("talk", None)?;
    let looks = scene.looks()?;
    let mut made = BTreeSet::new();
    for family in Family::ALL {
        let client = (Resident::Outside.address(family), MADE_UP).into();
        for frontend in frontends(family) {
            tracked::insert(scene.node()?, "udp", client, frontend)?;
            made.insert((client, frontend));
        }
    }
    let left = |scene: &Scene<'_>| -> Result<usize> {
        let tracked = tracked::all(scene.node()?)?;
        let udp = tracked.iter().filter(|flow| flow.protocol == "udp");
        let ours = udp.filter(|flow| made.contains(&(flow.source, flow.destination)));
        Ok(ours.count())
    };
    let start = Instant::now();
    waits::sleep_until(start + scene.stage.waits.limit(QUIET))?;
    let (now, still) = (scene.looks()?, left(scene)?);
    checks.check(
        "without an endpoint no flow is looked at, and none deleted (S-127)",
        {
            let kept = now == looks && still == made.len();
            let words = format!(
                "{looks} looks became {now}, {still} of {} are left",
                made.len()
            );
            kept.then_some(()).ok_or_else(|| anyhow::anyhow!(words))
        },
    );
    scene.lead("talk", Some(ON_A1))?;
    let still = left(scene)?;
    checks.check(
        "once there is an endpoint again they are deleted (S-124, S-126)",
        {
            let words = format!("{still} are left");
            (still == 0)
                .then_some(())
                .ok_or_else(|| anyhow::anyhow!(words))
        },
    );
    answered(
        scene,
        checks,
        "pod-a1",
        ON_A1,
        "after an outage the next datagram of everybody is answered (S-127)",
    );
    Ok(())
}

/// S-129: nothing but the Service changes.
fn new_address(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("a new address");
    let targets = Family::ALL.map(|family| balancer(family, 0x72));
    let early = scene.open(&targets)?;
    for family in Family::ALL {
        let what = format!("{family}: what is sent to an address of nobody is tracked and lost");
        checks.check(&what, scene.lost(family, &early));
    }
    let [v4, v6] = targets.map(|target| target.ip());
    let from = "externalIPs: []";
    ensure!(
        scene.services.matches(from).count() == 1,
        "{from:?} in the manifest"
    );
    let to = format!("externalIPs: [\"{v4}\", \"{v6}\"]");
    let text = scene.services.replace(from, &to);
    scene.put("services.yaml", &text)?;
    for family in Family::ALL {
        let what = format!(
            "{family}: once it is a Service's, the next datagram is answered (S-126, S-129)"
        );
        checks.check(&what, scene.reach(family, &early, "pod-a1", ON_A1));
    }
    let what = "and those of other addresses of the Service go on (S-124)";
    answered(scene, checks, "pod-a1", ON_A1, what);
    Ok(())
}

/// Who sends to a Service without endpoints is refused, and answered from the first one on.
fn first_endpoint(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("a first endpoint");
    let targets = Family::ALL.map(|family| balancer(family, 0x73));
    let early = scene.open(&targets)?;
    for (_, sender) in &early {
        sender.send()?;
    }
    scene.lead("late", Some(MOVED))?;
    ensure!(
        early.len() == CLIENTS.len() * targets.len(),
        "clients are missing"
    );
    for family in Family::ALL {
        let what = format!(
            "{family}: with the first endpoint the next datagram of everybody is answered (S-126)"
        );
        checks.check(&what, scene.reach(family, &early, "pod-b1-moved", MOVED));
    }
    Ok(())
}

/// S-128.
fn quiet(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("no look without a reason");
    let looks = scene.looks()?;
    ensure!(looks > 0, "the agent has not said that it looks");
    let plain = Endpoint {
        pod: B1,
        port: 8080,
    };
    for to in [Some(plain), None, Some(ON_A1)] {
        scene.lead("plain", to)?;
    }
    let same = |now: usize| {
        let words = format!("{looks} looks became {now}");
        (now == looks)
            .then_some(())
            .ok_or_else(|| anyhow::anyhow!(words))
    };
    checks.check(
        "changes of a Service without UDP ports lead to no look at flows (S-128)",
        same(scene.looks()?),
    );
    let start = Instant::now();
    waits::sleep_until(start + scene.stage.waits.limit(QUIET))?;
    checks.check(
        "and verifying the kernel leads to none (S-128)",
        same(scene.looks()?),
    );
    let what = "and everybody is still answered (S-124)";
    answered(scene, checks, "pod-a1", ON_A1, what);
    Ok(())
}
