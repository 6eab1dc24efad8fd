//! Messages and exit codes of the program for invalid input.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use portolan_plan::{FrontendDocument, FrontendKind, PlanDocument};
use portolan_reconcile::DesiredDocument;

const PLAN: &str = include_str!("plans/node-a.json");

/// Runs the program with this standard input. Returns its exit code, output and error output.
fn run(arguments: &[&str], input: &str) -> (i32, String, String) {
    #[allow(clippy::disallowed_methods, reason = "the program under test")]
    let mut child = Command::new(env!("CARGO_BIN_EXE_portolan-agent"))
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that refuses its arguments may end before it reads.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn refusal(arguments: &[&str], input: &str) -> String {
    let (code, out, errors) = run(arguments, input);
    assert_eq!(out, "", "standard output must not contain a partial result");
    format!("exit code {code}\n{errors}")
}

/// The long help of a command contains more than its line in the list of commands.
#[test]
fn the_help_of_each_command_has_its_main_sentence_and_its_exit_codes() {
    for (command, sentence, codes) in [
        (
            "run",
            "The programmed state then stays in the kernel",
            "0 after a signal, 1 after an error",
        ),
        (
            "init",
            "safe to run at any time",
            "0 if all steps succeeded, 1 if a step failed",
        ),
        (
            "desired",
            "Reads and changes no kernel",
            "0, or 1 if the plan is not valid",
        ),
        (
            "show",
            "virtual servers with their Services",
            "0, also if there are differences; 1 if the kernel cannot be read",
        ),
        (
            "doctor",
            "Works without a running agent or controller",
            "0 if no check failed (warnings are possible), 1 if a check failed",
        ),
        (
            "cleanup",
            "Safe to repeat",
            "0 if nothing is left, 1 if something could not be removed",
        ),
    ] {
        let (code, help, errors) = run(&[command, "--help"], "");
        assert_eq!((code, errors.as_str()), (0, ""), "{command}");
        let words: Vec<_> = help.split_whitespace().collect();
        let help = words.join(" ");
        assert!(help.contains(sentence), "{command}: {help}");
        let codes = format!("Exit codes: {codes}");
        assert!(help.contains(&codes), "{command}: {help}");
    }
}

/// A wrong filter must not leave a node without an agent.
#[test]
fn an_invalid_log_filter_is_reported_and_replaced_by_the_default() {
    let (code, _, errors) = run(&[DESIRED, &["--log", "info=loud=1"]].concat(), PLAN);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.starts_with("--log: \"info=loud=1\" is not a log filter ("));
    assert!(errors.ends_with("); using info\n"), "{errors}");
}

const DESIRED: &[&str] = &["desired", "--plan", "-"];

#[test]
fn desired_prints_the_kernel_state_of_a_plan() {
    let (code, out, errors) = run(DESIRED, PLAN);
    assert_eq!((code, errors.as_str()), (0, ""));
    let document: DesiredDocument = serde_json::from_str(&out).unwrap();
    assert_eq!(document.virtual_servers.len(), 5);
    let route = "10.96.0.0/12 dev portolan0 proto 112 src 192.168.50.1 metric 10270".to_owned();
    assert!(document.routes.contains(&route), "{:?}", document.routes);
    assert_eq!(document.policy_rules["IPv6"].len(), 3);
}

#[test]
fn node_addresses_replace_those_of_the_plan() {
    let mut plan: PlanDocument = serde_json::from_str(PLAN).unwrap();
    let mut ports = plan.services.iter_mut().flat_map(|it| &mut it.ports);
    let port = ports
        .find(|port| !port.internal.endpoints.is_empty())
        .unwrap();
    port.frontends.push(FrontendDocument {
        kind: FrontendKind::NodePort,
        address: None,
        port: 30080,
    });
    port.external = Some(port.internal.clone());
    let plan = serde_json::to_string(&plan).unwrap();
    let (code, out, _) = run(
        &[DESIRED, &["--node-address", "192.168.77.7"]].concat(),
        &plan,
    );
    assert_eq!(code, 0);
    let document: DesiredDocument = serde_json::from_str(&out).unwrap();
    let of = |address: &str| {
        let address: std::net::IpAddr = address.parse().unwrap();
        let mut servers = document.virtual_servers.iter();
        servers.any(|server| server.address == address)
    };
    assert!(of("192.168.77.7") && !of("192.168.50.1"));
}

#[test]
fn invalid_plans_are_rejected_with_the_problem() {
    insta::assert_snapshot!("not_json", refusal(DESIRED, "kind: Service"));
    insta::assert_snapshot!(
        "unknown_key",
        refusal(
            DESIRED,
            &PLAN.replacen("\"bootCritical\"", "\"bootCrucial\"", 1)
        )
    );
    insta::assert_snapshot!(
        "version",
        refusal(
            DESIRED,
            &PLAN.replacen("\"version\": 1", "\"version\": 7", 1)
        )
    );
    insta::assert_snapshot!(
        "scope",
        refusal(DESIRED, &PLAN.replacen("\"cluster\"", "\"zone/x\"", 1))
    );
    insta::assert_snapshot!(
        "port_zero",
        refusal(DESIRED, &PLAN.replacen("\"port\": 8080", "\"port\": 0", 1))
    );
    insta::assert_snapshot!(
        "address",
        refusal(
            DESIRED,
            &PLAN.replacen("\"10.244.1.5\"", "\"10.244.1.555\"", 1)
        )
    );
    insta::assert_snapshot!(
        "no_file",
        refusal(&["desired", "--plan", "absent.json"], "")
    );
}

#[test]
fn an_invalid_start_is_rejected_with_the_reason() {
    let run = |rest: &[&str]| refusal(&[&["run"], rest].concat(), "");
    insta::assert_snapshot!("no_arguments", run(&[]));
    insta::assert_snapshot!(
        "controller_name",
        run(&[
            "--node",
            "a",
            "--controller",
            "controller.example:10270",
            "--insecure"
        ])
    );
    insta::assert_snapshot!(
        "no_tls",
        run(&["--node", "a", "--controller", "127.0.0.1:10270"])
    );
    insta::assert_snapshot!(
        "empty_node",
        run(&[
            "--node",
            " ",
            "--controller",
            "unix:/run/c.sock",
            "--insecure"
        ])
    );
    insta::assert_snapshot!(
        "state_directory",
        run(&[
            "--node",
            "a",
            "--controller",
            "unix:/run/c.sock",
            "--insecure",
            "--state-dir",
            "/dev/null/x"
        ])
    );
}
