//! Reads the tables.
//!
//! The lists of a table are not read as one: only the agent changes it. A change by another program between two lists
//! is reported as an event, after which everything is read again.

use nft_rs::{Set, Socket};
use portolan_plan::Family;
use portolan_reconcile::nftables::{ObservedTable, ObservedTables, SetName, table_id};

use super::failed;
use crate::kernel::KernelError;

/// The tables of both families.
pub(super) fn tables(socket: &mut Socket) -> Result<ObservedTables, KernelError> {
    let mut observed = ObservedTables::default();
    for family in Family::BOTH {
        if let Some(table) = table(socket, family)? {
            observed.tables.insert(family, table);
        }
    }
    Ok(observed)
}

fn table(socket: &mut Socket, family: Family) -> Result<Option<ObservedTable>, KernelError> {
    let Some((mut table, sets)) = layout(socket, family)? else {
        return Ok(None);
    };
    let id = table_id(family);
    let failed = |error: nft_rs::Error| failed(&action(family), &error);
    // By far the largest set, so its elements are not collected. It is the first one, so that there is nothing to copy.
    let largest = SetName::Endpoint.to_string();
    let add = |table: &mut ObservedTable, element| table.read(family, &largest, [element]);
    let filled = socket.fold_elements(&id, &largest, || table.clone(), add);
    if let Some(filled) = filled.map_err(failed)? {
        table = filled;
    }
    for set in &sets {
        match set.name.parse() {
            Ok(SetName::Endpoint) => {}
            Ok(known) if !known.is_filled_by_packets() => {
                let elements = socket.elements(&id, &set.name).map_err(failed)?;
                table.read(family, &set.name, elements.unwrap_or_default());
            }
            // A table with an unknown set is rebuilt.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(Some(table))
}

/// The table without elements, and its sets.
pub(super) fn layout(
    socket: &mut Socket,
    family: Family,
) -> Result<Option<(ObservedTable, Vec<Set>)>, KernelError> {
    let id = table_id(family);
    let read = |socket: &mut Socket| {
        let Some(table) = socket.table(&id)? else {
            return Ok(None);
        };
        let (chains, sets) = (socket.chains(&id)?, socket.sets(&id)?);
        let rules = socket.rules(&id)?;
        // A table that another program disabled does nothing, whatever it contains.
        let observed = match table.flags.dormant {
            true => ObservedTable::default(),
            false => ObservedTable::new(&chains, &sets, &rules),
        };
        Ok(Some((observed, sets)))
    };
    read(socket).map_err(|error| failed(&action(family), &error))
}

fn action(family: Family) -> String {
    format!("read the {family} table")
}
