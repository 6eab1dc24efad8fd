//! Rules, through the tools that every node has. The only file that starts a program: once to
//! read and once to write, a few times in the life of the agent.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use portolan_plan::Family;
use portolan_reconcile::Op;
use portolan_reconcile::rules::ObservedRules;

use crate::kernel::KernelError;

/// How long the tools wait for the lock of the tables, in seconds.
const LOCK_SECONDS: &str = "5";

/// The tools `iptables-save` and `iptables-restore`, and their IPv6 twins.
#[derive(Debug)]
pub struct Rules;

impl Rules {
    /// Makes sure that the tools are there.
    ///
    /// # Errors
    /// Which one is not, and which package has it.
    pub fn find() -> Result<Self, KernelError> {
        for family in Family::BOTH {
            let program = restore(family);
            run(program, &["--version"], None)?;
        }
        Ok(Self)
    }

    /// Our rules as they are loaded.
    ///
    /// # Errors
    /// What the tool says.
    pub fn observe(&self, family: Family) -> Result<ObservedRules, KernelError> {
        let program = match family {
            Family::Ipv4 => "iptables-save",
            Family::Ipv6 => "ip6tables-save",
        };
        let output = run(program, &[], None)?;
        Ok(ObservedRules::parse(&String::from_utf8_lossy(
            &output.stdout,
        )))
    }

    /// Loads the rules of an operation.
    ///
    /// # Errors
    /// What the tool says.
    pub fn apply(&self, op: &Op) -> Result<(), KernelError> {
        let Op::LoadRules { family, text, .. } = op else {
            return Err(KernelError::new(op, "no rules"));
        };
        self.load(*family, text)
    }

    fn load(&self, family: Family, text: &str) -> Result<(), KernelError> {
        run(
            restore(family),
            &["--noflush", "-w", LOCK_SECONDS],
            Some(text),
        )
        .map(|_| ())
    }
}

fn restore(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "iptables-restore",
        Family::Ipv6 => "ip6tables-restore",
    }
}

fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<Output, KernelError> {
    let failed = |reason: String| KernelError::new(&format_args!("run {program}"), &reason);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("{error}; install the package iptables")))?;
    // The text is far smaller than what the tool reads before it writes anything, so writing all
    // of it first cannot block both sides. A tool that ends early is judged by its exit status.
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take())
        && let Err(error) = stdin.write_all(text.as_bytes())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(failed(error.to_string()));
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("; ");
    Err(failed(format!("{}: {said}", output.status)))
}
