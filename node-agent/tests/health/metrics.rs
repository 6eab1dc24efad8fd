//! The metrics port.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use portolan_agent::health::Changes;
use portolan_agent::metrics::{Metrics, Sources};
use portolan_agent::programmer::{Applied, FlowCounter, FlowCounters};
use portolan_agent::traffic::{Traffic, TrafficTotals};
use portolan_plan::Family;
use tokio::sync::watch;

use super::node::{TestNode, ask, ask_until};

/// The names and types of all metrics, one per line.
const NAMES: &str = include_str!("metrics.txt");

async fn get(node: &TestNode, path: &str) -> String {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), node.settings.metrics.port);
    let request = format!("GET {path} HTTP/1.1");
    let answer = ask_until(address, &request, |answer| answer.is_ok()).await;
    answer.unwrap()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(series));
    let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn metrics_have_the_expected_names_and_types() {
    let node = TestNode::start().await;
    node.passes(1, &[]);
    node.open();
    let answer = get(&node, "/metrics").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let types = body(&answer)
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let found: BTreeSet<_> = types.collect();
    let wanted: BTreeSet<_> = NAMES.lines().collect();
    assert_eq!(found, wanted, "S-207");
}

#[tokio::test]
async fn events_are_counted() {
    let node = TestNode::start().await;
    node.set_second(7);
    let changes = Changes {
        services: 2,
        ipv4: 3,
        ipv6: 0,
        triggered: vec![Duration::from_secs(1_767_225_600 + 4)],
    };
    node.health.queued(1, changes.clone());
    node.passes(1, &[Family::Ipv6]);
    node.health.queued(2, changes);
    node.open();
    let healthz = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), node.settings.healthz.port);
    for request in [
        "GET /healthz HTTP/1.1",
        "GET /livez HTTP/1.1",
        "GET /livez HTTP/1.1",
    ] {
        drop(ask_until(healthz, request, |answer| answer.is_ok()).await);
    }
    let answer = get(&node, "/metrics").await;
    let value = |series: &str| value(body(&answer), series);
    assert!(
        (value(r#"kubeproxy_proxy_healthz_total{code="503"}"#) - 1.0).abs() < 0.1,
        "S-152"
    );
    assert!(
        (value(r#"kubeproxy_proxy_livez_total{code="503"}"#) - 2.0).abs() < 0.1,
        "S-152"
    );
    let sync = |name: &str, family| {
        value(&format!(
            "kubeproxy_sync_proxy_rules_{name}{{ip_family=\"{family}\"}}"
        ))
    };
    let second = 1_767_225_600.0 + 7.0;
    assert!((sync("last_timestamp_seconds", "IPv4") - second).abs() < 0.1);
    assert!(sync("last_timestamp_seconds", "IPv6").abs() < 0.1);
    assert!((sync("last_queued_timestamp_seconds", "IPv6") - second).abs() < 0.1);
    assert!((sync("service_changes_total", "IPv6") - 4.0).abs() < 0.1);
    assert!((sync("service_changes_pending", "IPv6") - 2.0).abs() < 0.1);
    assert!((sync("endpoint_changes_total", "IPv4") - 6.0).abs() < 0.1);
    assert!((sync("endpoint_changes_pending", "IPv6")).abs() < 0.1);
    assert!((sync("duration_seconds_count", "IPv4") - 1.0).abs() < 0.1);
    let programming = |of: &str, family| {
        value(&format!(
            "kubeproxy_network_programming_duration_seconds_{of}{{ip_family=\"{family}\"}}"
        ))
    };
    assert!((programming("count", "IPv4") - 1.0).abs() < 0.1, "S-187");
    assert!((programming("sum", "IPv4") - 3.0).abs() < 0.1, "S-187");
    assert!(
        programming("count", "IPv6").abs() < 0.1,
        "IPv6 failed, and pending changes are not applied"
    );
}

#[tokio::test]
async fn a_change_that_is_recorded_after_its_pass_is_not_newer_than_the_pass() {
    let node = TestNode::start().await;
    node.set_second(7);
    node.passes(5, &[Family::Ipv6]);
    node.set_second(8);
    node.health.queued(5, Changes::default());
    node.open();
    let answer = get(&node, "/metrics").await;
    let of = |name: &str, family| {
        let series = format!(
            "kubeproxy_sync_proxy_rules_{name}_timestamp_seconds{{ip_family=\"{family}\"}}"
        );
        value(body(&answer), &series)
    };
    assert!(of("last_queued", "IPv4") <= of("last", "IPv4"), "{answer}");
    assert!(
        of("last_queued", "IPv6") > of("last", "IPv6"),
        "it failed there"
    );
}

/// S-133.
#[tokio::test]
async fn the_duration_of_flow_cleanups_is_reported_by_family() {
    let node = TestNode::start().await;
    node.passes(1, &[]);
    let counter = FlowCounter {
        cleanups: 3,
        deleted: 5,
        took: Duration::from_millis(250),
        ..FlowCounter::default()
    };
    node.open_with([(Family::Ipv6, counter)].into());
    let answer = get(&node, "/metrics").await;
    let of = |name: &str| {
        value(
            body(&answer),
            &format!("kubeproxy_conntrack_reconciler_{name}"),
        )
    };
    assert!((of("deleted_entries_total{ip_family=\"IPv6\"}") - 5.0).abs() < 0.1);
    assert!(of("deleted_entries_total{ip_family=\"IPv4\"}").abs() < 0.1);
    let seconds = "sync_duration_seconds";
    assert!((of(&format!("{seconds}_sum{{ip_family=\"IPv6\"}}")) - 0.25).abs() < 0.001);
    assert!((of(&format!("{seconds}_count{{ip_family=\"IPv6\"}}")) - 3.0).abs() < 0.1);
    assert!(
        body(&answer).contains("_bucket{le=\"+Inf\",ip_family=\"IPv6\"} 3\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_metrics_port_serves_the_proxy_mode_and_the_settings() {
    let node = TestNode::start().await;
    node.passes(1, &[]);
    node.open();
    assert_eq!(body(&get(&node, "/proxyMode").await), "ipvs", "S-208");
    assert_eq!(body(&get(&node, "/healthz").await), "ok");
    let settings: portolan_plan::Settings =
        serde_json::from_str(body(&get(&node, "/configz").await)).unwrap();
    assert_eq!(settings, node.settings);
    assert!(
        get(&node, "/debug/pprof")
            .await
            .starts_with("HTTP/1.1 404 ")
    );
    let health = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), node.settings.healthz.port);
    assert!(
        ask(health, "GET /metrics HTTP/1.1")
            .await
            .unwrap()
            .starts_with("HTTP/1.1 404 ")
    );
}

/// Metrics of a node without any events.
fn metrics_of(traffic: Option<TrafficTotals>) -> Metrics {
    Metrics::new(Sources {
        health: super::node::health().0,
        applied: watch::channel(Applied::default()).1,
        flows: watch::channel(FlowCounters::new()).1,
        draining: watch::channel(BTreeSet::new()).1,
        traffic: traffic.map(|totals| watch::channel(Arc::new(totals)).1),
    })
}

#[test]
fn the_document_lists_every_metric() {
    let table = metrics_of(Some(TrafficTotals::default()))
        .document()
        .unwrap();
    let document = include_str!("../../../docs/reference/agent-metrics.md");
    let is_current = document.ends_with(&table);
    assert!(
        is_current,
        "docs/reference/agent-metrics.md should end with:\n{table}"
    );
}

#[tokio::test]
async fn clients_that_accept_openmetrics_get_it() {
    let node = TestNode::start().await;
    node.passes(1, &[]);
    node.open();
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), node.settings.metrics.port);
    let request =
        "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1";
    let answer = ask_until(address, request, |answer| answer.is_ok()).await;
    let answer = answer.unwrap();
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(answer.contains(kind), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn traffic_is_reported_by_service_and_as_a_sum_of_the_rest() {
    let carried = |connections| Traffic {
        connections,
        packets_in: 2,
        packets_out: 3,
        bytes_in: 4,
        bytes_out: 5,
    };
    let totals = TrafficTotals {
        services: [(super::node::service("web"), carried(7))].into(),
        others: carried(1),
        connections_only: false,
    };
    let lines = |totals| {
        let page = metrics_of(Some(totals)).page().unwrap();
        let mut lines: Vec<_> = page.lines().collect();
        lines.retain(|line| line.starts_with("portolan_service"));
        lines.join("\n")
    };
    insta::assert_snapshot!(lines(totals.clone()), @r#"
    portolan_service_connections_total{namespace="shop",service="web"} 7
    portolan_service_connections_total{namespace="",service="(others)"} 1
    portolan_service_packets_total{namespace="shop",service="web",direction="in"} 2
    portolan_service_packets_total{namespace="shop",service="web",direction="out"} 3
    portolan_service_packets_total{namespace="",service="(others)",direction="in"} 2
    portolan_service_packets_total{namespace="",service="(others)",direction="out"} 3
    portolan_service_bytes_total{namespace="shop",service="web",direction="in"} 4
    portolan_service_bytes_total{namespace="shop",service="web",direction="out"} 5
    portolan_service_bytes_total{namespace="",service="(others)",direction="in"} 4
    portolan_service_bytes_total{namespace="",service="(others)",direction="out"} 5
    "#);
    let connections_only = TrafficTotals {
        connections_only: true,
        ..totals
    };
    insta::assert_snapshot!(lines(connections_only), @r#"
    portolan_service_connections_total{namespace="shop",service="web"} 7
    portolan_service_connections_total{namespace="",service="(others)"} 1
    "#);
    assert!(
        !metrics_of(None)
            .page()
            .unwrap()
            .contains("portolan_service")
    );
}
