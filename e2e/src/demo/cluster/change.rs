//! Changes made with kubectl, each followed through the slices that Kubernetes' own controllers
//! write to both kernels and to clients.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::history::Endpoints;
use super::{Scene, WEB};
use crate::checks::Checks;
use crate::console::Table;
use crate::demo::pod_at;
use crate::stage::Stage;
use crate::topology::world::{Node, Pod, Resident};
use crate::traffic::Protocol;
use crate::traffic::client::{self, Outcome};

/// From a command until clients feel it, on hardware; pods need a second to terminate.
pub(super) const FOLLOWS: Duration = Duration::from_secs(20);
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A command, and how things are when it has had its effect.
pub(super) struct Change {
    what: &'static str,
    command: &'static str,
    pub(super) then: Settled,
}

/// Number of running and pending pods, and the zone of node-b.
#[derive(Clone, Copy)]
pub(super) struct Settled {
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) zone_of_b: &'static str,
}

pub(super) const CHANGES: [Change; 4] = [
    Change {
        what: "More pods",
        command: "scale deployment web --replicas=6",
        then: settled(6, 0, "zone-2"),
    },
    Change {
        what: "A node is drained: its pods are evicted, and node-a has no room for them",
        command: "drain node-b --ignore-daemonsets --force",
        then: settled(3, 3, "zone-2"),
    },
    Change {
        what: "It takes pods again: pending pods start there",
        command: "uncordon node-b",
        then: settled(6, 0, "zone-2"),
    },
    Change {
        what: "A node moves to the other zone: its clients follow the hints for that",
        command: "label node node-b topology.kubernetes.io/zone=zone-1 --overwrite",
        then: settled(6, 0, "zone-1"),
    },
];

/// Makes room for other pods, after all of [`CHANGES`].
pub(super) const FEWER: Change = Change {
    what: "Fewer pods make room",
    command: "scale deployment web --replicas=4",
    then: settled(4, 0, "zone-1"),
};

const fn settled(running: usize, waiting: usize, zone_of_b: &'static str) -> Settled {
    Settled {
        running,
        waiting,
        zone_of_b,
    }
}

/// Makes one change and prints when it reached each node.
pub(super) fn show(
    stage: &Stage,
    checks: &mut Checks,
    scene: &mut Scene<'_>,
    change: &Change,
) -> Result<()> {
    stage.console.heading(change.what);
    let start = Instant::now();
    scene.kubectl.show(change.command)?;
    let returned = start.elapsed();
    let arrived = wait(stage, scene, change.then);
    report(stage, checks, scene, start)?;
    stage.console.line(&format!(
        "counted from the command on; kubectl itself took {:.1} s",
        returned.as_secs_f64()
    ));
    let arrived = arrived.map_err(|error| scene.cluster.with_logs(error));
    checks.check_quietly(&format!("kubectl {}", change.command), arrived);
    Ok(())
}

/// Waits until pods and slices are as they should be and both kernels follow the slices.
pub(super) fn wait(stage: &Stage, scene: &mut Scene<'_>, then: Settled) -> Result<()> {
    let what = "both kernels to send new connections where the slices say";
    wait_until(stage, what, || {
        scene.cluster.check_running()?;
        Ok(unsettled(scene, then).or_else(|| behind(scene)))
    })
}

/// Waits until pods and slices are as they should be, whatever kernels hold.
pub(super) fn wait_for_slices(stage: &Stage, scene: &Scene<'_>, then: Settled) -> Result<()> {
    wait_until(stage, "pods and slices", || Ok(unsettled(scene, then)))
}

/// Waits until `missing` returns nothing.
fn wait_until(
    stage: &Stage,
    what: &str,
    mut missing: impl FnMut() -> Result<Option<String>>,
) -> Result<()> {
    let mut last = None;
    let done = stage.waits.until(
        what,
        FOLLOWS,
        LOOK_AGAIN,
        || {
            last = missing()?;
            Ok(last.is_none().then_some(()))
        },
        String::new,
    );
    done.map_err(|error| anyhow!("{error:#}{}", last.unwrap_or_default()))
}

