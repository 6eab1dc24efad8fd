//! `portolan-controller plan`.

use std::io::{self, IsTerminal as _, Write};

use clap::Args;
use portolan_planner::Planner;

use super::{INCOMPLETE, OK, UNUSABLE};
use crate::manifests::{Found, Manifests, Problem, Severity, Source};
use crate::output::{Format, plan_document, render};

#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    /// A folder with YAML or JSON, a file, or - for standard input: Nodes, Services,
    /// EndpointSlices, ServiceCIDRs and the ProxyConfig, also as lists.
    #[arg(long, value_name = "DIR|FILE|-", env = "PORTOLAN_MANIFESTS")]
    manifests: String,
    /// The node whose plan is printed.
    #[arg(long, value_name = "NAME", env = "PORTOLAN_NODE")]
    node: String,
    /// How the plan is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Prints the plan on standard output and everything else on standard error.
pub(super) fn run(arguments: &PlanArguments) -> u8 {
    let manifests = match Source::from(arguments.manifests.as_str()).read() {
        Ok(manifests) => manifests,
        Err(error) => return say(UNUSABLE, &format!("error: {error}")),
    };
    for problem in &manifests.problems {
        say(OK, &spoken(problem));
    }
    if manifests.objects.is_empty() {
        return say(
            UNUSABLE,
            "error: no object could be read, so there is no plan",
        );
    }
    let mut planner = Planner::default();
    planner.apply(manifests.objects.values().map(|found| found.present()));
    let Some(document) = plan_document(&planner, &arguments.node) else {
        return say(UNUSABLE, &unknown_node(&arguments.node, &manifests));
    };
    let colour = io::stdout().is_terminal();
    match render(&document, arguments.output, colour) {
        Ok(text) => match print(&text) {
            // The reader has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return say(INCOMPLETE, &format!("error: write the plan: {error}"));
            }
            _ => {}
        },
        Err(error) => return say(INCOMPLETE, &format!("error: {error}")),
    }
    summary(&manifests)
}

fn spoken(problem: &Problem) -> String {
    match problem.severity {
        Severity::Warning => format!("warning: {problem}"),
        Severity::LeftOut => format!("error: {problem} (the object is left out)"),
        Severity::Unreadable => format!("error: {problem} (nothing of it is planned)"),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn summary(manifests: &Manifests) -> u8 {
    let objects = manifests.count(Severity::LeftOut);
    let unreadable = manifests.count(Severity::Unreadable);
    if objects + unreadable == 0 {
        return OK;
    }
    let left_out = match objects {
        0 => None,
        1 => Some("1 object left out".to_owned()),
        count => Some(format!("{count} objects left out")),
    };
    let broken =
        (unreadable > 0).then(|| format!("{unreadable} of the documents or files not readable"));
    let what: Vec<_> = left_out.into_iter().chain(broken).collect();
    say(
        INCOMPLETE,
        &format!("error: the plan is incomplete: {}", what.join(", ")),
    )
}

/// How many names are shown to somebody who may have mistyped one.
const SHOWN: usize = 10;

fn unknown_node(name: &str, manifests: &Manifests) -> String {
    let nodes = manifests
        .objects
        .values()
        .filter_map(|found| match &**found {
            Found::Node(node) => Some(&*node.name),
            _ => None,
        });
    let nodes: Vec<_> = nodes.collect();
    let more = if nodes.len() > SHOWN { ", …" } else { "" };
    let known = match nodes.len() {
        0 => "the manifests hold no Node at all".to_owned(),
        count => format!(
            "there are {count}: {}{more}",
            nodes[..count.min(SHOWN)].join(", ")
        ),
    };
    format!("error: Node {name}: not in the manifests ({known}); check --node")
}

/// Tells on standard error; gives the exit code back.
fn say(code: u8, text: &str) -> u8 {
    // With standard error closed there is nobody to tell.
    drop(writeln!(io::stderr().lock(), "{text}"));
    code
}
