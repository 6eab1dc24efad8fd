//! Runs the program in a folder of its own, so that messages contain no paths of a machine.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A node, which a plan needs.
pub(crate) const NODE: &str = "\
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
";

/// A valid Service.
pub(crate) const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80}]
";

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("manifests")).unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join("manifests").join(name), text).unwrap();
    }
    folder
}

/// A command that runs the program in a folder.
pub(crate) fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan-controller"));
    command.current_dir(folder).args(arguments).env_clear();
    command
}

/// Exit code, messages and output of a run.
pub(crate) fn transcript(folder: &Path, arguments: &[&str], input: &str) -> String {
    let mut command = program(folder, arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    // The program may have closed its input without reading it.
    drop(running.stdin.take().unwrap().write_all(input.as_bytes()));
    let ended = running.wait_with_output().unwrap();
    let mut text = String::new();
    let code = ended.status.code().unwrap();
    writeln!(text, "exit code {code}").unwrap();
    writeln!(
        text,
        "--- messages\n{}",
        String::from_utf8(ended.stderr).unwrap()
    )
    .unwrap();
    writeln!(
        text,
        "--- output\n{}",
        String::from_utf8(ended.stdout).unwrap()
    )
    .unwrap();
    text
}

/// The plan of node-a for these files in `manifests`.
pub(crate) fn planned(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    transcript(
        folder.path(),
        &["plan", "--manifests", "manifests", "--node", "node-a"],
        "",
    )
}
