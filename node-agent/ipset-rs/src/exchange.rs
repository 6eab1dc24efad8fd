//! Sends many messages at once and collects the kernel's answer to each.
//!
//! Invariant: the last message of a send is acknowledged; it is the fence. The kernel handles messages in order and
//! answers within the send call, so once the fence is answered, every message before it without an error has
//! succeeded.

use std::collections::HashMap;

use netlink_blocking::{Outgoing, Received};

use crate::error::Error;
use crate::fill::Failure;
use crate::message::{error_code, failed_line, messages};
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
        let (failures, lost) = self.collect_failures(fence)?;
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

    /// Reads answers until the fence is answered. The second value is whether some were lost.
    fn collect_failures(&mut self, fence: u32) -> Result<(HashMap<u32, Failure>, bool), Error> {
        let mut failures = HashMap::new();
        let mut lost = false;
        loop {
            let datagram = match self.channel.receive(!lost)? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    // Queued answers can still be read. The others are lost, possibly including that of the fence.
                    lost = true;
                    continue;
                }
                Received::Nothing => return Ok((failures, lost)),
            };
            for message in messages(datagram) {
                let message = message?;
                if let Some(errno) = error_code(&message) {
                    let failure = Failure {
                        errno,
                        line: failed_line(&message),
                    };
                    failures.insert(message.header.sequence_number, failure);
                }
            }
            if failures.contains_key(&fence) {
                return Ok((failures, lost));
            }
        }
    }
}
