//! A control plane on this machine's loopback, for the duration of one run.
//!
//! Invariant: its programs end with this process, because they end when their standard input closes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::nested::{Programs, SCENARIOS};
use crate::progress::{self, Step};
use crate::{process, tools};

/// The user with exactly the controller's permissions.
const CONTROLLER: &str = "portolan-controller";
/// Beginnings of a line with an address or a path: for this machine, and for a guest on it.
pub(crate) type Line = [&'static str; 2];
/// The kubeconfig of a cluster administrator.
pub(crate) const ADMIN: Line = ["export KUBECONFIG=", "# From an emulated guest: "];
/// The kubeconfig of the controller.
pub(crate) const AS_CONTROLLER: Line = [
    "# As portolan-controller: ",
    "# As portolan-controller from an emulated guest: ",
];
/// Jaeger's OTLP/gRPC endpoint.
pub(crate) const TRACES: Line = [
    "# Traces go to: ",
    "# Traces from an emulated guest go to: ",
];
/// Jaeger's web page.
pub(crate) const JAEGER: Line = ["# Jaeger: ", "# Jaeger from an emulated guest: "];
/// Prefix of its last line, which follows all other information.
const LAST: &str = "# Ctrl-C";

/// A running control plane. Dropping it stops it and waits for its end.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    child: Child,
    said: Vec<String>,
}

impl ControlPlane {
    /// Starts a control plane without nodes, with the tools in the folder `assets`, and waits until it is ready.
    /// `traced`: with Jaeger.
    ///
    /// # Errors
    /// It ended early; its errors are on standard error.
    pub(crate) fn start(programs: &Programs, assets: &Path, traced: bool) -> Result<Self> {
        let step = Step::start("Control plane");
        step.detail(if traced {
            "starting etcd, API server, controllers and Jaeger"
        } else {
            "starting etcd, API server and controllers"
        });
        let mut command = process::built(&programs.named(SCENARIOS)?.path)?;
        command
            .args(["control-plane", "--nodes", "0", "--user", CONTROLLER])
            .args(traced.then_some("--traces"))
            .envs(progress::for_programs())
            .env(tools::ASSETS, assets)
            .stdin(Stdio::piped());
        let (child, output) = process::piped(&mut command).context("starting the control plane")?;
        let mut plane = Self {
            child,
            said: Vec::new(),
        };
        for line in BufReader::new(output).lines() {
            let line = line.context("reading the output of the control plane")?;
            if line.starts_with(LAST) {
                step.done("serves");
                return Ok(plane);
            }
            plane.said.push(line);
        }
        bail!(
            "the control plane ended before it was ready; see its errors above, or try `cargo lab cluster`"
        )
    }

    /// The rest of such a line, for access from a guest or from this machine.
    ///
    /// # Errors
    /// Its output has no such line: it was started without Jaeger.
    pub(crate) fn said(&self, line: Line, from_guest: bool) -> Result<&str> {
        said(&self.said, line, from_guest)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // It stops its programs and removes its folder when its input closes.
        drop(self.child.stdin.take());
        // Fails only if it has ended already.
        drop(self.child.wait());
    }
}

fn said(lines: &[String], line: Line, from_guest: bool) -> Result<&str> {
    let beginning = line[usize::from(from_guest)];
    let mut found = lines.iter().filter_map(|line| line.strip_prefix(beginning));
    found
        .next()
        .with_context(|| format!("the control plane printed no line `{beginning}`: {lines:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfigs_are_read_from_what_the_control_plane_says() {
        let lines = [
            "export KUBECONFIG=/a",
            "# From an emulated guest: /b",
            "# As portolan-controller: /c",
            "# As portolan-controller from an emulated guest: /d",
        ]
        .map(str::to_owned);
        assert_eq!(said(&lines, ADMIN, false).unwrap(), "/a");
        assert_eq!(said(&lines, ADMIN, true).unwrap(), "/b");
        assert_eq!(said(&lines, AS_CONTROLLER, false).unwrap(), "/c");
        assert_eq!(said(&lines, AS_CONTROLLER, true).unwrap(), "/d");
        let error = said(&lines[..2], AS_CONTROLLER, true).unwrap_err();
        assert!(error.to_string().contains("# As portolan-controller"));
    }

    #[test]
    fn jaeger_addresses_are_read_for_this_machine_and_for_a_guest() {
        let lines = [
            "# Traces go to: http://127.0.0.1:1",
            "# Jaeger: http://127.0.0.1:2",
            "# Traces from an emulated guest go to: http://10.0.2.2:1",
            "# Jaeger from an emulated guest: http://10.0.2.2:2",
        ]
        .map(str::to_owned);
        for (from_guest, host) in [(false, "127.0.0.1"), (true, "10.0.2.2")] {
            let found = [TRACES, JAEGER].map(|line| said(&lines, line, from_guest).unwrap());
            assert_eq!(
                found,
                [format!("http://{host}:1"), format!("http://{host}:2")]
            );
        }
        assert!(said(&lines[..2], TRACES, true).is_err());
    }
}
