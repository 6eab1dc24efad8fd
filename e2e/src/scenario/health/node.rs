//! The node's own health and metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::{
    Checks, HEALTHZ, Lab, METRICS, NODE, PERIOD, Says, ask_node, ask_port, balancer, says,
    settings, types,
};
use crate::files::CLUSTER;
use crate::program::Program;
use crate::topology::world::{Family, Resident};
use crate::traffic::http::Response;
use crate::waits::{self, LATER, SOON};

/// Names and types of all metrics, from the snapshot of the agent's own test.
const NAMES: &str = include_str!("../../../../node-agent/tests/health/metrics.txt");
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// From a taint to the answer (S-154).
const TAINT: Duration = Duration::from_secs(2);
/// Any rule that iptables cannot read.
const FOREIGN: &str = "ip filter FOREIGN fib daddr type local counter";

fn ensure_status(response: &Response, status: u16) -> Result<()> {
    ensure!(response.status == status, "{response:?}");
    Ok(())
}

/// Fails unless the node's own health port answers 200 at this path.
fn is_well(lab: &Lab<'_>, path: &str) -> Result<()> {
    ensure_status(&ask_node(lab, path)?, 200)
}

fn body(response: &Response) -> Result<Value> {
    serde_json::from_str(&response.body).with_context(|| response.body.clone())
}

/// The metrics port.
pub(super) fn metrics(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("metrics");
    let ask = |lab: &Lab<'_>, path| lab.get(Resident::Node(NODE), (LOOPBACK, METRICS).into(), path);
    let text = ask(lab, "/metrics")?.body;
    let (wanted, found) = (NAMES.lines().collect(), types(&text));
    checks.require(
        "the names of metrics are those that tools look for (S-207)",
        found == wanted,
        &format!("{:#?}", found.symmetric_difference(&wanted)),
    );
    checks.check("applied changes show in metrics (S-207)", {
        let nonzero = |series: &str| {
            let line = text.lines().find(|line| line.starts_with(series));
            let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            ensure!(
                value.is_some_and(|value| value > 0.0),
                "{series} in {line:?}"
            );
            Ok(())
        };
        [
            "portolan_operations_total",
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"}",
            "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            "kubeproxy_sync_proxy_rules_endpoint_changes_total{ip_family=\"IPv4\"}",
        ]
        .into_iter()
        .try_for_each(nonzero)
    });
    let mode = ask(lab, "/proxyMode")?;
    checks.check("tools can read that the mode is ipvs (S-208)", {
        ensure_is(&mode.body, "ipvs")
    });
    let outside: SocketAddr = (NODE.address(Family::IPv4), METRICS).into();
    let refused = lab.get(Resident::Outside, outside, "/metrics");
    checks.check("by default, only the node itself can read them (S-207)", {
        ensure_refused(refused)
    });
    Ok(())
}

fn ensure_is(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "{found:?}");
    Ok(())
}

fn ensure_refused(asked: Result<Response>) -> Result<()> {
    match asked {
        Ok(response) => Err(anyhow!("{response:?}")),
        Err(_) => Ok(()),
    }
}

/// A node that the autoscaler is about to remove.
pub(super) fn tainted(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a node that is about to go");
    checks.check(
        "a node with its plan in force is healthy (S-146)",
        is_well(lab, "/healthz"),
    );
    let nodes = lab.stage.files.text(CLUSTER[0])?;
    let range = "  podCIDR: 10.244.1.0/24\n";
    ensure!(nodes.contains(range), "the manifest of nodes is another");
    let taint =
        "  taints: [{key: ToBeDeletedByClusterAutoscaler, value: \"1\", effect: NoSchedule}]\n";
    let tainted = nodes.replace(range, &format!("{range}{taint}"));
    lab.write("nodes.yaml", &tainted)?;
    let turned = lab.within("/healthz to turn", TAINT, || {
        let response = ask_node(lab, "/healthz")?;
        ensure_status(&response, 503)?;
        let body = body(&response)?;
        ensure!(
            body["nodeEligible"] == false && body["healthy"] == true,
            "{body}"
        );
        Ok(())
    });
    checks.check(
        "/healthz of a node that is about to go turns within 2 s (S-149, S-154)",
        turned,
    );
    checks.check("its /livez does not (S-150)", is_well(lab, "/livez"));
    checks.check("its health check ports do not (S-140)", in_force(lab));
    checks.check("it forwards traffic as before (S-153)", {
        Family::ALL
            .into_iter()
            .try_for_each(|family| forwards(lab, family))
    });
    lab.write("nodes.yaml", &nodes)?;
    let back = lab.eventually("/healthz to turn back", SOON, || is_well(lab, "/healthz"));
    checks.check("/healthz turns back with the taint (S-149)", back);
    Ok(())
}

