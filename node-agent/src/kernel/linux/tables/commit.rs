//! Executes transactions, and explains refusals.

use std::collections::BTreeMap;

use nft_rs::{Batch, Element, Errno, Error, Operation, Refusal, Socket, TableFlags};
use portolan_plan::Family;
use portolan_reconcile::nftables::{Encoded, SetName, Tables, Transaction, table_id};

use super::{AFFINITY_READS, failed, is_of_elements};
use crate::kernel::{CommitFailure, Extent, KernelError, RefusalCause, RefusedOperation};

/// Executes a transaction. See [`crate::kernel::TablesKernel::commit`].
pub(super) fn commit(
    socket: &mut Socket,
    transaction: &Transaction,
    tables: &Tables,
    flags: TableFlags,
    extent: Extent,
) -> Result<Vec<RefusedOperation>, CommitFailure> {
    let affinity = clients(socket, transaction)
        .map_err(|error| CommitFailure::Failed(failed("read the clients with affinity", &error)))?;
    let mut batch = Batch::new();
    let encoded = transaction.encode(tables, &affinity, flags, &mut batch);
    let explain = |refusals: &[Refusal]| explained(refusals, transaction, &encoded);
    match extent {
        Extent::Whole => match socket.commit(&batch) {
            Ok(()) => Ok(Vec::new()),
            Err(Error::Refused(refused)) if refused.whole.is_none() => {
                Err(CommitFailure::Refused(explain(&refused.refusals)))
            }
            Err(error) => Err(CommitFailure::Failed(failed("change the tables", &error))),
        },
        Extent::WithoutRefused => {
            let committed = socket.commit_without_refused(&batch);
            let committed = committed
                .map_err(|error| CommitFailure::Failed(failed("change the tables", &error)))?;
            let refused = explain(&committed.refusals);
            match refused.iter().find(|refused| refused.of_layout) {
                // Elements without all of the rules would let connections through that have to be dropped.
                Some(broken) => {
                    let error = broken.error.clone().in_doubt_if(true);
                    Err(CommitFailure::Failed(error))
                }
                None => Ok(refused),
            }
        }
    }
}

/// The elements of the affinity maps of tables that are rebuilt. Elements that just ended may be among them: such a client
/// stays with its backend once more.
fn clients(
    socket: &mut Socket,
    transaction: &Transaction,
) -> Result<BTreeMap<Family, Vec<Element>>, Error> {
    let mut clients = BTreeMap::new();
    for family in transaction.rebuilt() {
        let set = SetName::Affinity.to_string();
        let elements = socket.settled_elements(&table_id(family), &set, AFFINITY_READS)?;
        clients.insert(family, elements.unwrap_or_default());
    }
    Ok(clients)
}

fn explained(
    refusals: &[Refusal],
    transaction: &Transaction,
    encoded: &Encoded,
) -> Vec<RefusedOperation> {
    let refusals = refusals.iter().filter(|refusal| !is_client(refusal));
    let explained = refusals.flat_map(|refusal| {
        let numbers = encoded.refused(refusal).into_iter();
        numbers.filter_map(|number| explain(refusal, number, transaction))
    });
    explained.collect()
}

/// A client that cannot keep its backend gets another one.
fn is_client(refusal: &Refusal) -> bool {
    match &*refusal.what {
        Operation::AddElements(elements) => elements.set.parse() == Ok(SetName::Affinity),
        _ => false,
    }
}

fn explain(
    refusal: &Refusal,
    number: usize,
    transaction: &Transaction,
) -> Option<RefusedOperation> {
    let owner = transaction.owner(number)?;
    let of_layout = !is_of_elements(&refusal.what);
    let cause = cause(refusal.errno);
    let of_service = owner.service.is_some() && !of_layout && cause == RefusalCause::Value;
    // The operation says what it was for, and the refusal which part of the layout it is about.
    let action = match of_layout {
        true => format!("{}: {}", owner.operation, refusal.what),
        false => owner.operation.to_string(),
    };
    Some(RefusedOperation {
        number,
        cause,
        of_layout,
        error: KernelError::new(&action, &refusal.errno).of_service_if(of_service),
    })
}

fn cause(errno: Errno) -> RefusalCause {
    /// `ERANGE`: the length of a value differs from that of the set.
    const RANGE: Errno = Errno(34);
    match errno {
        Errno::NOT_FOUND | Errno::EXISTS | Errno::IN_USE => RefusalCause::State,
        Errno::INVALID | Errno::TOO_LONG | RANGE => RefusalCause::Value,
        _ => RefusalCause::Node,
    }
}
