//! Writes: many requests in one send, with an answer for each.

use netlink_blocking::Outgoing;

use super::{ENOENT, MAX_PER_SEND, Socket};
use crate::ahead::write_ahead;
use crate::batch::{Batch, Form};
use crate::error::Error;
use crate::request::Request;

impl Socket {
    /// Executes writes in order, up to `per_send` (1 to [`MAX_PER_SEND`]) per send, and returns one result for each.
    /// A failed write does not stop the others.
    pub fn execute(&mut self, requests: &[Request], per_send: usize) -> Vec<Result<(), Error>> {
        let failed = self.execute_each(requests, Request::clone, per_send);
        let mut results: Vec<_> = requests.iter().map(|_| Ok(())).collect();
        for (place, error) in failed {
            if let Some(result) = results.get_mut(place) {
                *result = Err(error);
            }
        }
        results
    }

    /// The same as [`Socket::execute`] for many writes that need not exist in memory at once: `request` creates the
    /// request of an item when it is encoded, and again if it fails. Returns the failures by index, in order.
    ///
    /// If there are many, another thread encodes the next sends while the kernel works on one.
    pub fn execute_each<T: Sync>(
        &mut self,
        items: &[T],
        request: impl Fn(&T) -> Request + Sync,
        per_send: usize,
    ) -> Vec<(usize, Error)> {
        let per_send = per_send.clamp(1, MAX_PER_SEND);
        let mut failed = Vec::new();
        write_ahead(items, &request, per_send, self.form(), |(done, batch)| {
            let rest = items.get(done..).unwrap_or_default();
            let (items, _) = rest.split_at(batch.taken.min(rest.len()));
            let outcome = self.execute_batch(batch, items, &request).into_iter();
            failed.extend(outcome.map(|(place, error)| (done.saturating_add(place), error)));
        });
        failed
    }

    /// The form for which the next send must be encoded.
    fn form(&self) -> Form {
        Form {
            family_id: self.family_id,
            sequence: self.channel.sequence(),
        }
    }

    fn execute_batch<T>(
        &mut self,
        mut batch: Batch,
        items: &[T],
        request: impl Fn(&T) -> Request,
    ) -> Vec<(usize, Error)> {
        // Another request was sent after it was encoded, or the family number changed.
        if !batch.is_of(self.form()) {
            batch = Batch::build(items, &request, self.form());
        }
        let mut failed = self.send_batch(&mut batch, items, &request);
        if all_missing(&failed, batch.taken) && self.family_moved(&mut failed) {
            batch = Batch::build(items, &request, self.form());
            failed = self.send_batch(&mut batch, items, &request);
        }
        failed
    }

    /// Looks up the family again, because every request failed as if the family were gone. Returns whether its number
    /// changed. If there is no IPVS, all requests get that error.
    fn family_moved(&mut self, outcome: &mut [(usize, Error)]) -> bool {
        match self.look_up_family() {
            Ok(id) if id != self.family_id => {
                self.family_id = id;
                true
            }
            Ok(_) => false,
            Err(error) => {
                for (_, of_request) in outcome {
                    *of_request = error.clone();
                }
                false
            }
        }
    }

    /// Sends a batch and returns the failures by index, in order.
    fn send_batch<T>(
        &mut self,
        batch: &mut Batch,
        items: &[T],
        request: impl Fn(&T) -> Request,
    ) -> Vec<(usize, Error)> {
        let after = self.form().behind(batch.taken);
        self.channel.took_up_to(after.sequence);
        let Some(fence) = batch.fence else {
            return std::mem::take(&mut batch.refused);
        };
        let mut answers = vec![None; batch.taken];
        let exchanged = self.exchange(batch, fence, &mut answers);
        let failure = self.channel.settle(exchanged, Error::is_of_socket).err();
        let mut refused = std::mem::take(&mut batch.refused).into_iter().peekable();
        let mut failed = Vec::new();
        for (place, (item, answer)) in items.iter().zip(answers).enumerate() {
            if let Some(refused) = refused.next_if(|(at, _)| *at == place) {
                failed.push(refused);
                continue;
            }
            let error = match (answer, &failure) {
                (Some(0), _) | (None, None) => continue,
                (Some(errno), _) => Error::Kernel {
                    errno,
                    request: Box::new(request(item)),
                },
                (None, Some(failure)) => failure.clone(),
            };
            failed.push((place, error));
        }
        failed
    }

    /// Sends a batch and collects answers by request index, until the fence is answered.
    fn exchange(
        &mut self,
        batch: &Batch,
        fence: usize,
        answers: &mut [Option<i32>],
    ) -> Result<(), Error> {
        self.channel.send(&Outgoing {
            bytes: &batch.bytes,
            messages: batch.messages,
            writes: true,
        })?;
        let fence = batch.sequence_of(fence);
        let lost = self.channel.collect_answers(fence, |message, errno| {
            let place = batch.place(message.header.sequence_number);
            if let Some(answer) = place.and_then(|place| answers.get_mut(place)) {
                *answer = Some(errno);
            }
        })?;
        if lost {
            return Err(Error::Socket(netlink_blocking::Error::AnswerLost));
        }
        Ok(())
    }
}

/// Whether every request that was sent failed as if the family were gone.
fn all_missing(failed: &[(usize, Error)], requests: usize) -> bool {
    let missing = |error: &Error| error.errno() == Some(ENOENT);
    let unsent = |error: &Error| matches!(error, Error::NotAWrite { .. } | Error::Encode { .. });
    failed.len() == requests
        && failed.iter().any(|(_, error)| missing(error))
        && failed.iter().all(|(_, e)| missing(e) || unsent(e))
}