fn in_force(lab: &Lab<'_>) -> Result<()> {
    let wanted = Says {
        status: 200,
        count: 2,
        healthy: true,
    };
    says(&ask_port(lab, Family::IPv4)?, wanted)
}

fn forwards(lab: &Lab<'_>, family: Family) -> Result<()> {
    lab.answered(Resident::Outside, (balancer(family), 80).into())
        .map(drop)
}

/// No controller sends plans.
pub(super) fn without_controller(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("without a controller");
    lab.cluster.kill_controller()?;
    // Longer than a node may be late.
    waits::sleep_until(Instant::now() + PERIOD * 3)?;
    checks.check(
        "without a controller health check ports answer as before (S-145)",
        in_force(lab),
    );
    checks.check(
        "without a controller the node stays healthy (S-147)",
        is_well(lab, "/healthz"),
    );
    lab.cluster.start_controller()
}

/// A failure that lasts longer than allowed.
pub(super) fn late(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a failure that lasts");
    let began = Instant::now();
    lab.tool(NODE, Program::Nft, "add chain ip filter FOREIGN")?;
    lab.tool(NODE, Program::Nft, &format!("add rule {FOREIGN}"))?;
    let turned = lab.eventually("/livez to turn", PERIOD * 3 + SOON, || {
        let response = ask_node(lab, "/livez")?;
        ensure_status(&response, 503)?;
        let body = body(&response)?;
        let status = &body["status"];
        let right = status["IPv4"]["healthy"] == false && status["IPv6"]["healthy"] == true;
        ensure!(right && body["healthy"] == false, "{body}");
        Ok(())
    });
    let took = began.elapsed();
    checks.check(
        "a failure that lasts makes its family late, and the node unhealthy (S-147, S-169)",
        {
            turned.and_then(|()| {
                ensure!(took >= PERIOD * 2, "already after {took:?}");
                Ok(())
            })
        },
    );
    checks.check(
        "health check ports report that, and still count endpoints (S-138, S-145)",
        {
            let wanted = Says {
                status: 503,
                count: 2,
                healthy: false,
            };
            let response = ask_port(lab, Family::IPv4);
            response.and_then(|response| says(&response, wanted))
        },
    );
    checks.check("clients are served meanwhile (S-169)", {
        Family::ALL
            .into_iter()
            .try_for_each(|family| forwards(lab, family))
    });
    lab.tool(NODE, Program::Nft, "flush chain ip filter FOREIGN")?;
    lab.tool(NODE, Program::Nft, "delete chain ip filter FOREIGN")?;
    let healed = lab.eventually("/livez to turn back", LATER + SOON, || {
        is_well(lab, "/livez")?;
        in_force(lab)
    });
    checks.check("it is healthy again by itself (S-169)", healed);
    Ok(())
}

/// The settings move the node's own ports.
pub(super) fn moved(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    const HEALTHZ_MOVED: u16 = 10_356;
    const METRICS_MOVED: u16 = 10_349;
    lab.heading("settings that move the node's ports");
    let text = settings(HEALTHZ_MOVED, METRICS_MOVED);
    lab.write("settings.yaml", &text)?;
    for family in Family::ALL {
        let what = format!("the node's health answers on its new port over {family} (S-146)");
        let answered = lab.eventually(&what, SOON, || {
            let target = (NODE.address(family), HEALTHZ_MOVED).into();
            ensure_status(&lab.get(Resident::Outside, target, "/healthz")?, 200)
        });
        checks.check(&what, answered);
    }
    let answered = lab.eventually("metrics on their new port", SOON, || {
        let target = (LOOPBACK, METRICS_MOVED).into();
        ensure_status(&lab.get(Resident::Node(NODE), target, "/metrics")?, 200)
    });
    checks.check("metrics are read at their new port (S-207)", answered);
    let old: SocketAddr = (NODE.address(Family::IPv4), HEALTHZ).into();
    let gone = lab.get(Resident::Outside, old, "/healthz");
    checks.check("the old port does not answer (S-146)", ensure_refused(gone));
    Ok(())
}
