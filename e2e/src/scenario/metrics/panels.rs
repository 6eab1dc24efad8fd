//! Every panel of the dashboard, queried from a Prometheus that has scraped real programs.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Checks, Lab, OF_IPVS, has_packets};
use crate::prometheus::Series;
use crate::waits::LATER;

/// Values of Grafana's variables.
const VARIABLES: [(&str, &str); 4] = [
    ("$__rate_interval", "5m"),
    ("$__range", "5m"),
    ("$instance", ".*"),
    ("$node", ".*"),
];

/// Panels without data while there is no failure, no agent leaves, no UDP endpoint changes, and the cluster comes
/// from manifests, whose changes have no timestamps.
const QUIET: [&str; 8] = [
    "As nodes measure it",
    "Stale UDP flow search",
    "Time since the last pass",
    "Failing operations",
    "Closed ports",
    "Drift unrepaired",
    "Draining addresses",
    "Streams refused",
];

/// A panel and what it draws.
struct Panel {
    title: String,
    expressions: Vec<String>,
}

pub(super) fn drawn(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("the dashboard");
    let path = lab
        .stage
        .files
        .beside("charts/portolan/monitoring/dashboard.json")?;
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let dashboard: Value = serde_json::from_str(&text).context("the dashboard is no JSON")?;
    let panels = panels(&dashboard);
    ensure!(
        panels.len() > 10,
        "only {} panels have queries",
        panels.len()
    );
    for panel in panels {
        let what = format!("panel {:?} has data", panel.title);
        let of_ipvs = |expression: &String| OF_IPVS.iter().any(|name| expression.contains(name));
        let lacking = !has_packets(lab) && panel.expressions.iter().all(of_ipvs);
        let seldom = lacking || QUIET.contains(&&*panel.title);
        let found = lab.eventually(&what, LATER, || {
            for expression in &panel.expressions {
                let series = lab.state.query(&filled(expression))?;
                let values = series
                    .iter()
                    .map(Series::value)
                    .collect::<Result<Vec<_>>>()?;
                let found = values.iter().any(|value| !value.is_nan());
                ensure!(found || seldom, "{expression} has no result, or no number");
            }
            Ok(())
        });
        checks.check(&what, found);
    }
    Ok(())
}

fn filled(expression: &str) -> String {
    let fill = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
    VARIABLES.iter().fold(expression.to_owned(), fill)
}

/// All panels that have expressions, those within rows too.
fn panels(of: &Value) -> Vec<Panel> {
    let below = of["panels"].as_array().into_iter().flatten();
    let mut all = Vec::new();
    for panel in below {
        let targets = panel["targets"].as_array().into_iter().flatten();
        let expressions: Vec<_> = targets
            .filter_map(|target| target["expr"].as_str().map(str::to_owned))
            .collect();
        if !expressions.is_empty() {
            all.push(Panel {
                title: panel["title"].as_str().unwrap_or_default().to_owned(),
                expressions,
            });
        }
        all.extend(panels(panel));
    }
    all
}
