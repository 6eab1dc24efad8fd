//! A real Prometheus beside real agents and a controller: it reads both, alerts that come with the chart
//! are evaluated, and every panel of the dashboard finds what it draws.

mod panels;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::CLUSTER;
use crate::program::Program;
use crate::prometheus::Prometheus;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::client::{self, Outcome};
use crate::traffic::http;
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "metrics",
    shows: "Prometheus reads controller and agents, evaluates the chart's alerts and fills its dashboard",
    run,
};

/// The pages of both programs, as their documents have them.
const CONTROLLER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_271);
const AGENT: u16 = 10_249;
const DOCUMENTS: [(&str, &str); 2] = [
    (
        "controller",
        include_str!("../../../../controller/METRICS.md"),
    ),
    ("agents", include_str!("../../../../node-agent/METRICS.md")),
];
/// kube-proxy calls a gauge so.
const NAMED_BY_OTHERS: &str = "kubeproxy_sync_proxy_rules_no_local_endpoints_total non-counter \
                               metrics should not have \"_total\" suffix";
/// Nobody takes the traces here.
const EXPECTED: &str = "PortolanTraceExportsFailing";
/// Where two Services answer over IPv4, and how many connections each is given.
const WEB: (&str, u16, u32) = ("10.96.0.10", 80, 30);
const LEGACY: (&str, u16, u32) = ("10.96.0.20", 8000, 7);
/// Until Prometheus has seen something, on hardware.
const SEEN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(500);

const SETTINGS: &str = "
apiVersion: proxy.portolan.dev/v1alpha1
kind: ProxyConfig
metadata: {name: default}
spec:
  settings:
    sync: {period: 2s}
    metrics: {bindAddress: 0.0.0.0}
";

/// Something that happens: its trace is made.
const CHANGE: &str = "
apiVersion: v1
kind: Service
metadata: {name: new, namespace: shop}
spec:
  clusterIP: 10.96.0.99
  clusterIPs: [10.96.0.99]
  ports: [{name: http, protocol: TCP, port: 80, targetPort: 8080}]
";

/// The lab with what runs in it.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    prometheus: Prometheus<'lab>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let text = |name: &str| Ok((name.replace('/', "-"), stage.files.text(name)?));
    let mut texts = CLUSTER.map(text).into_iter().collect::<Result<Vec<_>>>()?;
    texts.push(("settings.yaml".to_owned(), SETTINGS.to_owned()));
    let mut cluster = Cluster::new(&topology, stage.waits, texts)?;
    // Nobody takes the traces; that they are made gives histograms their examples.
    let traces = ["--traces", "http://127.0.0.1:9", "--traces-share", "1"];
    cluster.start_controller_at(Resident::Outside, &traces)?;
    for node in Node::ALL {
        cluster.start_agent_with(node, &["--service-metrics", "1"])?;
        cluster.wait_applied(node, 0)?;
    }
    let folder = cluster.beside("prometheus");
    let outside = topology.of(Resident::Outside)?;
    let prometheus = Prometheus::start(outside, stage.waits, &folder, &configuration(stage)?)?;
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster,
        prometheus,
    };
    let parts: [fn(&mut Scene<'_>, &mut Checks) -> Result<()>; 5] =
        [pages, scraped, traffic, rules, panels::drawn];
    for part in parts {
        part(&mut scene, checks).map_err(|error| scene.cluster.with_logs(&error))?;
        scene.cluster.check_running()?;
    }
    Ok(())
}

fn configuration(stage: &Stage) -> Result<String> {
    let rules = stage
        .files
        .beside("charts/portolan/monitoring/rules.yaml")?;
    let agents = Node::ALL.map(|node| {
        let address = node.address(Family::IPv4);
        format!(
            "{{targets: ['{address}:{AGENT}'], labels: {{node: {}}}}}",
            node.name()
        )
    });
    Ok(format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         rule_files: ['{}']\nscrape_configs:\n\
         - {{job_name: portolan-controller, static_configs: [{{targets: ['{CONTROLLER}']}}]}}\n\
         - {{job_name: portolan-agent, static_configs: [{}]}}\n",
        rules.display(),
        agents.join(", ")
    ))
}

impl Scene<'_> {
    /// Waits until this succeeds; its last error is told.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> Result<()>) -> Result<()> {
        let (mut last, waits) = (String::new(), self.stage.waits);
        let ask = || {
            self.cluster.check_running()?;
            match holds(self) {
                Ok(()) => Ok(Some(())),
                Err(error) => {
                    last = format!("{error:#}");
                    Ok(None)
                }
            }
        };
        let waited = waits.until(what, SEEN, LOOK, ask, || "see below".to_owned());
        waited.map_err(|error| error.context(last))
    }

    fn page(&self, target: SocketAddr) -> Result<String> {
        let deadline = self.stage.waits.limit(Duration::from_secs(3));
        let outside = self.topology.of(Resident::Outside)?;
        let page = outside.inside(|| http::get(target, "/metrics", deadline))?;
        ensure!(page.status == 200, "{page:?}");
        Ok(page.body)
    }
}

