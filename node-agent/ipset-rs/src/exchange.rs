//! Sends many messages at once and collects the kernel's answer to each.
//!
//! Invariant: the last message of a send is acknowledged; it is the fence. The kernel handles messages in order and
//! answers within the send call, so once the fence is answered, every message before it without an error has
//! succeeded.

use std::collections::HashMap;

use netlink_blocking::Outgoing;

use crate::error::Error;
use crate::fill::Failure;
use crate::message::failed_line;
use crate::request::Request;
use crate::socket::Socket;

impl Socket {
    /// Sends requests at once, with an acknowledgement for the last one, and returns the kernel's answer to each.
    pub(crate) fn exchange(
        &mut self,
        requests: &[Request],
    ) -> Result<Vec<Result<Option<Failure>, Error>>, Error> {
        let mut bytes = Vec::new();
        let mut sequences = Vec::with_capacity(requests.len());
        let last = requests.len().saturating_sub(1);
        for (index, request) in requests.iter().enumerate() {
            let envelope = self.envelope(index == last);
            sequences.push(envelope.sequence);
            request
                .encode(envelope, &mut bytes)
                .map_err(|source| Error::Encode {
                    request: Box::new(request.clone()),
                    source,
                })?;
        }
        self.channel.send(&Outgoing {
            bytes: &bytes,
            messages: requests.len(),
            writes: true,
        })?;
        let fence = sequences.last().copied().unwrap_or_default();
        let mut failures = HashMap::new();
        let lost = self.channel.collect_answers(fence, |message, errno| {
            let line = failed_line(message);
            failures.insert(message.header.sequence_number, Failure { errno, line });
        })?;
        Ok(sequences
            .iter()
            .map(|sequence| match failures.get(sequence) {
                Some(failure) if failure.errno == 0 => Ok(None),
                Some(failure) => Ok(Some(*failure)),
                None if lost => Err(Error::Socket(netlink_blocking::Error::AnswerLost)),
                None => Ok(None),
            })
            .collect())
    }
}
