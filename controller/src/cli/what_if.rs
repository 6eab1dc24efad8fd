//! `portolan-controller plan --diff`, `--without-zone` and `--without-node`: what would change.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use clap::Args;
use portolan_planner::compare::{Difference, Lost, Plans, Unknown};
use portolan_planner::model::Event;

use super::plan::{PlanArguments, known, planner, read, report, show, summary, unknown_node};
use super::{INCOMPLETE, UNUSABLE};
use crate::manifests::Manifests;
use crate::output::Format;
use crate::output::difference::{Question, document, render};

#[derive(Debug, Args)]
pub(super) struct WhatIfArguments {
    /// Show what would change with these manifests: a directory, a file, or - for standard input.
    #[arg(long, value_name = "DIR|FILE|-")]
    diff: Option<String>,
    /// Show what would change without this zone: its nodes and the endpoints in it. May be repeated.
    #[arg(long, value_name = "ZONE")]
    without_zone: Vec<Arc<str>>,
    /// Show what would change without this node and the endpoints on it. May be repeated.
    #[arg(long, value_name = "NAME")]
    without_node: Vec<Arc<str>>,
}

impl WhatIfArguments {
    /// Whether a change is asked for, rather than the current plan.
    pub(super) fn is_asked(&self) -> bool {
        self.diff.is_some() || !self.without_zone.is_empty() || !self.without_node.is_empty()
    }

    fn lost(&self) -> Lost {
        Lost {
            zones: self.without_zone.iter().cloned().collect(),
            nodes: self.without_node.iter().cloned().collect(),
        }
    }
}

/// Prints what would change on standard output and everything else on standard error.
pub(super) fn run(arguments: &PlanArguments) -> u8 {
    let wish = &arguments.what_if;
    let diff = wish.diff.as_deref();
    if arguments.manifests.readers_of_stdin() > 0 && diff == Some("-") {
        let message = "error: --manifests and --diff: only one of them can be standard input";
        return report(UNUSABLE, message);
    }
    let now = arguments.manifests.read();
    let (now, then) =
        match now.and_then(|now| Ok((now, diff.map(|from| read(&[from])).transpose()?))) {
            Ok(manifests) => manifests,
            Err(code) => return code,
        };
    let difference = match difference(arguments, &now, then.as_ref()) {
        Ok(difference) => difference,
        Err(message) => return report(UNUSABLE, &message),
    };
    let question = Question {
        diff: wish.diff.clone(),
        lost: wish.lost(),
        node: arguments.node.clone(),
    };
    match print_difference(&question, &difference, arguments.output) {
        Ok(()) => summary(std::iter::once(&now).chain(&then)),
        Err(error) => report(INCOMPLETE, &error),
    }
}

/// Prints a difference on standard output.
///
/// # Errors
/// The message to report if the difference cannot be written.
pub(crate) fn print_difference(
    question: &Question,
    difference: &Difference,
    output: Format,
) -> Result<(), String> {
    let document = document(question, difference);
    let colour = io::stdout().is_terminal();
    show(render(&document, output, colour), "what would change")
}

/// What would change, or the message to report if that cannot be computed.
fn difference(
    arguments: &PlanArguments,
    now: &Manifests,
    then: Option<&Manifests>,
) -> Result<Difference, String> {
    // One planner for both states: it replans only what differs, and unchanged entries share one value.
    let mut planner = planner(now);
    let before = Plans::from(&planner);
    if let Some(then) = then {
        planner.apply(changes(now, then));
    }
    let lost = arguments.what_if.lost().events(planner.model());
    planner.apply(lost.map_err(|unknown| unknown_place(&unknown))?);
    let after = Plans::from(&planner);
    match arguments.node.as_deref() {
        None => Ok(Difference::between(&before, &after)),
        Some(node) if before.nodes.contains_key(node) || after.nodes.contains_key(node) => {
            Ok(Difference::on_node(node, &before, &after))
        }
        Some(node) => Err(unknown_node(node, now)),
    }
}

/// The events that turn the old manifests into the new ones.
fn changes<'a>(old: &'a Manifests, new: &'a Manifests) -> impl Iterator<Item = Event> + 'a {
    let differs = |(id, _): &(&_, &_)| old.objects.get(*id) != new.objects.get(*id);
    let present = new.objects.iter().filter(differs);
    let gone = old
        .objects
        .keys()
        .filter(|id| !new.objects.contains_key(id));
    let gone = gone.map(|id| id.removed());
    present.map(|(_, found)| found.present()).chain(gone)
}

fn unknown_place(unknown: &Unknown) -> String {
    let Unknown {
        kind,
        name,
        known: names,
    } = unknown;
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let known = match names.is_empty() {
        true => "the manifests name none at all".to_owned(),
        false => known(&names),
    };
    let option = format!("--without-{}", kind.to_lowercase());
    format!(
        "error: {kind} {name}: neither a Node nor an endpoint names it ({known}); check {option}"
    )
}
