//! The alerts of the chart, checked with promtool.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::checks::Checks;
use crate::program::Program;
use crate::stage::Stage;
use crate::work_folder::WorkFolder;

/// Path of the rules as the tests name it, relative to the tests.
const BESIDE: &str = "../../charts/portolan/monitoring/rules.yaml";

pub(super) fn run(stage: &Stage, chart: &Path, rendered: &str, checks: &mut Checks) -> Result<()> {
    let path = chart.join("monitoring/rules.yaml");
    let rules = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let tests = stage.files.text("api/alerts.yaml")?;
    checks.check("promtool check rules", {
        let path = path.display().to_string();
        let said = Program::Promtool.run(&["check", "rules", &path]);
        said.and_then(|said| {
            ensure!(said.contains("SUCCESS"), "{said}");
            Ok(())
        })
    });
    checks.check("helm renders the same rules", same(&rules, rendered));
    let folder = WorkFolder::make()?;
    checks.check("promtool test rules", test(&folder, &rules, &tests));
    let alerts = alerts(&rules);
    checks.require(
        "there are alerts",
        alerts.len() > 10,
        &format!("{alerts:?}"),
    );
    for alert in alerts {
        // The tests have to fail without the alert.
        let noticed = test(&folder, &without(&rules, alert), &tests);
        let missed = noticed.is_err_and(|error| format!("{error:#}").contains(alert));
        let what = format!("the tests fail if {alert} never fires");
        checks.require(&what, missed, "no test fails");
    }
    Ok(())
}

/// The names of all alerts.
fn alerts(rules: &str) -> Vec<&str> {
    let lines = rules.lines().map(str::trim);
    lines
        .filter_map(|line| line.strip_prefix("- alert: "))
        .collect()
}

/// The same rules, with one alert that waits longer than any test lasts.
fn without(rules: &str, alert: &str) -> String {
    let begin = format!("- alert: {alert}\n");
    let Some((before, of)) = rules.split_once(&begin) else {
        return rules.to_owned();
    };
    let late: Vec<_> = of.splitn(2, "\n    for: ").collect();
    let [expression, rest] = late.as_slice() else {
        return rules.to_owned();
    };
    let rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    format!("{before}{begin}{expression}\n    for: 1000h\n{rest}")
}

fn test(folder: &WorkFolder, rules: &str, tests: &str) -> Result<()> {
    let [own, of_them] = ["rules.yaml", "tests.yaml"].map(|name| folder.path.join(name));
    ensure!(tests.contains(BESIDE), "the tests are about other rules");
    std::fs::write(&own, rules)?;
    std::fs::write(&of_them, tests.replace(BESIDE, &own.display().to_string()))?;
    let words = ["test", "rules", &of_them.display().to_string()];
    let ended = Program::Promtool.try_with_input(&words, "")?;
    ensure!(ended.status.success(), "{}{}", ended.output, ended.errors);
    Ok(())
}

/// The PrometheusRule that helm renders has the same rules.
fn same(rules: &str, rendered: &str) -> Result<()> {
    let wanted: Value = serde_saphyr::from_str(rules)?;
    let mut objects = rendered.split("\n---");
    let rule = objects.find(|text| text.contains("kind: PrometheusRule"));
    let found: Value = serde_saphyr::from_str(rule.context("there is no PrometheusRule")?)?;
    ensure!(found["spec"] == wanted, "they differ: {}", found["spec"]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alert_is_put_off_and_the_others_stay() {
        let rules = "  - alert: A\n    expr: a\n    for: 5m\n  - alert: B\n    expr: b\n    for: 6m\n    labels: {}\n";
        assert_eq!(alerts(rules), ["A", "B"]);
        assert_eq!(without(rules, "A"), rules.replace("5m", "1000h"));
        assert_eq!(without(rules, "B"), rules.replace("6m", "1000h"));
    }
}