/// `promtool check metrics` of each page.
fn pages(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("promtool");
    let agents = Node::ALL.map(|node| {
        let address = SocketAddr::new(node.address(Family::IPv4), AGENT);
        (node.name(), address, &[NAMED_BY_OTHERS][..])
    });
    let all = agents
        .into_iter()
        .chain([("the controller", CONTROLLER, &[][..])]);
    for (whose, target, known) in all {
        let page = scene.page(target)?;
        let said = Program::Promtool.try_with_input(&["check", "metrics"], &page)?;
        let remarks: Vec<_> = said.errors.lines().chain(said.output.lines()).collect();
        let what = format!("metrics of {whose} are as Prometheus wants them");
        checks.check(&what, {
            let right = remarks == known && said.status.success() == known.is_empty();
            right
                .then_some(())
                .with_context(|| format!("{remarks:#?} of {page}"))
        });
    }
    Ok(())
}

/// Names of metrics in a document, as series have them.
fn documented(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| {
        let (name, rest) = row.split_once("` | ")?;
        let histogram = rest.starts_with("histogram");
        Some(if histogram {
            format!("{name}_count")
        } else {
            name.to_owned()
        })
    });
    names.collect()
}

fn scraped(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("what Prometheus has");
    let up = scene.until("Prometheus reads the controller and both agents", |scene| {
        let up = scene.prometheus.value("sum(up)")?;
        ensure!((up - 3.0).abs() < 0.1, "{up} of 3 are up");
        Ok(())
    });
    checks.check(
        "Prometheus reads the controller and both agents (S-207)",
        up,
    );
    let names = scene.prometheus.names()?;
    for (whose, document) in DOCUMENTS {
        let missing: Vec<_> = documented(document)
            .into_iter()
            .filter(|name| !names.contains(name))
            .collect();
        checks.check(
            &format!("it has every metric in the document of {whose}"),
            {
                let complete = missing.is_empty();
                complete
                    .then_some(())
                    .with_context(|| format!("not {missing:?}"))
            },
        );
    }
    let texts = [
        (
            "nodes have the newest plans in force",
            "portolan_controller_nodes_in_force",
            2.0,
        ),
        (
            "agents tell of both families",
            "count(kubeproxy_sync_proxy_rules_last_timestamp_seconds > 0)",
            4.0,
        ),
    ];
    for (what, expression, wanted) in texts {
        let seen = scene.until(what, |scene| {
            let value = scene.prometheus.value(expression)?;
            ensure!((value - wanted).abs() < 0.1, "{expression} is {value}");
            Ok(())
        });
        checks.check(what, seen);
    }
    Ok(())
}

/// What clients of two Services did, of which one is told by name.
fn traffic(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("traffic by Service");
    let client = Pod::all().next().context("no pod")?;
    let node = client.node.name();
    let deadline = scene.stage.waits.limit(Duration::from_secs(3));
    for (address, port, count) in [WEB, LEGACY] {
        let target: SocketAddr = (address.parse::<IpAddr>()?, port).into();
        let namespace = scene.topology.of(Resident::Pod(client))?;
        for _ in 0..count {
            let outcome = namespace.inside(|| Ok(client::tcp(target, deadline).outcome))?;
            ensure!(
                matches!(outcome, Outcome::Answered { .. }),
                "{target}: {outcome}"
            );
        }
        let whose = match port {
            80 => "namespace=\"shop\",service=\"web\"",
            _ => "namespace=\"\",service=\"(others)\"",
        };
        let what = format!("all {count} connections of {target} are told, of {{{whose}}}");
        let seen = scene.until(&what, |scene| {
            let of = |metric: &str, more: &str| {
                let series =
                    format!("portolan_service_{metric}_total{{node=\"{node}\",{whose}{more}}}");
                scene.prometheus.value(&series)
            };
            let connections = of("connections", "")?;
            ensure!(
                (connections - f64::from(count)).abs() < 0.1,
                "{connections}"
            );
            let (packets, bytes) = (
                of("packets", ",direction=\"in\"")?,
                of("bytes", ",direction=\"out\"")?,
            );
            ensure!(
                packets > connections && bytes > packets,
                "{packets} packets, {bytes} bytes"
            );
            Ok(())
        });
        checks.check(&what, seen);
    }
    Ok(())
}

/// The chart's rules, loaded by Prometheus itself; nothing is wrong here but that nobody takes traces.
fn rules(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("rules");
    scene.cluster.write_manifest("change.yaml", CHANGE)?;
    let evaluated = scene.until("rules are evaluated", |scene| {
        let rules = scene.prometheus.rules()?;
        let bad = rules.iter().filter(|rule| rule.health != "ok");
        let bad: Vec<_> = bad.map(ToString::to_string).collect();
        ensure!(
            bad.is_empty() && !rules.is_empty(),
            "{bad:?} of {}",
            rules.len()
        );
        Ok(())
    });
    checks.check("every rule of the chart can be evaluated", evaluated);
    let quiet = scene.until("the alert that is meant, and no other", |scene| {
        let rules = scene.prometheus.rules()?.into_iter();
        let on = |state: &Option<String>| state.as_ref().is_some_and(|state| state != "inactive");
        let loud: Vec<_> = rules
            .filter(|rule| on(&rule.state))
            .map(|rule| rule.name)
            .collect();
        ensure!(loud == [EXPECTED], "{loud:?} are on");
        Ok(())
    });
    checks.check(
        "the alert about lost traces is on, and no other: all else is right",
        quiet,
    );
    let name = "portolan_controller_change_duration_seconds_bucket";
    let found = scene.until("an example of a change", |scene| {
        let examples = scene.prometheus.exemplars(name)?;
        let example = examples
            .iter()
            .any(|series| series.to_string().contains("trace_id"));
        ensure!(example, "{examples:?}");
        Ok(())
    });
    checks.check(
        "histograms of changes lead to traces (OpenMetrics was read)",
        found,
    );
    Ok(())
}
