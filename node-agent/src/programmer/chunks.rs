//! Splits operations into chunks.

use portolan_reconcile::Op;

/// Number of operations per chunk: enough to fill every send, and few enough that the requests and results of a first
/// plan take little memory.
pub(super) const CHUNK_SIZE: usize = 4096;

/// Yields operations in order, chunk by chunk, and frees the memory of those already yielded: the updates of the
/// shadow need about as much.
#[derive(Debug)]
pub(super) struct Chunks {
    /// The remaining operations in reverse order, because memory is freed at the end.
    reversed: Vec<Op>,
}

impl Chunks {
    pub(super) fn of(mut ops: Vec<Op>) -> Self {
        ops.reverse();
        Self { reversed: ops }
    }
}

impl Iterator for Chunks {
    type Item = Vec<Op>;

    fn next(&mut self) -> Option<Vec<Op>> {
        let left = self.reversed.len().saturating_sub(CHUNK_SIZE);
        let mut chunk = self.reversed.split_off(left);
        self.reversed.shrink_to_fit();
        chunk.reverse();
        (!chunk.is_empty()).then_some(chunk)
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
    fn chunks_contain_all_operations_in_order_and_none_is_too_large() {
        for count in [
            0,
            1,
            CHUNK_SIZE - 1,
            CHUNK_SIZE,
            CHUNK_SIZE + 1,
            3 * CHUNK_SIZE + 7,
        ] {
            let chunks: Vec<_> = Chunks::of(ops(count)).collect();
            assert_eq!(
                chunks.len(),
                count.div_ceil(CHUNK_SIZE),
                "{count} operations"
            );
            assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_SIZE));
            assert_eq!(chunks.concat(), ops(count));
        }
    }

    #[test]
    fn yielded_operations_take_no_memory() {
        let mut chunks = Chunks::of(ops(10 * CHUNK_SIZE));
        let mut last = chunks.reversed.capacity();
        while chunks.next().is_some() {
            let now = chunks.reversed.capacity();
            assert!(now < last || now == 0, "{now} of {last}");
            last = now;
        }
        assert_eq!(last, 0);
    }
}
