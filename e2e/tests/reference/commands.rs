//! The page of all commands, from their definitions.

use clap::Command;
use clap_markdown::{MarkdownOptions, help_markdown_command_custom};

const HEAD: &str = "# Commands

<!-- Made by `PORTOLAN_WRITE_REFERENCE=1 cargo test -p portolan-e2e --test reference`; do not edit. -->

Three programs: `kubectl proxyplan` for operators, `portolan-controller`, and `portolan-agent` on the nodes. `--help`
prints the same text.
";

/// The programs of an installation.
pub(crate) fn programs() -> [Command; 3] {
    [
        portolan_controller::plugin::command(),
        portolan_controller::cli::command(),
        portolan_agent::cli::command(),
    ]
}

pub(crate) fn page() -> String {
    let options = MarkdownOptions::new()
        .show_footer(false)
        .show_table_of_contents(false);
    let mut page = HEAD.to_owned();
    for program in programs() {
        let title = program.get_name().to_owned();
        let text = help_markdown_command_custom(&program, &options);
        let (_, body) = text.split_once('\n').unwrap();
        page.push_str(&format!("\n## {title}\n"));
        for line in body.lines() {
            // The page has one introduction for all programs.
            if line.starts_with("This document contains") {
                continue;
            }
            // One level below the title of the program; the names of groups of options are no headings.
            let line = match line.strip_prefix("###### ") {
                Some(group) => group.to_owned(),
                None if line.starts_with('#') => format!("#{line}"),
                None => line.trim_end().to_owned(),
            };
            page.push_str(&line);
            page.push('\n');
        }
    }
    while page.contains("\n\n\n") {
        page = page.replace("\n\n\n", "\n\n");
    }
    page.trim_end().to_owned() + "\n"
}
