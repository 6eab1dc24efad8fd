//! Free ports of this machine's loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::time::SystemTime;

use anyhow::{Result, bail};

/// Below the range from which the kernel takes ports for outgoing connections: a client that dials
/// a server that is being restarted could otherwise be given the server's own port and keep it.
const RANGE: std::ops::Range<u16> = 20_000..30_000;
/// How many are tried.
const ATTEMPTS: u16 = 200;

/// A port that is free at this moment and not in `others`.
///
/// # Errors
/// When there is none.
pub(super) fn free(others: &[u16]) -> Result<u16> {
    let count = RANGE.end - RANGE.start;
    // Two control planes that start together should not try the same ones.
    let nanos = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.subsec_nanos());
    let seed = nanos ^ std::process::id().rotate_left(16);
    let first = u16::try_from(seed % u32::from(count))?;
    // A step without a common divisor with the count reaches every port.
    for number in 0..ATTEMPTS {
        let offset = (u32::from(first) + u32::from(number) * 37) % u32::from(count);
        let port = RANGE.start + u16::try_from(offset)?;
        if !others.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!(
        "none of {ATTEMPTS} ports from {} to {} of 127.0.0.1 is free; see `ss -ltn`",
        RANGE.start,
        RANGE.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_listened_on_and_is_none_of_the_others() {
        let first = free(&[]).unwrap();
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        let second = free(&[first]).unwrap();
        assert_ne!(first, second);
        assert!(RANGE.contains(&first) && RANGE.contains(&second));
        drop(held);
    }
}
