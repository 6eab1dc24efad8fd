//! Where the time of a change goes: one more endpoint, made with kubectl and shown as one trace from Kubernetes to
//! the phases of both kernels; then changes of which a paused node gets two at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

use super::change::{self, FOLLOWS, LOOK_AGAIN};
use super::{Kernel, Scene};
use crate::checks::Checks;
use crate::console::Table;
use crate::jaeger::{self, Query, Span, Trace};
use crate::stage::Stage;
use crate::topology::world::Node;

/// The cluster IP of the Service `cart`, as in its manifest.
const CART: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 30)), 80);
/// From a change in the kernels until it is in Jaeger, on hardware.
const TRACED: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Until a second trace of the same change would be there, on hardware.
const SETTLES: Duration = Duration::from_secs(1);
/// Steps of an agent for one more endpoint, on every node; the node of the pod has more steps.
const STEPS: [&str; 6] = [
    "wait",
    "read network",
    "desired state",
    "diff",
    "add servers",
    "flows",
];
/// Each is another one, and any will do.
const SCHEDULERS: [&str; 3] = ["wrr", "lc", "rr"];
/// Prefix of the line in the lab's output that names the trace for drawing.
const NAMED: &str = "The trace: ";

/// Makes the change and shows its trace; then the ones that go together.
pub(super) fn show(
    stage: &Stage,
    checks: &mut Checks,
    scene: &mut Scene<'_>,
    jaeger: &Query,
) -> Result<()> {
    change::show(stage, checks, scene, &change::FEWER)?;
    one_endpoint(stage, checks, scene, jaeger)?;
    together(stage, checks, scene, jaeger)
}

/// One pod more: one change, one trace.
fn one_endpoint(
    stage: &Stage,
    checks: &mut Checks,
    scene: &mut Scene<'_>,
    jaeger: &Query,
) -> Result<()> {
    let console = stage.console;
    console.heading("Where does the time go? One more endpoint, in Jaeger");
    let manifest = stage.files.text("demo/cluster/cart.yaml")?;
    manifest.lines().for_each(|line| console.line(line));
    console.line("");
    scene.kubectl.quietly(&["apply", "-f", "-"], &manifest)?;
    let observe = |node| Ok((node, Kernel::observe(scene.topology.node(node)?, CART)?));
    let kernels = Node::ALL.map(observe).into_iter();
    let kernels = kernels.collect::<Result<BTreeMap<_, _>>>()?;
    wait_taken(stage, scene, &kernels, 1)?;
    let since = SystemTime::now();
    scene.kubectl.show("scale deployment cart --replicas=2")?;
    wait_taken(stage, scene, &kernels, 2)?;
    let whole = |trace: &Trace| trace.named("apply").count() == Node::ALL.len();
    let found = wait_traces(
        stage,
        jaeger,
        since,
        "EndpointSlice default/cart",
        |traces| traces.iter().any(whole),
    );
    found.map_err(|error| scene.cluster.with_logs(error))?;
    std::thread::sleep(stage.waits.limit(SETTLES));
    let traces = since_then(jaeger, since, "default/cart")?;
    let trace = traces.iter().find(|trace| whole(trace));
    let trace = trace.context("Jaeger has lost the trace")?;
    jaeger::lines(trace)
        .iter()
        .for_each(|line| console.line(line));
    console.line(&format!("{NAMED}{}", trace.id));
    checks.check("one endpoint more is one trace in Jaeger", {
        let changed: Vec<_> = traces.iter().map(Trace::changed).collect();
        let one = traces.len() == 1;
        one.then_some(()).with_context(|| format!("{changed:?}"))
    });
    checks.check(
        "it leads from Kubernetes through the controller to both agents, each part below its own",
        trace.check_change(&Node::ALL.map(Node::name)),
    );
    checks.check(
        "every part lies within what it is a part of",
        trace.check_shape(),
    );
    checks.check(
        "the trace has the time of both kernels phase by phase",
        steps(trace),
    );
    let logged = named_in_logs(scene, trace);
    checks.check("the logs of both agents name the trace", logged);
    Ok(())
}

/// Waits until both kernels send new connections of the Service to `count` pods.
fn wait_taken(
    stage: &Stage,
    scene: &mut Scene<'_>,
    kernels: &BTreeMap<Node, Kernel>,
    count: usize,
) -> Result<()> {
    let taken = |kernel: &Kernel| kernel.takes.get().map_or(0, |(_, pods)| pods.len());
    let cluster = &mut scene.cluster;
    let waited = stage.waits.until(
        &format!("both kernels to send to {count} pods of cart"),
        FOLLOWS,
        LOOK_AGAIN,
        || {
            cluster.check_running()?;
            Ok(kernels
                .values()
                .all(|kernel| taken(kernel) == count)
                .then_some(()))
        },
        || {
            format!(
                "they send to {:?}",
                kernels.values().map(taken).collect::<Vec<_>>()
            )
        },
    );
    waited.map_err(|error| scene.cluster.with_logs(error))
}

