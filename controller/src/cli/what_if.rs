//! `portolan-controller plan --diff`, `--without-zone` and `--without-node`: what would change.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use clap::Args;
use portolan_planner::compare::{Difference, Lost, Plans, Unknown};
use portolan_planner::model::Event;

use super::plan::{PlanArguments, known, planner, read, say, show, summary, unknown_node};
use super::{INCOMPLETE, UNUSABLE};
use crate::manifests::Manifests;
use crate::output::Format;
use crate::output::difference::{Question, document, render};

#[derive(Debug, Args)]
pub(super) struct WhatIfArguments {
    /// What would change with these manifests instead: a folder, a file, or - for standard input.
    #[arg(long, value_name = "DIR|FILE|-")]
    diff: Option<String>,
    /// What would change without this zone: its nodes and the endpoints in it. May be repeated.
    #[arg(long, value_name = "ZONE")]
    without_zone: Vec<Arc<str>>,
    /// What would change without this node and the endpoints on it. May be repeated.
    #[arg(long, value_name = "NAME")]
    without_node: Vec<Arc<str>>,
}

impl WhatIfArguments {
    /// Whether what would change is asked for, rather than what is.
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
        return say(UNUSABLE, message);
    }
    let now = arguments.manifests.read();
    let (now, then) =
        match now.and_then(|now| Ok((now, diff.map(|from| read(&[from])).transpose()?))) {
            Ok(manifests) => manifests,
            Err(code) => return code,
        };
    let difference = match difference(arguments, &now, then.as_ref()) {
        Ok(difference) => difference,
        Err(message) => return say(UNUSABLE, &message),
    };
    let question = Question {
        diff: wish.diff.clone(),
        lost: wish.lost(),
        node: arguments.node.clone(),
    };
    match print_difference(&question, &difference, arguments.output) {
        Ok(()) => summary(std::iter::once(&now).chain(&then)),
        Err(error) => say(INCOMPLETE, &error),
    }
}

/// Prints a difference on standard output.
///
/// # Errors
/// What to tell when it cannot be written.
pub(crate) fn print_difference(
    question: &Question,
    difference: &Difference,
    output: Format,
) -> Result<(), String> {
    let document = document(question, difference);
    let colour = io::stdout().is_terminal();
    show(render(&document, output, colour), "what would change")
}

/// What would change, or what to say when that cannot be told.
fn difference(
    arguments: &PlanArguments,
    now: &Manifests,
    then: Option<&Manifests>,
) -> Result<Difference, String> {
    // One planner goes on: it plans again only what differs, and what does not is one value.
    let mut planner = planner(now);
    let before = Plans::from(&planner);
    if let Some(then) = then {
        planner.apply(changes(now, then));
    }
    let lost = arguments.what_if.lost().events(planner.model());
    planner.apply(lost.map_err(|unknown| nobody(&unknown))?);
    let after = Plans::from(&planner);
    match arguments.node.as_deref() {
        None => Ok(Difference::between(&before, &after)),
        Some(node) if before.nodes.contains_key(node) || after.nodes.contains_key(node) => {
            Ok(Difference::on_node(node, &before, &after))
        }
        Some(node) => Err(unknown_node(node, now)),
    }
}

/// The events that lead from some manifests to others.
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

fn nobody(unknown: &Unknown) -> String {
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
