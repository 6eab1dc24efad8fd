//! Records the datagrams of the agent and replays them with as little code as possible: the
//! kernel's own limit.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, SndBuf, SndBufForce};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, connect, recv,
    send, setsockopt, socket,
};
use portolan_agent::kernel::linux::{Datagram, Part};

/// Space for the answers of one send, as the agent has it.
const BUFFER: usize = 4 * 1024 * 1024;
/// Space for one send. A transaction of nf_tables is a single one.
const SEND_BUFFER: usize = 256 * 1024 * 1024;
/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `NLM_F_ACK`
const ACKNOWLEDGE: u16 = 4;
/// `NLMSG_ERROR`: an acknowledgement too, with the number 0.
const ANSWER: u16 = 2;

/// Keeps every datagram that changes something, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<Kept>>>);

#[derive(Debug, Clone)]
struct Kept {
    part: Part,
    bytes: Box<[u8]>,
    /// The sequence number of the last message that the kernel acknowledges.
    fence: u32,
}

impl Recorder {
    /// To be handed to the kernel.
    pub(super) fn tap(&self) -> impl FnMut(Datagram<'_>) + Clone + Send + 'static {
        let kept = self.0.clone();
        move |datagram: Datagram<'_>| {
            if datagram.writes {
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Kept {
                        part: datagram.part,
                        bytes: datagram.bytes.into(),
                        fence: last_sequence(datagram.bytes),
                    });
            }
        }
    }

    /// Takes the datagrams recorded since the previous call.
    pub(super) fn take(&self) -> Recording {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Recording(std::mem::take(&mut kept))
    }
}

/// The datagrams of an agent for one plan.
#[derive(Debug)]
pub(super) struct Recording(Vec<Kept>);

impl Recording {
    /// How many datagrams, and bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let bytes = self.0.iter().map(|kept| kept.bytes.len()).sum();
        (self.0.len(), bytes)
    }

    /// Sends it in the network namespace of the calling thread, each datagram once the one before is acknowledged.
    /// Returns the time from the first byte to the last acknowledgement, and how many messages the kernel refused.
    ///
    /// # Errors
    /// There are no such sockets, or one fails.
    pub(super) fn replay(&self) -> Result<(Duration, u64)> {
        let ipvs = open(SockProtocol::NetlinkGeneric)?;
        let ipset = open(SockProtocol::NetlinkNetFilter)?;
        let tables = open(SockProtocol::NetlinkNetFilter)?;
        let mut buffer = vec![0; 128 * 1024];
        let mut refused = 0;
        let start = Instant::now();
        for kept in &self.0 {
            let socket = match kept.part {
                Part::Ipvs => &ipvs,
                Part::Ipset => &ipset,
                Part::Tables => &tables,
            };
            let sent = send(socket.as_raw_fd(), &kept.bytes, MsgFlags::empty())
                .context("send what the agent sent")?;
            ensure!(sent == kept.bytes.len(), "only {sent} bytes were sent");
            refused += answers(socket, kept.fence, &mut buffer)?;
        }
        Ok((start.elapsed(), refused))
    }
}

fn open(protocol: SockProtocol) -> Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )
    .context("open a netlink socket")?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).context("bind it")?;
    connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).context("connect it")?;
    if setsockopt(&socket, RcvBufForce, &BUFFER).is_err() {
        setsockopt(&socket, RcvBuf, &BUFFER).context("enlarge its buffer")?;
    }
    if setsockopt(&socket, SndBufForce, &SEND_BUFFER).is_err() {
        setsockopt(&socket, SndBuf, &SEND_BUFFER).context("enlarge its send buffer")?;
    }
    Ok(socket)
}

/// Reads answers until the fence is acknowledged; returns how many were errors.
fn answers(socket: &OwnedFd, fence: u32, buffer: &mut [u8]) -> Result<u64> {
    let mut refused = 0;
    loop {
        let length = recv(socket.as_raw_fd(), buffer, MsgFlags::empty())
            .context("read the kernel's answer")?;
        let datagram = buffer.get(..length).unwrap_or_default();
        for message in messages(datagram) {
            let Message {
                kind,
                sequence,
                payload,
                ..
            } = message;
            if kind != ANSWER {
                bail!("the kernel answers a write with a message of type {kind}");
            }
            refused += u64::from(payload.iter().take(4).any(|byte| *byte != 0));
            if sequence == fence {
                return Ok(refused);
            }
        }
    }
}

/// A netlink message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message<'a> {
    kind: u16,
    /// Whether it asks for an acknowledgement.
    asks: bool,
    sequence: u32,
    payload: &'a [u8],
}

/// The messages of a datagram.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
        let (kind, after) = after.split_first_chunk::<2>()?;
        let (flags, after) = after.split_first_chunk::<2>()?;
        let sequence = after.first_chunk::<4>()?;
        let payload = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes(*kind),
            asks: u16::from_ne_bytes(*flags) & ACKNOWLEDGE != 0,
            sequence: u32::from_ne_bytes(*sequence),
            payload,
        })
    })
}

/// The last message that asks for an acknowledgement; a batch of nf_tables has one more message after that.
fn last_sequence(datagram: &[u8]) -> u32 {
    let all = messages(datagram);
    let last = all.filter(|message| message.asks).last();
    last.map_or(0, |message| message.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of this sequence number and payload.
    fn message(sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = HEADER + payload.len();
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(length).unwrap().to_ne_bytes());
        bytes.extend(ANSWER.to_ne_bytes());
        bytes.extend(ACKNOWLEDGE.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_fence_is_the_last_message_of_a_datagram() {
        let datagram = [message(7, b"abc"), message(8, b""), message(9, b"defg")].concat();
        let seen: Vec<_> = messages(&datagram).collect();
        assert_eq!(
            (seen[0].kind, seen[0].sequence, seen[0].payload),
            (ANSWER, 7, &b"abc"[..])
        );
        assert_eq!((seen.len(), last_sequence(&datagram)), (3, 9));
    }

    #[test]
    fn what_is_cut_off_ends_the_walk() {
        let datagram = message(7, b"abcd");
        assert_eq!(messages(&datagram[..18]).count(), 0);
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn only_writes_are_kept_and_only_once() {
        let recorder = Recorder::default();
        let mut tap = recorder.tap();
        for (writes, sequence) in [(false, 1), (true, 2)] {
            tap(Datagram {
                part: Part::Ipvs,
                bytes: &message(sequence, b""),
                writes,
            });
        }
        let recording = recorder.take();
        assert_eq!(recording.size(), (1, 16));
        assert_eq!(recording.0[0].fence, 2);
        assert_eq!(recorder.take().size(), (0, 0));
    }
}
