//! Ports for programs that open them later.

use std::net::{Ipv6Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel hands out itself: what is free there stays free, although other tests of this machine
/// run at the same time.
const LOWEST: u16 = 12_000;
const COUNT: u16 = 18_000;

/// A port that is unused in both families, and that no other test of this process gets.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Processes begin at different places.
    let first = u16::try_from(std::process::id() * 31 % u32::from(COUNT)).unwrap();
    loop {
        let next = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = LOWEST + next;
        if TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}
