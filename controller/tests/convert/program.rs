//! The command's interface: its output and its exit codes.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use portolan_crds::ProxyConfig;

use crate::{converted, file};

/// Runs the command on a file, by its name or as standard input.
fn run(name: &str, by_name: bool, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-proxyplan"));
    command
        .current_dir(file(""))
        .env_clear()
        .arg("convert-config");
    let input = if by_name {
        Stdio::null()
    } else {
        File::open(file(name)).unwrap().into()
    };
    command.arg(if by_name { name } else { "-" });
    command.args(more).stdin(input).output().unwrap()
}

#[test]
fn the_proxy_config_goes_to_standard_output_and_the_report_to_standard_error() {
    let ended = run("dual-stack.yaml", true, &[]);
    assert_eq!(ended.status.code(), Some(0));
    let expected = converted("dual-stack.yaml");
    let config = serde_saphyr::to_string(&expected.config).unwrap();
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), config);
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), expected.report());
}

#[test]
fn tools_get_both_as_json() {
    let ended = run("eks.yaml", false, &["-o", "json", "--report", "json"]);
    assert_eq!(
        ended.status.code(),
        Some(1),
        "something changes its meaning"
    );
    let config: ProxyConfig = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(config, converted("eks.yaml").config);
    let report: serde_json::Value = serde_json::from_slice(&ended.stderr).unwrap();
    assert_eq!(report["exact"], false);
    let place =
        "standard input: document 1 (line 1): ConfigMap kube-system/kube-proxy-config, config";
    assert_eq!(report["place"], place);
    insta::assert_json_snapshot!(report["findings"][0]);
}

/// The chart's own values are stricter about external IPs than an empty ProxyConfig.
#[test]
fn helm_gets_values_of_the_chart() {
    let ended = run("k3s.yaml", true, &["-o", "values"]);
    let values: serde_json::Value = serde_saphyr::from_slice(&ended.stdout).unwrap();
    let mut expected = serde_json::to_value(&converted("k3s.yaml").config.spec).unwrap();
    assert!(expected["settings"].get("externalIPs").is_none());
    expected["settings"]["externalIPs"] =
        serde_json::json!({"allowedCIDRs": ["0.0.0.0/0", "::/0"]});
    assert_eq!(values["config"]["spec"], expected);
    assert_eq!(values.as_object().unwrap().len(), 1, "the probe follows it");
    let report = String::from_utf8(ended.stderr).unwrap();
    assert!(
        report.contains("externalIPs.allowedCIDRs: [0.0.0.0/0"),
        "{report}"
    );
}

/// S-248: also fields left at their default.
#[test]
fn a_changed_meaning_ends_with_1() {
    let ended = run("arp.yaml", true, &[]);
    assert_eq!(ended.status.code(), Some(1));
    let report = String::from_utf8(ended.stderr).unwrap();
    assert!(report.contains("ipvs.strictARP=false"), "{report}");
}

#[test]
fn unreadable_input_ends_with_2_and_prints_nothing() {
    for (name, expected) in [
        (
            "wrong-types.yaml",
            "error: wrong-types.yaml: document 1 (line 1): ipvs.syncPeriod: 30 is a number; write a duration \
             like 30s or 1h30m\n",
        ),
        ("missing.yaml", "error: missing.yaml: "),
        (".", "error: .: "),
    ] {
        let ended = run(name, true, &[]);
        assert_eq!(ended.status.code(), Some(2), "{name}");
        assert_eq!(ended.stdout, b"", "{name}");
        let message = String::from_utf8(ended.stderr).unwrap();
        assert!(message.starts_with(expected), "{message}");
    }
}
