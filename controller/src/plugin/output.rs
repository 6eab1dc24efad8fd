//! Output formats, and the report of `wait`.

use std::io::{self, Write};
use std::net::IpAddr;

use clap::ValueEnum;

use crate::convergence::Verdict;

/// Maximum number of nodes in a table.
const MAX_ROWS: usize = 20;

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table for people.
    #[default]
    Table,
    /// JSON for tools.
    Json,
}

/// Prints a verdict. `gone` is the address that was to leave the Service, if that was the question.
pub(super) fn print(verdict: &Verdict, gone: Option<IpAddr>, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, verdict)?;
            writeln!(out)
        }
        Output::Table => table(verdict, gone, &mut out),
    }
}

fn table(verdict: &Verdict, gone: Option<IpAddr>, out: &mut impl Write) -> io::Result<()> {
    let Verdict {
        service,
        converged,
        held_up,
        in_force,
        waiting,
        excluded,
    } = verdict;
    let state = match (gone, converged) {
        (None, true) => format!("{service} is in force on all nodes"),
        (None, false) => format!("{service} is not in force on all nodes"),
        (Some(address), true) => format!("{address} has left {service} on all nodes"),
        (Some(address), false) => format!("{address} has not left {service} on all nodes"),
    };
    writeln!(
        out,
        "{state}: {in_force} nodes are done, waiting for {}, not waiting for {}",
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
    let width = rows.iter().take(MAX_ROWS).map(|(_, node, _)| node.len());
    let width = width.max().unwrap_or(0).max("NODE".len());
    writeln!(out, "\n{:width$}  {:14}  WHY", "NODE", "STATE")?;
    for (state, node, reason) in rows.iter().take(MAX_ROWS) {
        writeln!(out, "{node:width$}  {state:14}  {reason}")?;
    }
    match rows.len().saturating_sub(MAX_ROWS) {
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
                reason: "its agent has not answered the last batch yet".into(),
            }],
            excluded: vec![Excluded {
                node: "edge-2".into(),
                reason: "it is not Ready, and its agent is not connected".into(),
            }],
        };
        let mut out = Vec::new();
        table(&verdict, None, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        shop/cart is not in force on all nodes: 812 nodes are done, waiting for 1, not waiting for 1
          https://10.0.0.5:10271: connection refused

        NODE     STATE           WHY
        node-17  waiting         its agent has not answered the last batch yet
        edge-2   not waited for  it is not Ready, and its agent is not connected
        ");
    }

    #[test]
    fn a_verdict_about_an_address_names_it() {
        let verdict = Verdict {
            service: "shop/cart".into(),
            converged: true,
            held_up: Vec::new(),
            in_force: 812,
            waiting: Vec::new(),
            excluded: Vec::new(),
        };
        let mut out = Vec::new();
        table(&verdict, "10.244.3.17".parse().ok(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "10.244.3.17 has left shop/cart on all nodes: 812 nodes are done,";
        assert!(text.starts_with(expected), "{text}");
    }
}
