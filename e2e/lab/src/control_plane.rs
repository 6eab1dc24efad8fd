//! A control plane on this machine's loopback, for the duration of one run.
//!
//! Invariant: its programs end with this process, because they end when their standard input closes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::nested::{Programs, SCENARIOS};
use crate::progress::{self, Step};
use crate::{process, tools};

/// The user with exactly the controller's permissions.
const CONTROLLER: &str = "portolan-controller";
/// Prefixes of the output lines with the addresses of Jaeger: the endpoint for traces and the web page, for this
/// machine and for a guest on it.
const JAEGER: [[&str; 2]; 2] = [
    ["# Traces go to: ", "# Jaeger: "],
    [
        "# Traces from an emulated guest go to: ",
        "# Jaeger from an emulated guest: ",
    ],
];
/// Prefix of its last line, which follows all other information.
const LAST: &str = "# Ctrl-C";

/// A running control plane. Dropping it stops it and waits for its end.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    child: Child,
    said: Vec<String>,
}

/// Paths of kubeconfigs on this machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kubeconfigs {
    /// For a cluster administrator.
    pub(crate) admin: PathBuf,
    /// For the controller.
    pub(crate) controller: PathBuf,
}

/// URLs of its Jaeger.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Jaeger {
    /// OTLP/gRPC endpoint.
    pub(crate) traces: String,
    /// Web page.
    pub(crate) page: String,
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
        let child = process::built(&programs.named(SCENARIOS)?.path)?
            .args(["control-plane", "--nodes", "0", "--user", CONTROLLER])
            .args(traced.then_some("--traces"))
            .envs(progress::for_programs())
            .env(tools::ASSETS, assets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the control plane")?;
        let mut plane = Self {
            child,
            said: Vec::new(),
        };
        let output = plane.child.stdout.take();
        let output = output.context("a piped child has a standard output")?;
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

    /// Its kubeconfigs, for access from a guest or from this machine.
    ///
    /// # Errors
    /// Its output contains none.
    pub(crate) fn kubeconfigs(&self, from_guest: bool) -> Result<Kubeconfigs> {
        find(&self.said, from_guest)
    }

    /// The addresses of its Jaeger, for access from a guest or from this machine.
    ///
    /// # Errors
    /// It was started without Jaeger.
    pub(crate) fn jaeger(&self, from_guest: bool) -> Result<Jaeger> {
        find_jaeger(&self.said, from_guest)
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

/// The rest of the first line with this prefix.
fn said<'a>(lines: &'a [String], beginning: &str) -> Result<&'a str> {
    let mut found = lines.iter().filter_map(|line| line.strip_prefix(beginning));
    found
        .next()
        .with_context(|| format!("the control plane printed no line `{beginning}`: {lines:?}"))
}

fn find(lines: &[String], from_guest: bool) -> Result<Kubeconfigs> {
    let (admin, controller) = if from_guest {
        (
            "# From an emulated guest: ".to_owned(),
            format!("# As {CONTROLLER} from an emulated guest: "),
        )
    } else {
        (
            "export KUBECONFIG=".to_owned(),
            format!("# As {CONTROLLER}: "),
        )
    };
    Ok(Kubeconfigs {
        admin: said(lines, &admin)?.into(),
        controller: said(lines, &controller)?.into(),
    })
}

fn find_jaeger(lines: &[String], from_guest: bool) -> Result<Jaeger> {
    let [traces, page] = JAEGER[usize::from(from_guest)];
    Ok(Jaeger {
        traces: said(lines, traces)?.to_owned(),
        page: said(lines, page)?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfigs_are_read_from_what_the_control_plane_says() {
        let said = [
            "export KUBECONFIG=/a",
            "# From an emulated guest: /b",
            "# As portolan-controller: /c",
            "# As portolan-controller from an emulated guest: /d",
        ]
        .map(str::to_owned);
        let of = |admin: &str, controller: &str| Kubeconfigs {
            admin: admin.into(),
            controller: controller.into(),
        };
        assert_eq!(find(&said, false).unwrap(), of("/a", "/c"));
        assert_eq!(find(&said, true).unwrap(), of("/b", "/d"));
        let error = find(&said[..2], true).unwrap_err().to_string();
        assert!(error.contains("# As portolan-controller"), "{error}");
    }
    #[test]
    fn jaeger_addresses_are_read_for_this_machine_and_for_a_guest() {
        let said = [
            "# Traces go to: http://127.0.0.1:1",
            "# Jaeger: http://127.0.0.1:2",
            "# Traces from an emulated guest go to: http://10.0.2.2:1",
            "# Jaeger from an emulated guest: http://10.0.2.2:2",
        ]
        .map(str::to_owned);
        let of = |host: &str| Jaeger {
            traces: format!("http://{host}:1"),
            page: format!("http://{host}:2"),
        };
        assert_eq!(find_jaeger(&said, false).unwrap(), of("127.0.0.1"));
        assert_eq!(find_jaeger(&said, true).unwrap(), of("10.0.2.2"));
        assert!(find_jaeger(&said[..2], true).is_err());
    }
}
