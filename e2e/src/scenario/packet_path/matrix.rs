//! The matrix as text: one line for each place of each Service, and more than one only where
//! protocols or families differ.

use std::collections::BTreeMap;

use anyhow::Result;

use super::cell::Cell;
use super::lab::spoken_here;
use super::{Checks, conclude};
use crate::console::Table;
use crate::expectation::matrix::{Coordinates, Dimensions, Matrix};
use crate::expectation::places::Place;
use crate::harness::Lab;
use crate::topology::world::{Family, Resident};
use crate::traffic::Protocol;

/// Runs every cell and shows the matrix.
pub(super) fn run(
    lab: &Lab<'_>,
    checks: &mut Checks,
    matrix: &Matrix,
    heading: &str,
    all: usize,
) -> Result<()> {
    let (rows, unspoken) = spoken_here(matrix.cells.values());
    let cells = lab.run_cells(rows)?;
    lab.heading(heading);
    lab.stage.console.table(&table(matrix, &cells)?);
    conclude(lab.stage.console, checks, &cells, unspoken, all)
}

type Kind = (Protocol, Family);
/// Protocols and families over which clients meet the same, and what that is.
type Line<'cells> = (Vec<Kind>, Vec<&'cells str>);

fn table(matrix: &Matrix, cells: &[Cell<'_>]) -> Result<Table> {
    let clients = matrix.dimensions.clients()?;
    let texts = texts(matrix, cells);
    let mut lines: BTreeMap<(&str, Place), Vec<Line<'_>>> = BTreeMap::new();
    for at in texts.keys() {
        let line = lines.entry((at.to.as_str(), at.at)).or_default();
        let kind = (at.protocol, at.family);
        if line.iter().any(|(kinds, _)| kinds.contains(&kind)) {
            continue;
        }
        let words = words(&texts, at, &clients);
        match line.iter_mut().find(|(_, others)| *others == words) {
            Some((kinds, _)) => kinds.push(kind),
            None => line.push((vec![kind], words)),
        }
    }
    let names = clients.iter().map(|client| client.name().to_uppercase());
    let header = ["TO", "AT", "OVER"].map(str::to_owned).into_iter();
    let mut table = Table::new(header.chain(names));
    for frontends in &matrix.dimensions.to {
        let to = frontends.service.as_str();
        for at in &frontends.at {
            for (kinds, words) in lines.remove(&(to, *at)).unwrap_or_default() {
                let over = over(&matrix.dimensions, &kinds);
                table.row([to, at.name(), &over].into_iter().chain(words));
            }
        }
    }
    Ok(table)
}

fn texts<'cells>(
    matrix: &'cells Matrix,
    cells: &'cells [Cell<'_>],
) -> BTreeMap<&'cells Coordinates, &'cells str> {
    let text = |row| {
        let mut found = cells.iter();
        let cell = found.find(|cell| std::ptr::eq(cell.row, row));
        cell.map_or("not run", Cell::text)
    };
    let cells = matrix.cells.iter();
    cells.map(|(at, row)| (at, text(row))).collect()
}

/// The result of each client there.
fn words<'cells>(
    texts: &BTreeMap<&Coordinates, &'cells str>,
    at: &Coordinates,
    clients: &[Resident],
) -> Vec<&'cells str> {
    let of = |from: &Resident| {
        let at = Coordinates {
            from: *from,
            ..at.clone()
        };
        texts.get(&at).copied().unwrap_or_default()
    };
    clients.iter().map(of).collect()
}

/// Protocols and families in few words: `all`, `UDP`, `TCP SCTP IPv6`, or one by one.
fn over(dimensions: &Dimensions, kinds: &[Kind]) -> String {
    let mut protocols = dimensions.protocols.clone();
    protocols.retain(|protocol| kinds.iter().any(|kind| kind.0 == *protocol));
    let mut families = dimensions.families.clone();
    families.retain(|family| kinds.iter().any(|kind| kind.1 == *family));
    if kinds.len() != protocols.len() * families.len() {
        return one_by_one(dimensions, kinds);
    }
    let mut words = Vec::new();
    if protocols.len() != dimensions.protocols.len() {
        words.extend(protocols.iter().map(ToString::to_string));
    }
    if families.len() != dimensions.families.len() {
        words.extend(families.iter().map(ToString::to_string));
    }
    if words.is_empty() {
        words.push("all".to_owned());
    }
    words.join(" ")
}

/// A protocol by itself stands for all families.
fn one_by_one(dimensions: &Dimensions, kinds: &[Kind]) -> String {
    let mut words = Vec::new();
    for protocol in &dimensions.protocols {
        let mut families = dimensions.families.clone();
        families.retain(|family| kinds.contains(&(*protocol, *family)));
        if families.len() == dimensions.families.len() {
            words.push(protocol.to_string());
        } else {
            words.extend(families.iter().map(|family| format!("{protocol}/{family}")));
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::matrix;
    use crate::expectation::places::Places;
    use crate::files::{EXTERNAL, Files, MATRIX};

    #[test]
    fn protocols_and_families_that_are_equal_share_a_line() {
        let files = Files::at(None);
        let places = Places::read(&files.text(EXTERNAL[0]).unwrap()).unwrap();
        let matrix = matrix::read(&files.text(MATRIX).unwrap(), &places).unwrap();
        let over = |kinds: &[Kind]| over(&matrix.dimensions, kinds);
        let (tcp, udp, sctp) = (Protocol::Tcp, Protocol::Udp, Protocol::Sctp);
        let (v4, v6) = (Family::IPv4, Family::IPv6);
        assert_eq!(over(&[(tcp, v4), (udp, v4), (sctp, v4)]), "IPv4");
        assert_eq!(over(&[(tcp, v4), (tcp, v6)]), "TCP");
        assert_eq!(over(&[(tcp, v4), (udp, v6)]), "TCP/IPv4 UDP/IPv6");
        assert_eq!(over(&[(tcp, v4), (tcp, v6), (udp, v6)]), "TCP UDP/IPv6");
        assert_eq!(table(&matrix, &[]).unwrap().len(), 16);
    }
}
