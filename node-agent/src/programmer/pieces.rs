//! Splits operations into chunks.

use portolan_reconcile::Op;

/// Number of operations per chunk: enough to fill every send, and few enough that the requests and results of a first
/// plan take little memory.
const AT_ONCE: usize = 4096;

/// Yields operations in order, chunk by chunk, and frees the memory of those already yielded: the updates of the
/// shadow need about as much.
#[derive(Debug)]
pub(super) struct InPieces {
    /// The remaining operations in reverse order, because memory is freed at the end.
    reversed: Vec<Op>,
}

impl InPieces {
    pub(super) fn of(mut ops: Vec<Op>) -> Self {
        ops.reverse();
        Self { reversed: ops }
    }
}

impl Iterator for InPieces {
    type Item = Vec<Op>;

    fn next(&mut self) -> Option<Vec<Op>> {
        let left = self.reversed.len().saturating_sub(AT_ONCE);
        let mut piece = self.reversed.split_off(left);
        self.reversed.shrink_to_fit();
        piece.reverse();
        (!piece.is_empty()).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use portolan_reconcile::SchedulerOp;

    use super::*;

    fn ops(count: usize) -> Vec<Op> {
        let set = |number: usize| {
            Op::Scheduler(SchedulerOp {
                scheduler: number.to_string().into(),
            })
        };
        (0..count).map(set).collect()
    }

    #[test]
    fn pieces_are_all_operations_in_order_and_none_is_too_large() {
        for count in [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 7] {
            let pieces: Vec<_> = InPieces::of(ops(count)).collect();
            assert_eq!(pieces.len(), count.div_ceil(AT_ONCE), "{count} operations");
            assert!(pieces.iter().all(|piece| piece.len() <= AT_ONCE));
            assert_eq!(pieces.concat(), ops(count));
        }
    }

    #[test]
    fn yielded_operations_take_no_memory() {
        let mut pieces = InPieces::of(ops(10 * AT_ONCE));
        let mut last = pieces.reversed.capacity();
        while pieces.next().is_some() {
            let now = pieces.reversed.capacity();
            assert!(now < last || now == 0, "{now} of {last}");
            last = now;
        }
        assert_eq!(last, 0);
    }
}
