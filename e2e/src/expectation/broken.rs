//! The table of mutations, and the cell that has to detect each.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Row, check_rules};
use crate::topology::Network;
use crate::topology::world::Node;
use crate::traffic::Protocol;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mutations: Vec<Raw>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    network: Network,
    node: String,
    #[serde(rename = "break")]
    break_it: Vec<String>,
    undo: Vec<String>,
    cell: Cell,
    #[serde(default)]
    overlay: bool,
    fails: Vec<String>,
    rules: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    from: String,
    dial: SocketAddr,
    protocol: Protocol,
}

/// Kernel state that is broken on purpose.
#[derive(Debug)]
pub struct Mutation {
    /// A description.
    pub name: String,
    /// On which network.
    pub network: Network,
    /// Where.
    pub node: Node,
    /// The programs that break it, with their arguments.
    pub break_it: Vec<String>,
    /// The programs that undo that.
    pub undo: Vec<String>,
    /// The cell that has to notice.
    pub row: Row,
    /// Not the cell notices it, but the overlay's packets show it once the cell was run.
    pub overlay: bool,
    /// One of these is in the explanation of the cell.
    pub fails: Vec<String>,
    /// Rows of the semantics table.
    pub rules: Vec<String>,
}

/// Reads a table; cells are found among `rows`.
///
/// # Errors
/// Names the mutation that does nothing, has an unknown client, or whose cell is in no other table.
pub fn read(table: &str, rows: &[&Row]) -> Result<Vec<Mutation>> {
    let table: Table = serde_saphyr::from_str(table).context("read the table of mutations")?;
    ensure!(!table.mutations.is_empty(), "the table has no mutations");
    let mutations = table.mutations.into_iter();
    mutations
        .map(|raw| {
            let name = raw.name.clone();
            complete(raw, rows).with_context(|| format!("mutation {name:?}"))
        })
        .collect()
}

fn complete(raw: Raw, rows: &[&Row]) -> Result<Mutation> {
    check_rules(&raw.rules)?;
    ensure!(
        !raw.break_it.is_empty() && !raw.undo.is_empty() && !raw.fails.is_empty(),
        "break, undo, fails: at least one each"
    );
    let node = Node::ALL.into_iter().find(|node| node.name() == raw.node);
    let Cell {
        from,
        dial,
        protocol,
    } = raw.cell;
    let row = rows
        .iter()
        .find(|row| row.from.name() == from && row.target == dial && row.protocol == protocol);
    let row = row.with_context(|| format!("cell: no table has {from} -> {dial} {protocol}"))?;
    Ok(Mutation {
        node: node.with_context(|| format!("node: none is called {:?}", raw.node))?,
        row: (*row).clone(),
        name: raw.name,
        network: raw.network,
        overlay: raw.overlay,
        break_it: raw.break_it,
        undo: raw.undo,
        fails: raw.fails,
        rules: raw.rules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::places::Places;
    use crate::expectation::{external, matrix};
    use crate::files::{BROKEN, EXTERNAL, EXTERNAL_PATH, Files, MATRIX};

    #[test]
    fn every_mutation_names_a_cell_of_a_table() {
        let text = |path| Files::at(None).text(path).unwrap();
        let places = Places::read(&text(EXTERNAL[0])).unwrap();
        let matrix = matrix::read(&text(MATRIX), &places).unwrap();
        let more = external::read(&text(EXTERNAL_PATH)).unwrap();
        let rows: Vec<&Row> = matrix.cells.values().chain(&more).collect();
        let mutations = read(&text(BROKEN), &rows).unwrap();
        for network in Network::ALL {
            assert!(mutations.iter().any(|mutation| mutation.network == network));
        }
        let error = format!("{:#}", read(&text(BROKEN), &[]).unwrap_err());
        assert!(
            error.contains("cell: no table has outside -> 203.0.113.1:80 TCP"),
            "{error}"
        );
    }
}
