//! Commits what the kernel accepts of a transaction.

use crate::batch::{Batch, Refusal};
use crate::chunk::{self, Chunk};
use crate::commit::Answers;
use crate::error::Error;
use crate::refused::Refused;
use crate::socket::Socket;

/// Each attempt halves the longest message that is refused, which has below a thousand elements. More attempts are
/// needed only if an operation is refused because another one is missing.
const ATTEMPTS: u32 = 40;

/// What was committed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// The operations and elements that were left out, in the order of the batch.
    pub refusals: Vec<Refusal>,
    /// The number of transactions that were sent, of which the last one was executed.
    pub attempts: u32,
}

impl Socket {
    /// Executes a transaction without what the kernel refuses of it, which is found in several attempts: at most 40. Each
    /// refusal names its element. If everything is refused, nothing is executed and this is not an error.
    ///
    /// # Errors
    /// [`Error::Refused`] if the kernel refuses the transaction as a whole; [`Error::StillRefused`] after the last
    /// attempt; [`Error::TooLarge`], [`Error::Socket`].
    pub fn commit_without_refused(&mut self, batch: &Batch) -> Result<Committed, Error> {
        let mut committed = Committed {
            refusals: batch.unencodable().to_vec(),
            attempts: 0,
        };
        let mut chunks = chunk::all(batch);
        while !chunks.is_empty() {
            committed.attempts = committed.attempts.saturating_add(1);
            let answers = self.attempt(batch, &chunks)?;
            if answers.is_accepted() {
                break;
            }
            let found = committed.refusals.len();
            let remaining = without_refused(batch, &chunks, &answers, &mut committed.refusals);
            let last = || Refused {
                refusals: committed.refusals.get(found..).unwrap_or_default().to_vec(),
                whole: answers.whole,
                incomplete: answers.lost,
            };
            // Without the name of an operation, another attempt would be the same.
            if answers.refused.is_empty() {
                return Err(Error::Refused(last()));
            }
            if committed.attempts >= ATTEMPTS {
                return Err(Error::StillRefused {
                    attempts: committed.attempts,
                    last: last(),
                });
            }
            chunks = remaining;
        }
        committed
            .refusals
            .sort_by_key(|refusal| (refusal.operation, refusal.element));
        Ok(committed)
    }
}

/// What is to be sent again after an attempt was refused.
fn without_refused(
    batch: &Batch,
    chunks: &[Chunk],
    answers: &Answers,
    refusals: &mut Vec<Refusal>,
) -> Vec<Chunk> {
    let mut refused = answers.refused.iter().peekable();
    let mut remaining = Vec::with_capacity(chunks.len());
    for (number, chunk) in chunks.iter().enumerate() {
        match refused.next_if(|(at, ..)| *at == number) {
            None => remaining.push(chunk.clone()),
            Some((_, errno, offset)) => {
                let finding = chunk.refused(batch, *errno, *offset);
                refusals.extend(finding.refusal);
                remaining.extend(finding.again);
            }
        }
    }
    remaining
}
