//! `portolan-controller plan`.

use std::io::{self, IsTerminal as _, Write};

use clap::Args;
use portolan_plan::PlanDocument;
use portolan_planner::Planner;

use super::what_if::{self, WhatIfArguments};
use super::{INCOMPLETE, OK, UNUSABLE};
use crate::manifests::{Manifests, Problem, Severity, Source, shown};
use crate::output::text::counted;
use crate::output::{Format, OutputError, plan_document, render};
use portolan_planner::model::Object;

/// The sources of manifests.
#[derive(Debug, Args)]
pub(super) struct ManifestArguments {
    /// Directory (read recursively), YAML or JSON file, or - for standard input. Nodes, Services, EndpointSlices,
    /// ServiceCIDRs and the ProxyConfig are read, also from lists; other kinds are skipped. May be repeated.
    #[arg(
        long = "manifests",
        value_name = "DIR|FILE|-",
        env = "PORTOLAN_MANIFESTS",
        required = true
    )]
    sources: Vec<String>,
}

impl ManifestArguments {
    /// How many sources are standard input, which can be read only once.
    pub(super) fn readers_of_stdin(&self) -> usize {
        self.sources.iter().filter(|from| *from == "-").count()
    }

    /// Reads the manifests and reports their problems.
    ///
    /// # Errors
    /// The exit code if nothing can be planned.
    pub(super) fn read(&self) -> Result<Manifests, u8> {
        if self.readers_of_stdin() > 1 {
            let message = "error: --manifests: only one of them can be standard input";
            return Err(report(UNUSABLE, message));
        }
        let from: Vec<_> = self.sources.iter().map(String::as_str).collect();
        read(&from)
    }
}

#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    #[command(flatten)]
    pub(super) manifests: ManifestArguments,
    /// Node whose plan is printed. Required, except with --diff, --without-zone and --without-node, which cover the
    /// whole cluster without it.
    #[arg(
        long,
        value_name = "NAME",
        env = "PORTOLAN_NODE",
        required_unless_present_any = ["diff", "without_zone", "without_node"]
    )]
    pub(super) node: Option<String>,
    #[command(flatten)]
    pub(super) what_if: WhatIfArguments,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Format,
}

/// Prints the plan on standard output and everything else on standard error.
pub(super) fn run(arguments: &PlanArguments) -> u8 {
    if arguments.what_if.is_asked() {
        return what_if::run(arguments);
    }
    let manifests = match arguments.manifests.read() {
        Ok(manifests) => manifests,
        Err(code) => return code,
    };
    let planner = planner(&manifests);
    let node = arguments.node.as_deref().unwrap_or_default();
    match plan_document(&planner, node) {
        Some(document) => print_plan(&document, arguments.output, &manifests),
        None => report(UNUSABLE, &unknown_node(node, &manifests)),
    }
}

/// Prints a plan and returns the exit code.
pub(crate) fn print_plan(document: &PlanDocument, output: Format, from: &Manifests) -> u8 {
    let colour = io::stdout().is_terminal();
    match show(render(document, output, colour), "the plan") {
        Ok(()) => summary([from]),
        Err(error) => report(INCOMPLETE, &error),
    }
}

/// Reads manifests and reports their problems.
///
/// # Errors
/// The exit code if nothing can be planned.
pub(super) fn read(from: &[&str]) -> Result<Manifests, u8> {
    let mut manifests = Manifests::default();
    for source in from {
        if let Err(error) = Source::from(*source).read_into(&mut manifests) {
            return Err(report(UNUSABLE, &format!("error: {error}")));
        }
    }
    report_problems(&manifests);
    if manifests.objects.is_empty() {
        let message = "error: no object could be read, so there is no plan";
        return Err(report(UNUSABLE, message));
    }
    Ok(manifests)
}

/// Reports the problems of manifests on standard error.
pub(crate) fn report_problems(manifests: &Manifests) {
    for problem in &manifests.problems {
        report(OK, &spoken(problem));
    }
    let notes = [passed_over(manifests), without_cluster_ip(manifests)];
    for note in notes.into_iter().flatten() {
        report(OK, &note);
    }
}

