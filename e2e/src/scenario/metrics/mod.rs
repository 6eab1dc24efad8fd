//! A real Prometheus beside real agents and a controller: it scrapes both, evaluates the alerts of the chart, and has
//! data for every panel of the dashboard.

mod panels;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::dataplane::Dataplane;
use crate::files::CLUSTER;
use crate::harness::{self, proxy_config};
use crate::program::Program;
use crate::prometheus::Prometheus;
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::waits::LATER;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "metrics",
    shows: "Prometheus scrapes controller and agents, evaluates the chart's alerts and fills its \
        dashboard",
    run,
};

/// The pages of both programs, as their documents have them.
const CONTROLLER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_271);
const AGENT: u16 = 10_249;
const DOCUMENTS: [(&str, &str); 2] = [
    (
        "controller",
        include_str!("../../../../docs/reference/controller-metrics.md"),
    ),
    (
        "agents",
        include_str!("../../../../docs/reference/agent-metrics.md"),
    ),
];
/// The controller of this scenario reads files and watches nothing, so this has no value.
const OF_WATCHES: &str = "portolan_controller_objects_age_seconds";
/// kube-proxy calls a gauge so.
const NAMED_BY_OTHERS: &str = "kubeproxy_sync_proxy_rules_no_local_endpoints_total non-counter \
                               metrics should not have \"_total\" suffix";
/// No collector receives the traces here.
const EXPECTED: &str = "PortolanTraceExportsFailing";
/// IPv4 addresses of two Services, and the number of connections to each.
const WEB: (&str, u16, u32) = ("10.96.0.10", 80, 30);
const LEGACY: (&str, u16, u32) = ("10.96.0.20", 8000, 7);

const SETTINGS: [&str; 2] = ["sync: {period: 2s}", "metrics: {bindAddress: 0.0.0.0}"];

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

/// Metrics that nftables does not have: its rules see only the first packet of a connection.
const OF_IPVS: [&str; 2] = [
    "portolan_service_packets_total",
    "portolan_service_bytes_total",
];

type Lab<'a> = harness::Lab<'a, Prometheus>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = harness::Lab::new(stage, Network::Routed)?;
    lab.serve_pods()?;
    lab.add_files(CLUSTER)?;
    lab.write("settings.yaml", &proxy_config(&SETTINGS))?;
    // No collector receives the traces; they only give the histograms their exemplars.
    let traces = ["--traces", "http://127.0.0.1:9", "--traces-share", "1"];
    lab.cluster
        .start_controller_at(Resident::Outside, &traces)?;
    for node in Node::ALL {
        lab.cluster
            .start_agent_with(node, &["--service-metrics", "1"])?;
        lab.cluster.wait_applied(node, 0)?;
    }
    let folder = lab.cluster.beside("prometheus");
    let outside = lab.topology.of(Resident::Outside)?.clone();
    let prometheus = Prometheus::start(outside, stage.waits, &folder, &configuration(stage)?)?;
    lab.with(prometheus).run_parts(
        checks,
        &[
            ("pages", pages),
            ("scraped metrics", scraped),
            ("traffic", traffic),
            ("rules", rules),
            ("panels", panels::drawn),
        ],
    )
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

fn page(lab: &Lab<'_>, target: SocketAddr) -> Result<String> {
    let page = lab.get(Resident::Outside, target, "/metrics")?;
    ensure!(page.status == 200, "{page:?}");
    Ok(page.body)
}

