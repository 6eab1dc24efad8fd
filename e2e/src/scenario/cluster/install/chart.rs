//! The chart without a cluster, and whether a cluster takes what comes out of it.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::printed;
use super::super::release::{NAMESPACE, RELEASE};
use super::alerts;
use super::lab::Lab;
use crate::program::Program;
use crate::scenario::{Checks, Stage};

/// The least that has to be given.
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

/// What `custom` needs.
const CUSTOM: &str = "config.spec.settings.localDetection.mode=NodeCIDR";

/// What is refused, and a word of the sentence that says why.
const REFUSED: [(&str, &[&str], &str); 9] = [
    (
        "no registry is guessed",
        &["apiServer.host=10.0.0.5"],
        "image.repository is required",
    ),
    (
        "no API server is guessed",
        &["image.repository=r/p"],
        "apiServer.host is required",
    ),
    (
        "an unknown value",
        &[
            "image.repository=r/p",
            "apiServer.host=a",
            "agents.nodeSelecter.a=b",
        ],
        "nodeSelecter",
    ),
    (
        "an unknown network",
        &["image.repository=r/p", "apiServer.host=a", "cni=weave"],
        "cni",
    ),
    (
        "a network of one's own without the way to tell pods",
        &["image.repository=r/p", "apiServer.host=a", "cni=custom"],
        "config.spec.settings.localDetection",
    ),
    (
        "a host with a scheme",
        &["image.repository=r/p", "apiServer.host=https://a"],
        "apiServer",
    ),
    (
        "a certificate without its authority",
        &[
            "image.repository=r/p",
            "apiServer.host=a",
            "tls.certificateSecret=cert",
        ],
        "tls.caConfigMap",
    ),
    (
        "scraping of controllers where nobody reaches them",
        &[
            "image.repository=r/p",
            "apiServer.host=a",
            "monitoring.podMonitors=true",
        ],
        "controller.adminAddress",
    ),
    (
        "scraping of agents where nobody reaches them",
        &[
            "image.repository=r/p",
            "apiServer.host=a",
            "monitoring.podMonitors=true",
            "controller.adminAddress=0.0.0.0",
        ],
        "config.spec.settings.metrics.bindAddress",
    ),
];

/// Without what only prometheus-operator knows: an API server without it refuses objects of such kinds. The
/// snapshot holds them, and `promtool` checks and tests the rules.
const NO_OPERATOR: [&str; 4] = [
    "--set",
    "monitoring.rules=false",
    "--set",
    "monitoring.podMonitors=false",
];

/// Everything for which no cluster is needed.
pub(super) fn run(stage: &Stage, chart: &Path, checks: &mut Checks) -> Result<()> {
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
            &format!("helm template is as checked in: {file}"),
            rendered.and_then(|text| printed::compare(&text, &wanted)),
        );
    }
    for (what, values, says) in REFUSED {
        let values: Vec<_> = values.iter().flat_map(|value| ["--set", *value]).collect();
        let refused = match render(&path, &values) {
            Ok(_) => Err(anyhow::anyhow!("it was rendered")),
            Err(error) if format!("{error:#}").contains(says) => Ok(()),
            Err(error) => Err(error.context(format!("{says:?} is not in it"))),
        };
        checks.check(&format!("refused: {what}"), refused);
    }
    let rendered = render(&path, &["--values", &full])?;
    alerts::run(stage, chart, &rendered, checks)
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

/// Everything that may come out of it is taken by an API server that knows the definitions.
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
        let map: serde_json::Value = serde_saphyr::from_str(&map)?;
        let set = map["data"]["daemonset.yaml"].as_str();
        let set = set.context("there is no daemonset.yaml")?;
        lab.plane.kubectl_with_input(&dry, set)?;
    }
    Ok(())
}
