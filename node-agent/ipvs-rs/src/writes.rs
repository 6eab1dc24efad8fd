//! Batches of writes.
//!
//! Invariant: a batch ends with one acknowledged message, the fence. The kernel handles messages in order
//! and answers within the send call, so once the fence is answered every request before it without an
//! error has succeeded.

use std::ops::ControlFlow;

use crate::ahead::Batches;
use crate::batch::Batch;
use crate::channel::{Outgoing, Received};
use crate::error::Error;
use crate::message::{error_code, messages};
use crate::request::Request;
use crate::socket::{ENOENT, MAX_PER_SEND, Socket, unreadable};

impl Socket {
    /// Executes writes in order, up to `per_send` (1 to [`MAX_PER_SEND`]) in one send, and returns
    /// one result for each. A failed one does not stop the others.
    pub fn execute(&mut self, requests: &[Request], per_send: usize) -> Vec<Result<(), Error>> {
        let at = |place: usize| requests.get(place).cloned().unwrap_or(Request::GetInfo);
        let failed = self.execute_each(requests.len(), at, per_send);
        let mut results: Vec<_> = requests.iter().map(|_| Ok(())).collect();
        for (place, error) in failed {
            if let Some(result) = results.get_mut(place) {
                *result = Err(error);
            }
        }
        results
    }

    /// As [`Socket::execute`], for many writes that need not all be there at once: `request` gives each
    /// by its place, from 0 to `count`, a little before it is written, and again if it fails. Returns those
    /// that failed, by their places in order.
    pub fn execute_each(
        &mut self,
        count: usize,
        request: impl Fn(usize) -> Request + Sync,
        per_send: usize,
    ) -> Vec<(usize, Error)> {
        let mut failed = Vec::new();
        let mut done = 0_usize;
        while done < count {
            let batches = Batches {
                request: &request,
                next: done,
                count,
                per_send: per_send.clamp(1, MAX_PER_SEND),
                family_id: self.family_id,
                sequence: self.channel.sequence(),
            };
            batches.hand_out(|batch| {
                done = batch.from.saturating_add(batch.taken);
                self.write(batch, &request, &mut failed)
            });
        }
        failed
    }

    /// Writes a batch, and once more if the family moved meanwhile: then those that were made ahead are
    /// to be made anew.
    fn write(
        &mut self,
        mut batch: Batch,
        request: &impl Fn(usize) -> Request,
        failed: &mut Vec<(usize, Error)>,
    ) -> ControlFlow<()> {
        self.channel.given(batch.last_sequence());
        let mut outcome = self.send_batch(&mut batch, request);
        let missing = all_missing(&outcome, batch.taken);
        if missing && self.family_moved(&mut outcome) {
            let (from, again) = (batch.from, batch.taken);
            let sequence = self.channel.sequence();
            batch = Batch::build(request, from, again, self.family_id, sequence);
            self.channel.given(batch.last_sequence());
            outcome = self.send_batch(&mut batch, request);
        }
        let places = outcome.into_iter();
        failed.extend(places.map(|(place, error)| (batch.from.saturating_add(place), error)));
        if missing {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Looks the family up again, since each request failed as if it were gone; true if it has a
    /// new number. Without IPVS that is the result of all requests.
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

    /// The requests that failed, by their places in order.
    fn send_batch(
        &mut self,
        batch: &mut Batch,
        request: &impl Fn(usize) -> Request,
    ) -> Vec<(usize, Error)> {
        let Some(fence) = batch.fence else {
            return std::mem::take(&mut batch.refused);
        };
        let mut answers = vec![None; batch.taken];
        let exchanged = self.exchange(batch, fence, &mut answers);
        let failure = self.channel.settle(exchanged).err();
        let mut refused = std::mem::take(&mut batch.refused).into_iter().peekable();
        let mut failed = Vec::new();
        for (place, answer) in answers.into_iter().enumerate() {
            if let Some(refused) = refused.next_if(|(at, _)| *at == place) {
                failed.push(refused);
                continue;
            }
            let error = match (answer, &failure) {
                (Some(0), _) | (None, None) => continue,
                (Some(errno), _) => Error::Kernel {
                    errno,
                    request: Box::new(request(batch.from.saturating_add(place))),
                },
                (None, Some(failure)) => failure.clone(),
            };
            failed.push((place, error));
        }
        failed
    }

    /// Sends a batch and collects answers by the places of requests, until the fence is answered.
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
        let mut lost = false;
        loop {
            let datagram = match self.channel.receive(!lost)? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    // What is still queued can be read; the rest is gone, the fence perhaps, too.
                    lost = true;
                    continue;
                }
                Received::Nothing => return Err(Error::AnswerLost),
            };
            for message in messages(datagram) {
                let message = message.map_err(unreadable)?;
                let place = batch.place(message.header.sequence_number);
                if let Some(answer) = place.and_then(|place| answers.get_mut(place)) {
                    *answer = error_code(&message).or(*answer);
                }
            }
            if answers.get(fence).is_some_and(Option::is_some) {
                return if lost { Err(Error::AnswerLost) } else { Ok(()) };
            }
        }
    }
}

/// Whether every request that was sent failed as it does when the family is gone.
fn all_missing(failed: &[(usize, Error)], requests: usize) -> bool {
    let missing = |error: &Error| error.errno() == Some(ENOENT);
    let unsent = |error: &Error| matches!(error, Error::NotAWrite { .. } | Error::Encode { .. });
    failed.len() == requests
        && failed.iter().any(|(_, error)| missing(error))
        && failed.iter().all(|(_, e)| missing(e) || unsent(e))
}