/// `promtool check metrics` of each page.
fn pages(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("promtool");
    let agents = Node::ALL.map(|node| {
        let address = SocketAddr::new(node.address(Family::IPv4), AGENT);
        (node.name(), address, &[NAMED_BY_OTHERS][..])
    });
    let all = agents
        .into_iter()
        .chain([("the controller", CONTROLLER, &[][..])]);
    for (whose, target, known) in all {
        let page = page(lab, target)?;
        let said = Program::Promtool.try_with_input(&["check", "metrics"], &page)?;
        let remarks: Vec<_> = said.errors.lines().chain(said.output.lines()).collect();
        let what = format!("metrics of {whose} are as Prometheus wants them");
        let right = remarks == known && said.status.success() == known.is_empty();
        checks.require(&what, right, &format!("{remarks:#?} of {page}"));
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

fn scraped(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("the content of Prometheus");
    let up = lab.eventually(
        "Prometheus scrapes the controller and both agents",
        LATER,
        || {
            let up = lab.state.value("sum(up)")?;
            ensure!((up - 3.0).abs() < 0.1, "{up} of 3 are up");
            Ok(())
        },
    );
    checks.check(
        "Prometheus scrapes the controller and both agents (S-207)",
        up,
    );
    let names = lab.state.names()?;
    for (whose, document) in DOCUMENTS {
        let missing: Vec<_> = documented(document)
            .into_iter()
            .filter(|name| name != OF_WATCHES && !names.contains(name))
            .filter(|name| has_packets(lab) || !OF_IPVS.contains(&&**name))
            .collect();
        checks.require(
            &format!("it has every metric in the document of {whose}"),
            missing.is_empty(),
            &format!("not {missing:?}"),
        );
    }
    let texts = [
        (
            "nodes have the newest plans in force",
            "portolan_controller_nodes_in_force",
            2.0,
        ),
        (
            "agents report both families",
            "count(kubeproxy_sync_proxy_rules_last_timestamp_seconds > 0)",
            4.0,
        ),
    ];
    for (what, expression, wanted) in texts {
        let seen = lab.eventually(what, LATER, || {
            let value = lab.state.value(expression)?;
            ensure!((value - wanted).abs() < 0.1, "{expression} is {value}");
            Ok(())
        });
        checks.check(what, seen);
    }
    Ok(())
}

/// Whether the dataplane counts packets and bytes of Services.
fn has_packets(lab: &Lab<'_>) -> bool {
    lab.stage.dataplane == Dataplane::Ipvs
}

/// Traffic of two Services, of which one has its own metrics.
fn traffic(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("traffic by Service");
    let client = Pod::all().next().context("no pod")?;
    let node = client.node.name();
    for (address, port, count) in [WEB, LEGACY] {
        let target: SocketAddr = (address.parse::<IpAddr>()?, port).into();
        for _ in 0..count {
            lab.answered(Resident::Pod(client), target)?;
        }
        let whose = match port {
            80 => "namespace=\"shop\",service=\"web\"",
            _ => "namespace=\"\",service=\"(others)\"",
        };
        let what = format!("all {count} connections of {target} are counted, with {{{whose}}}");
        let seen = lab.eventually(&what, LATER, || {
            let of = |metric: &str, more: &str| {
                let series =
                    format!("portolan_service_{metric}_total{{node=\"{node}\",{whose}{more}}}");
                lab.state.value(&series)
            };
            let connections = of("connections", "")?;
            ensure!(
                (connections - f64::from(count)).abs() < 0.1,
                "{connections}"
            );
            if !has_packets(lab) {
                let names = lab.state.names()?;
                let other = OF_IPVS.iter().find(|name| names.contains(**name));
                ensure!(other.is_none(), "there is {other:?}");
                return Ok(());
            }
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

/// The chart's rules, loaded by Prometheus itself. The only problem here is that traces cannot be exported.
fn rules(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("rules");
    lab.write("change.yaml", CHANGE)?;
    let evaluated = lab.eventually("rules are evaluated", LATER, || {
        let rules = lab.state.rules()?;
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
    let quiet = lab.eventually("only the expected alert", LATER, || {
        let rules = lab.state.rules()?.into_iter();
        let on = |state: &Option<String>| state.as_ref().is_some_and(|state| state != "inactive");
        let loud: Vec<_> = rules
            .filter(|rule| on(&rule.state))
            .map(|rule| rule.name)
            .collect();
        ensure!(loud == [EXPECTED], "{loud:?} fire");
        Ok(())
    });
    checks.check(
        "only the alert about lost traces fires: everything else is healthy",
        quiet,
    );
    let name = "portolan_controller_change_duration_seconds_bucket";
    let found = lab.eventually("an example of a change", LATER, || {
        let examples = lab.state.exemplars(name)?;
        let example = examples
            .iter()
            .any(|series| series.to_string().contains("trace_id"));
        ensure!(example, "{examples:?}");
        Ok(())
    });
    checks.check(
        "histograms of changes have exemplars (OpenMetrics was scraped)",
        found,
    );
    Ok(())
}
