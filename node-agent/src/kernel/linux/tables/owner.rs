//! Tables with an owner, from kernel 6.9 on: while the agent runs, other programs cannot change or delete them, not even
//! with `nft flush ruleset`. They stay when the agent ends, without an owner, and the next agent adopts them.

use nft_rs::{Batch, Error, Socket, Table, TableFlags};
use portolan_plan::Family;
use portolan_reconcile::nftables::table_id;

use super::failed;
use crate::kernel::KernelError;

/// The flags of a table that has an owner and stays without it.
pub(super) const OWNED: TableFlags = TableFlags {
    dormant: false,
    owner: true,
    persist: true,
};

/// The name of a table that exists only within one transaction.
const PROBE: &str = "portolan-probe";

/// Whether the kernel knows these flags.
pub(super) fn is_supported(socket: &mut Socket) -> Result<bool, KernelError> {
    let mut batch = Batch::new();
    let table = Table {
        flags: OWNED,
        ..Table::new(nft_rs::Family::Ipv4, PROBE)
    };
    batch.add_table(&table);
    batch.delete_table(&table.id());
    match socket.commit(&batch) {
        Ok(()) => Ok(true),
        // Unknown flags are an unsupported operation, or an invalid one before.
        Err(Error::Refused(_)) => Ok(false),
        Err(error) => Err(failed("ask whether tables can have an owner", &error)),
    }
}

/// Becomes the owner of a table whose owner has ended. Tables that never had one, and those of a running process, are
/// left as they are.
pub(super) fn adopt(socket: &mut Socket, family: Family) -> Result<bool, KernelError> {
    let action = format!("adopt the {family} table");
    let id = table_id(family);
    let found = socket.table(&id).map_err(|error| failed(&action, &error))?;
    let Some(found) = found.filter(|found| found.flags.persist && !found.flags.owner) else {
        return Ok(false);
    };
    let mut batch = Batch::new();
    batch.add_table(&Table {
        flags: TableFlags {
            dormant: found.flags.dormant,
            ..OWNED
        },
        ..Table::new(id.family, id.name)
    });
    let committed = socket.commit(&batch);
    committed.map_err(|error| failed(&action, &error))?;
    Ok(true)
}