/// The traces of changes of these objects that the controller saw since a moment, in their order. It
/// runs beside us, so its clock is ours.
fn since_then(jaeger: &Query, since: SystemTime, objects: &str) -> Result<Vec<Trace>> {
    let mut traces = jaeger.traces()?;
    traces.retain(|trace| {
        trace.changed().contains(objects) && trace.seen().is_some_and(|seen| seen >= since)
    });
    traces.sort_by_key(Trace::seen);
    Ok(traces)
}

/// The same, as soon as they are as wanted.
fn wait_traces(
    stage: &Stage,
    jaeger: &Query,
    since: SystemTime,
    objects: &str,
    wanted: impl Fn(&[Trace]) -> bool,
) -> Result<Vec<Trace>> {
    let mut last = Vec::new();
    let ask = || {
        last = since_then(jaeger, since, objects)?;
        Ok(wanted(&last).then(|| last.clone()))
    };
    let what = format!("Jaeger to have the traces of {objects}");
    let waited = stage
        .waits
        .until(&what, TRACED, ASK_AGAIN, ask, String::new);
    waited.with_context(|| format!("Jaeger has {last:?}"))
}

/// Fails unless each agent reports all steps for an endpoint, and that one endpoint was added.
fn steps(trace: &Trace) -> Result<()> {
    for node in Node::ALL.map(Node::name) {
        let apply = trace
            .named("apply")
            .find(|apply| trace.whose(apply).1 == Some(node));
        let apply = apply.with_context(|| format!("nothing was applied on {node}"))?;
        let parts: Vec<&Span> = trace.below(apply).collect();
        let names: Vec<_> = parts.iter().map(|part| &*part.name).collect();
        for step in STEPS {
            let count = names.iter().filter(|name| **name == step).count();
            ensure!(count == 1, "{node}: {count} of {step} in {names:?}");
        }
        let servers = parts.iter().find(|part| part.name == "add servers");
        let operations = servers.and_then(|servers| servers.tag("portolan.operations"));
        ensure!(operations == Some(&1.into()), "{node}: {servers:?}");
    }
    Ok(())
}

fn named_in_logs(scene: &Scene<'_>, trace: &Trace) -> Result<()> {
    for node in Node::ALL {
        let said = scene.cluster.said(node)?;
        let named = said.contains(&format!("trace_id={}", trace.id));
        ensure!(named, "{}: {said}", node.name());
    }
    Ok(())
}

/// Three changes, each planned by itself, while an agent stands still: it gets the first, then the two
/// others as one.
fn together(
    stage: &Stage,
    checks: &mut Checks,
    scene: &mut Scene<'_>,
    jaeger: &Query,
) -> Result<()> {
    let console = stage.console;
    console.heading("Three changes while node-b's agent stands still: two of them go together");
    let since = SystemTime::now();
    scene.cluster.pause_agent(Node::B)?;
    for scheduler in SCHEDULERS {
        let before = scene.cluster.applied(Node::A)?.len();
        let annotation = format!("proxy.portolan.dev/scheduler={scheduler}");
        let command = format!("annotate --overwrite service cart {annotation}");
        scene.kubectl.show(&command)?;
        // Once node-a has it, it is a version of its own.
        scene.cluster.wait_applied(Node::A, before)?;
    }
    scene.cluster.resume_agent(Node::B)?;
    let all = |traces: &[Trace]| traces.len() == SCHEDULERS.len();
    let found = wait_traces(stage, jaeger, since, "Service default/cart", all);
    let traces = found.map_err(|error| scene.cluster.with_logs(error))?;
    let mut table = Table::new(["TRACE", "NODE-A HAS IT after ms", "NODE-B", "GOT IT"]);
    for trace in &traces {
        table.row(row(trace)?);
    }
    console.table(&table);
    let linked = || match &*traces {
        [first, second, third] => {
            traces.iter().try_for_each(Trace::check_shape)?;
            let alone = first.delivery(Node::B.name())?.links().next().is_none();
            ensure!(alone, "the first went with another: {first:?}");
            second.check_took_along(third, Node::B.name())
        }
        other => anyhow::bail!("{} traces", other.len()),
    };
    let what = "two changes that went to a node together are two traces, linked both ways";
    checks.check(what, linked());
    Ok(())
}

/// When which node had it, and how.
fn row(trace: &Trace) -> Result<[String; 4]> {
    let start = trace.root()?.start_time;
    let after = |node: Node| {
        let end = trace.delivery(node.name())?.end();
        Ok::<_, anyhow::Error>(format!("{:.1}", end.saturating_sub(start) as f64 / 1000.0))
    };
    let delivery = trace.delivery(Node::B.name())?;
    let how = match (delivery.links().next(), trace.below(delivery).next()) {
        (None, _) => "by itself".to_owned(),
        (Some((other, _)), Some(_)) => format!("with {other}"),
        (Some((other, _)), None) => format!("in the batch of {other}"),
    };
    Ok([trace.id.clone(), after(Node::A)?, after(Node::B)?, how])
}
