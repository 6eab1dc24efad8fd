//! `portolan-controller plan`.

use std::io::{self, IsTerminal as _, Write};

use clap::Args;
use portolan_plan::PlanDocument;
use portolan_planner::Planner;

use super::what_if::{self, WhatIfArguments};
use super::{INCOMPLETE, OK, UNUSABLE};
use crate::manifests::{Found, Manifests, Problem, Severity, Source, shown};
use crate::output::text::counted;
use crate::output::{Format, OutputError, plan_document, render};

/// Where manifests are read from.
#[derive(Debug, Args)]
pub(super) struct ManifestArguments {
    /// A folder with YAML or JSON, also in folders in it, a file, or - for standard input. Nodes, Services,
    /// EndpointSlices, ServiceCIDRs and the ProxyConfig are read, also from lists; other kinds are passed over. May be
    /// repeated.
    #[arg(
        long = "manifests",
        value_name = "DIR|FILE|-",
        env = "PORTOLAN_MANIFESTS",
        required = true
    )]
    sources: Vec<String>,
}

impl ManifestArguments {
    /// How many of them are standard input, which can be read only once.
    pub(super) fn readers_of_stdin(&self) -> usize {
        self.sources.iter().filter(|from| *from == "-").count()
    }

    /// Reads them and tells what is wrong in them.
    ///
    /// # Errors
    /// The exit code where nothing can be made of them.
    pub(super) fn read(&self) -> Result<Manifests, u8> {
        if self.readers_of_stdin() > 1 {
            let message = "error: --manifests: only one of them can be standard input";
            return Err(say(UNUSABLE, message));
        }
        let from: Vec<_> = self.sources.iter().map(String::as_str).collect();
        read(&from)
    }
}

#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    #[command(flatten)]
    pub(super) manifests: ManifestArguments,
    /// The node whose plan is printed. What would change is told of the whole cluster without it.
    #[arg(
        long,
        value_name = "NAME",
        env = "PORTOLAN_NODE",
        required_unless_present_any = ["diff", "without_zone", "without_node"]
    )]
    pub(super) node: Option<String>,
    #[command(flatten)]
    pub(super) what_if: WhatIfArguments,
    /// How the answer is written.
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
        None => say(UNUSABLE, &unknown_node(node, &manifests)),
    }
}

/// Prints a plan; gives the exit code.
pub(crate) fn print_plan(document: &PlanDocument, output: Format, from: &Manifests) -> u8 {
    let colour = io::stdout().is_terminal();
    match show(render(document, output, colour), "the plan") {
        Ok(()) => summary([from]),
        Err(error) => say(INCOMPLETE, &error),
    }
}

/// Reads manifests and tells what is wrong in them.
///
/// # Errors
/// The exit code where nothing can be made of them.
pub(super) fn read(from: &[&str]) -> Result<Manifests, u8> {
    let mut manifests = Manifests::default();
    for source in from {
        if let Err(error) = Source::from(*source).read_into(&mut manifests) {
            return Err(say(UNUSABLE, &format!("error: {error}")));
        }
    }
    tell(&manifests);
    if manifests.objects.is_empty() {
        let message = "error: no object could be read, so there is no plan";
        return Err(say(UNUSABLE, message));
    }
    Ok(manifests)
}

/// Tells what is wrong in them.
pub(crate) fn tell(manifests: &Manifests) {
    for problem in &manifests.problems {
        say(OK, &spoken(problem));
    }
    let notes = [passed_over(manifests), without_cluster_ip(manifests)];
    for note in notes.into_iter().flatten() {
        say(OK, &note);
    }
}

/// What other kinds there are, in one line.
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
            "note: {} of {of} passed over: {first}{hint}",
            counted(all, "object")
        )
    })
}

/// Services that nobody can reach, because only an API server gives them addresses.
fn without_cluster_ip(manifests: &Manifests) -> Option<String> {
    let services = manifests
        .objects
        .values()
        .filter_map(|found| match &**found {
            Found::Service(service) => Some(service),
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

/// Everything in the manifests, planned.
pub(crate) fn planner(manifests: &Manifests) -> Planner {
    let mut planner = Planner::default();
    planner.apply(manifests.objects.values().map(|found| found.present()));
    planner
}

/// Prints an answer on standard output.
///
/// # Errors
/// What to tell when it cannot be written.
pub(crate) fn show(rendered: Result<String, OutputError>, what: &str) -> Result<(), String> {
    let text = rendered.map_err(|error| format!("error: {error}"))?;
    match print(&text) {
        // The reader has seen enough.
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
        Severity::Unreadable => format!("error: {problem} (nothing of it is planned)"),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Tells what was left out; gives the exit code.
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

/// The nodes that there are instead.
pub(crate) fn unknown_node(name: &str, manifests: &Manifests) -> String {
    let nodes = manifests
        .objects
        .values()
        .filter_map(|found| match &**found {
            Found::Node(node) => Some(&*node.name),
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

/// How many names there are, and the first of them.
pub(super) fn known(names: &[&str]) -> String {
    format!("there are {}: {}", names.len(), first(names))
}

/// The first of some names.
fn first(names: &[&str]) -> String {
    let more = if names.len() > SHOWN { ", …" } else { "" };
    names[..names.len().min(SHOWN)].join(", ") + more
}

/// Tells on standard error; gives the exit code back.
pub(crate) fn say(code: u8, text: &str) -> u8 {
    // With standard error closed there is nobody to tell.
    drop(writeln!(io::stderr().lock(), "{text}"));
    code
}
