//! Output formats, and the report of `wait`.

use std::io::{self, Write};

use clap::ValueEnum;

use crate::convergence::Verdict;

/// Maximum number of nodes in a table.
const NAMED: usize = 20;

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table for people.
    #[default]
    Table,
    /// JSON for programs.
    Json,
}

/// Prints a verdict.
pub(super) fn print(verdict: &Verdict, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, verdict)?;
            writeln!(out)
        }
        Output::Table => table(verdict, &mut out),
    }
}

fn table(verdict: &Verdict, out: &mut impl Write) -> io::Result<()> {
    let Verdict {
        service,
        converged,
        held_up,
        in_force,
        waiting,
        excluded,
    } = verdict;
    let state = if *converged {
        "everywhere"
    } else {
        "not everywhere"
    };
    writeln!(
        out,
        "{service} is {state}: in force on {in_force} nodes, waiting for {}, {} not waited for",
        waiting.len(),
        excluded.len()
    )?;
    for reason in held_up {
        writeln!(out, "  {reason}")?;
    }
    let rows = waiting
        .iter()
        .map(|row| ("waiting", &row.node, &row.reason));
    let rows = rows.chain(
        excluded
            .iter()
            .map(|row| ("not waited for", &row.node, &row.reason)),
    );
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    let width = rows.iter().take(NAMED).map(|(_, node, _)| node.len());
    let width = width.max().unwrap_or(0).max("NODE".len());
    writeln!(out, "\n{:width$}  {:14}  WHY", "NODE", "STATE")?;
    for (state, node, reason) in rows.iter().take(NAMED) {
        writeln!(out, "{node:width$}  {state:14}  {reason}")?;
    }
    match rows.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more; -o json names all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convergence::{Excluded, Waiting};

    #[test]
    fn a_verdict_names_the_nodes_that_lack_it() {
        let verdict = Verdict {
            service: "shop/cart".into(),
            converged: false,
            held_up: vec!["https://10.0.0.5:10271: connection refused".into()],
            in_force: 812,
            waiting: vec![Waiting {
                node: "node-17".into(),
                reason: "on its way".into(),
            }],
            excluded: vec![Excluded {
                node: "edge-2".into(),
                reason: "it is not Ready, and has no stream".into(),
            }],
        };
        let mut out = Vec::new();
        table(&verdict, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        shop/cart is not everywhere: in force on 812 nodes, waiting for 1, 1 not waited for
          https://10.0.0.5:10271: connection refused

        NODE     STATE           WHY
        node-17  waiting         on its way
        edge-2   not waited for  it is not Ready, and has no stream
        ");
    }
}