/// Objects that Kubernetes has not updated yet.
fn unsettled(scene: &Scene<'_>, then: Settled) -> Option<String> {
    let pods = scene.kubelet.summary();
    let ready = scene.objects.ready();
    let zone = scene.objects.zone(Node::B);
    let right = (pods.running, pods.waiting, pods.terminating, ready.len())
        == (then.running, then.waiting, 0, then.running)
        && zone.as_deref() == Some(then.zone_of_b);
    (!right).then(|| {
        let trouble = scene.objects.trouble();
        format!(
            "{pods:?}, ready are {}, node-b is in {zone:?} {trouble:?}",
            names(&ready)
        )
    })
}

/// The first node whose kernel does not do what the slices say.
fn behind(scene: &Scene<'_>) -> Option<String> {
    Node::ALL.into_iter().find_map(|node| {
        let (wanted, has) = (scene.wanted(node), scene.has(node));
        (wanted != has).then(|| {
            let (wanted, has) = (names(&wanted), names(&has));
            format!(
                "{} sends to [{has}], the slices say [{wanted}]",
                node.name()
            )
        })
    })
}

fn report(stage: &Stage, checks: &mut Checks, scene: &Scene<'_>, start: Instant) -> Result<()> {
    let mut table = Table::new([
        "NODE",
        "ZONE",
        "SLICES after s",
        "KERNEL then ms",
        "NEW CONNECTIONS GO TO",
        "ANSWERED (its pod and itself)",
    ]);
    for node in Node::ALL {
        let slices = scene.objects.wanted(node).get();
        let kernel = scene.kernels[&node].takes.get();
        let at = slices.as_ref().map(|(at, _)| *at).filter(|at| *at > start);
        let (after, then) = match (at, &kernel) {
            (Some(at), Some((seen, _))) => (
                format!("{:.2}", (at - start).as_secs_f64()),
                millis(seen.saturating_duration_since(at)),
            ),
            _ => ("unchanged".to_owned(), "-".to_owned()),
        };
        let answered = ask(stage, scene, node)?;
        let met: BTreeSet<String> = answered.keys().cloned().collect();
        let wanted: BTreeSet<String> = scene.wanted(node).into_iter().map(pod_at).collect();
        let counted = answered
            .iter()
            .map(|(name, count)| format!("{}x{count}", short(name)));
        table.row([
            node.name().to_owned(),
            scene.objects.zone(node).unwrap_or_default(),
            after,
            then,
            names(&scene.has(node)),
            counted.collect::<Vec<_>>().join(" "),
        ]);
        let right = || {
            ensure!(met == wanted, "{met:?} answered, the slices say {wanted:?}");
            Ok(())
        };
        checks.check_quietly(&format!("clients on {}", node.name()), right());
    }
    stage.console.table(&table);
    Ok(())
}

/// Two requests for each endpoint from a pod of the node, and two from the node itself.
pub(super) fn ask(stage: &Stage, scene: &Scene<'_>, node: Node) -> Result<BTreeMap<String, u32>> {
    let deadline = stage.waits.limit(Duration::from_secs(2));
    let count = 2 * scene.wanted(node).len();
    let mut answered = BTreeMap::new();
    for client in [Resident::Pod(Pod { node, number: 1 }), Resident::Node(node)] {
        let outcomes = scene.topology.of(client)?.inside(|| {
            let attempt = |_| client::attempt(Protocol::Tcp, WEB, deadline).outcome;
            Ok((0..count).map(attempt).collect::<Vec<_>>())
        })?;
        for outcome in outcomes {
            let by = match outcome {
                Outcome::Answered { by, .. } => by,
                other => other.to_string(),
            };
            *answered.entry(by).or_default() += 1;
        }
    }
    Ok(answered)
}

pub(super) fn names(endpoints: &Endpoints) -> String {
    let names = endpoints.iter().map(|address| pod_at(*address));
    let names: Vec<_> = names.map(|name| short(&name).to_owned()).collect();
    names.join(" ")
}

/// `pod-a1` is `a1` where there is little room.
fn short(name: &str) -> &str {
    name.strip_prefix("pod-").unwrap_or(name)
}

fn millis(took: Duration) -> String {
    format!("{:.0}", took.as_secs_f64() * 1000.0)
}
