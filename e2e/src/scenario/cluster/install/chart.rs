//! The chart: rendering without a cluster, and validation of the result by an API server.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::printed;
use super::super::release::{NAMESPACE, RELEASE};
use super::alerts;
use super::lab::Lab;
use crate::checks::Checks;
use crate::program::Program;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::work_folder::WorkFolder;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "chart",
    shows: "the chart as helm renders it without a cluster: its values, and alerts that fire when they should",
    run,
};

/// The required values.
const LEAST: [&str; 4] = [
    "--set",
    "image.repository=registry.example.com/portolan",
    "--set",
    "apiServer.host=10.0.0.5",
];
const NETWORKS: [&str; 8] = [
    "node-cidr",
    "flannel",
    "kubenet",
    "kindnet",
    "calico",
    "cilium",
    "aws-vpc",
    "custom",
];

/// The value that the network `custom` needs.
const CUSTOM: &str = "config.spec.settings.localDetection.mode=NodeCIDR";

/// Values in documents.
const EXAMPLES: [&str; 1] = ["docs/examples/values-production.yaml"];

/// Table of values and the expected result.
const VALUES: &str = "api/chart/values.yaml";

/// A row of that table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    what: String,
    values: Value,
    refused: Option<String>,
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
}

impl Row {
    /// Renders the chart with these values and the required ones.
    fn show(&self, chart: &str, folder: &WorkFolder) -> Result<()> {
        let least = json!({
            "image": {"repository": "registry.example.com/portolan"}, "apiServer": {"host": "10.0.0.5"},
        });
        let mut words = Vec::new();
        for (name, values) in [("least.yaml", &least), ("values.yaml", &self.values)] {
            let file = folder.path.join(name);
            std::fs::write(&file, values.to_string())?;
            words.extend(["--values".to_owned(), file.display().to_string()]);
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let rendered = render(chart, &words);
        match (&self.refused, rendered) {
            (Some(_), Ok(_)) => bail!("the chart was rendered, expected an error"),
            (None, rendered) => self.compare(&rendered?),
            (Some(says), Err(error)) if format!("{error:#}").contains(says) => Ok(()),
            (Some(says), Err(error)) => Err(error.context(format!("{says:?} is not in it"))),
        }
    }

    fn compare(&self, rendered: &str) -> Result<()> {
        ensure!(
            !(self.has.is_empty() && self.lacks.is_empty()),
            "the row expects nothing"
        );
        for text in &self.has {
            ensure!(rendered.contains(text), "{text:?} is not in it");
        }
        for text in &self.lacks {
            ensure!(!rendered.contains(text), "{text:?} is in it");
        }
        Ok(())
    }
}

/// Values without kinds of prometheus-operator, which an API server without its CRDs rejects. The snapshot covers
/// them, and `promtool` checks and tests the rules.
const NO_OPERATOR: [&str; 4] = [
    "--set",
    "monitoring.rules=false",
    "--set",
    "monitoring.podMonitors=false",
];

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let chart = &stage.files.beside("charts/portolan")?;
    let path = chart.display().to_string();
    let full = stage.files.beside("e2e/api/chart/full-values.yaml")?;
    let full = full.display().to_string();
    for values in [&LEAST[..], &["--values", &full]] {
        let lint = Program::Helm.run(&[&["lint", "--strict", &path][..], values].concat());
        checks.check(
            &format!("helm lint {}", values[0]),
            lint.and_then(|said| {
                ensure!(!said.contains("[WARNING]"), "{said}");
                Ok(())
            }),
        );
    }
    for (values, file) in [(&LEAST[..], "minimal"), (&["--values", &full], "full")] {
        let rendered = render(&path, values);
        let wanted = stage.files.text(&format!("api/chart/{file}.yaml"))?;
        checks.check(
            &format!("helm template matches the checked-in file: {file}"),
            rendered.and_then(|text| printed::compare(&text, &wanted)),
        );
    }
    for file in EXAMPLES {
        let values = stage.files.beside(file)?;
        let values = values.display().to_string();
        let words = ["lint", "--strict", &path, "--values", &values];
        let lint = Program::Helm.run(&words);
        checks.check(
            &format!("helm accepts {file}"),
            lint.and_then(|_| render(&path, &["--values", &values]).map(drop)),
        );
    }
    let folder = WorkFolder::private()?;
    let rows: Vec<Row> = serde_saphyr::from_str(&stage.files.text(VALUES)?)?;
    for row in rows {
        checks.check(&row.what, row.show(&path, &folder));
    }
    checks.check("CRDs can be left out of the chart", definitions(&path));
    let rendered = render(&path, &["--values", &full])?;
    alerts::run(stage, chart, &rendered, checks)
}

/// An install has all CRDs, or none.
fn definitions(chart: &str) -> Result<()> {
    for (more, wanted) in [(&[][..], 3), (&["--set", "crds.enabled=false"], 0)] {
        let rendered = render(chart, &[&LEAST[..], &["--include-crds"], more].concat())?;
        let lines = rendered.lines();
        let found = lines.filter(|line| *line == "kind: CustomResourceDefinition");
        let found = found.count();
        ensure!(found == wanted, "{more:?}: {found} definitions");
    }
    Ok(())
}

/// Manifests, as helm renders them without asking any cluster.
fn render(chart: &str, values: &[&str]) -> Result<String> {
    let words = [
        "template",
        RELEASE,
        chart,
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.36.3",
    ];
    Program::Helm.run(&[&words, values].concat())
}

/// An API server with the CRDs accepts everything that the chart can render.
pub(super) fn validate(lab: &Lab<'_>) -> Result<()> {
    let path = lab.chart.display().to_string();
    let full = lab.stage.files.beside("e2e/api/chart/full-values.yaml")?;
    let full = full.display().to_string();
    let dry = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "--field-manager=helm",
        "-f",
        "-",
    ];
    let all = render(&path, &[&["--values", &full][..], &NO_OPERATOR].concat())?;
    lab.plane.kubectl_with_input(&dry, &all)?;
    for network in NETWORKS {
        let cni = format!("cni={network}");
        let more = ["--set", &cni, "--show-only", "templates/config.yaml"];
        let own: &[&str] = match network {
            "custom" => &["--set", CUSTOM],
            _ => &[],
        };
        let config = render(&path, &[&LEAST[..], &more, own].concat())?;
        lab.plane.kubectl_with_input(&dry, &config).context(cni)?;
    }
    for values in [&LEAST[..], &["--values", &full]] {
        let more = ["--show-only", "templates/agents.yaml"];
        let map = render(&path, &[values, &more].concat())?;
        let map: Value = serde_saphyr::from_str(&map)?;
        let set = map["data"]["daemonset.yaml"].as_str();
        let set = set.context("there is no daemonset.yaml")?;
        lab.plane.kubectl_with_input(&dry, set)?;
    }
    Ok(())
}