/// A note that counts the objects of other kinds.
fn passed_over(manifests: &Manifests) -> Option<String> {
    let kinds = &manifests.others;
    let mut counts: Vec<_> = kinds.iter().map(|(kind, count)| (*count, kind)).collect();
    counts.sort_by_key(|(count, kind)| (std::cmp::Reverse(*count), *kind));
    let names: Vec<_> = counts
        .iter()
        .map(|(count, kind)| format!("{count} {}", shown(kind)))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (all, first) = (kinds.values().sum(), first(&names));
    let mirrored = kinds.contains_key("Endpoints");
    let hint = if mirrored {
        ". A cluster copies Endpoints to EndpointSlices: read those"
    } else {
        ""
    };
    let of = counted(kinds.len(), "other kind");
    (all > 0).then(|| {
        format!(
            "note: {} of {of} skipped: {first}{hint}",
            counted(all, "object")
        )
    })
}

/// A note on Services without a cluster IP. Only an API server allocates one, so manifests may lack it.
fn without_cluster_ip(manifests: &Manifests) -> Option<String> {
    let services = manifests
        .objects
        .values()
        .filter_map(|found| match &**found {
            Object::Service(service) => Some(service),
            _ => None,
        });
    let without = services
        .filter(|service| service.no_cluster_ip.is_none() && service.cluster_ips.is_empty());
    let names: Vec<_> = without.map(|service| service.id.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        format!(
            "note: {} without a cluster IP, for which nothing is planned: {}; the API server sets spec.clusterIP, so \
             read `kubectl get services -A -o yaml`",
            counted(names.len(), "Service"),
            first(&names)
        )
    })
}

/// A planner with all objects of the manifests.
pub(crate) fn planner(manifests: &Manifests) -> Planner {
    let mut planner = Planner::default();
    planner.apply(manifests.objects.values().map(|found| found.present()));
    planner
}

/// Prints an answer on standard output.
///
/// # Errors
/// The message to report if the answer cannot be written.
pub(crate) fn show(rendered: Result<String, OutputError>, what: &str) -> Result<(), String> {
    let text = rendered.map_err(|error| format!("error: {error}"))?;
    match print(&text) {
        // The reader closed the pipe early, like `head`.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("error: write {what}: {error}"))
        }
        _ => Ok(()),
    }
}

fn spoken(problem: &Problem) -> String {
    match problem.severity {
        Severity::Warning => format!("warning: {problem}"),
        Severity::LeftOut => format!("error: {problem} (the object is left out)"),
        Severity::Unreadable => format!("error: {problem} (nothing in it is planned)"),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Reports what was left out and returns the exit code.
pub(crate) fn summary<'a>(manifests: impl IntoIterator<Item = &'a Manifests>) -> u8 {
    let (mut objects, mut unreadable) = (0, 0);
    for manifests in manifests {
        objects += manifests.count(Severity::LeftOut);
        unreadable += manifests.count(Severity::Unreadable);
    }
    if objects + unreadable == 0 {
        return OK;
    }
    let left_out = match objects {
        0 => None,
        1 => Some("1 object left out".to_owned()),
        count => Some(format!("{count} objects left out")),
    };
    let broken = (unreadable > 0).then(|| format!("{unreadable} unreadable documents or files"));
    let what: Vec<_> = left_out.into_iter().chain(broken).collect();
    report(
        INCOMPLETE,
        &format!("error: the plan is incomplete: {}", what.join(", ")),
    )
}

/// Maximum number of known names in an error about an unknown one.
const MAX_LISTED_NAMES: usize = 10;

/// The error for an unknown node; it lists the known ones.
pub(crate) fn unknown_node(name: &str, manifests: &Manifests) -> String {
    let nodes = manifests
        .objects
        .values()
        .filter_map(|found| match &**found {
            Object::Node(node) => Some(&*node.name),
            _ => None,
        });
    let nodes: Vec<_> = nodes.collect();
    let known = match nodes.is_empty() {
        true => format!("there is no Node in {} at all", manifests.origin),
        false => known(&nodes),
    };
    format!(
        "error: Node {name}: not in {} ({known}); check the name",
        manifests.origin
    )
}

/// The number of names, and the first of them.
pub(super) fn known(names: &[&str]) -> String {
    format!("there are {}: {}", names.len(), first(names))
}

/// The first few names.
fn first(names: &[&str]) -> String {
    let more = if names.len() > MAX_LISTED_NAMES {
        ", …"
    } else {
        ""
    };
    names[..names.len().min(MAX_LISTED_NAMES)].join(", ") + more
}

/// Writes to standard error and returns `code`.
pub(crate) fn report(code: u8, text: &str) -> u8 {
    // Ignored: standard error may be closed.
    drop(writeln!(io::stderr().lock(), "{text}"));
    code
}
