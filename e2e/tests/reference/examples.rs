//! Commands in documents are commands that the programs accept.

use std::path::Path;

use clap::Command;
use clap::error::ErrorKind;

use crate::{commands, root};

/// A command in a document.
#[derive(Debug)]
struct Example {
    place: String,
    text: String,
    /// Part of a sentence: it may leave out what the sentence is not about.
    in_a_sentence: bool,
}

/// All commands in the document at a path.
fn examples(path: &Path, text: &str) -> Vec<Example> {
    let (mut found, mut block, mut continued) = (Vec::new(), false, String::new());
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        if line.trim_start().starts_with("```") {
            block = !block;
            continue;
        }
        if block {
            let line = line.trim_start().trim_start_matches("$ ");
            continued.push_str(line.trim_end_matches('\\'));
            if !line.ends_with('\\') {
                let text = std::mem::take(&mut continued);
                let in_a_sentence = false;
                found.push(Example {
                    place,
                    text,
                    in_a_sentence,
                });
            }
            continue;
        }
        for code in line.split('`').skip(1).step_by(2) {
            let (place, text) = (place.clone(), code.to_owned());
            let in_a_sentence = true;
            found.push(Example {
                place,
                text,
                in_a_sentence,
            });
        }
    }
    found
}

/// The words of the part of a command line that begins with the name of a program.
fn words(text: &str, program: &str) -> Option<Vec<String>> {
    let start = [program.to_owned(), format!("sudo {program}")];
    let part = text
        .split(" | ")
        .chain(text.split("; "))
        .chain(text.split(" && "));
    let part = part.map(str::trim).find(|part| {
        start.iter().any(|start| {
            let rest = part.strip_prefix(start.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    })?;
    let part = part
        .split([';', '>'])
        .next()?
        .split(" | ")
        .next()?
        .split(" && ")
        .next()?;
    // An ellipsis stands for arguments that the document does not repeat.
    let part = part.replace('…', " ");
    shlex::split(part.strip_prefix("sudo ").unwrap_or(&part))
}

/// Why a program does not accept a command.
fn problem(program: &Command, name: &str, example: &Example) -> Option<String> {
    let words = words(&example.text, name)?;
    let begin = name.split(' ').count();
    let arguments = words.iter().skip(begin).cloned();
    // The first word is the program.
    let given = std::iter::once(name.to_owned()).chain(arguments);
    let error = program.clone().try_get_matches_from(given).err()?;
    let is_partial = example.in_a_sentence || example.text.contains('…');
    let has_placeholder = words.iter().any(|word| {
        let letters = word.chars().filter(|letter| letter.is_alphabetic());
        letters.clone().count() > 0 && word.chars().all(|letter| !letter.is_lowercase())
    });
    let accepted = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_partial,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => has_placeholder,
        _ => false,
    };
    let text = &example.text;
    (!accepted).then(|| format!("{}: `{text}`: {error}", example.place))
}

/// The programs by the words that begin their commands in documents.
fn programs() -> Vec<(String, Command)> {
    let mut named: Vec<_> = commands::programs()
        .into_iter()
        .map(|program| (program.get_name().to_owned(), program))
        .collect();
    let lab = portolan_lab::cli::command();
    for name in ["verify", "demo"] {
        let program = lab.find_subcommand(name).unwrap().clone();
        named.push((format!("cargo {name}"), program));
    }
    named.push(("cargo lab".into(), lab));
    named
}

#[test]
fn programs_accept_the_commands_in_documents() {
    let (mut checked, mut problems) = (0, Vec::new());
    let programs = programs();
    for (path, text) in documents() {
        for example in examples(&path, &text) {
            for (name, program) in &programs {
                checked += usize::from(words(&example.text, name).is_some());
                problems.extend(problem(program, name, &example));
            }
        }
    }
    assert!(checked > 80, "only {checked} commands were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_command_that_a_program_does_not_have_is_found() {
    let text = "Run `kubectl proxyplan tops`.\n\n```console\n$ portolan-agent doctor --colour\n```\n`cargo demo --kept`\n";
    let found: Vec<_> = examples(Path::new("page.md"), text)
        .iter()
        .flat_map(|example| {
            programs()
                .iter()
                .filter_map(|(name, program)| problem(program, name, example))
                .collect::<Vec<_>>()
        })
        .map(|problem| problem.split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(found, ["page.md:1", "page.md:4", "page.md:6"]);
}

/// The documents for users and developers.
pub(crate) fn documents() -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    for start in [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs",
        "charts/portolan/README.md",
        "e2e/benchmarks",
    ] {
        collect(Path::new(start), &mut found);
    }
    found
}

fn collect(path: &Path, found: &mut Vec<(std::path::PathBuf, String)>) {
    let full = root().join(path);
    if full.is_dir() {
        for entry in std::fs::read_dir(full).unwrap().map(Result::unwrap) {
            collect(&path.join(entry.file_name()), found);
        }
    } else if path.extension().is_some_and(|end| end == "md") && !is_left_out(path) {
        found.push((path.to_owned(), std::fs::read_to_string(full).unwrap()));
    }
}

/// Decisions name commands of their time. The reference of commands is made from their definitions.
fn is_left_out(path: &Path) -> bool {
    path.starts_with("docs/adr") || path == Path::new("docs/reference/commands.md")
}
