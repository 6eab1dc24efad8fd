//! Tests lists that are read while other network namespaces change: the kernel may number entries of all namespaces
//! together.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipvs_rs::{Error, Protocol, Request, Service, ServiceKey, Socket};
use nix::sched::{CloneFlags, unshare};

use crate::execute;

/// Enough entries for a list of several datagrams.
const OURS: u32 = 1000;
const OTHERS: u32 = 400;
/// Shortest pause of the other namespace between two changes.
const PAUSE: Duration = Duration::from_millis(50);
/// A pause is longer than two readings of the list, so that two successive ones are not both disturbed at the same place.
/// The same machine may read more slowly a moment later.
const READINGS_A_PAUSE: u32 = 6;
/// Whole lists that are read while the other namespace changes. A slow machine needs longer for them.
const LISTS: u32 = 20;
const LIMIT: Duration = Duration::from_secs(120);

fn keys(first: [u8; 4], number: u32) -> impl Iterator<Item = ServiceKey> {
    let first = u32::from(Ipv4Addr::from(first));
    (0..number).map(move |n| {
        let address = Ipv4Addr::from(first.wrapping_add(n));
        ServiceKey::address(Protocol::Tcp, address.into(), 80)
    })
}

/// Adds and deletes virtual servers in its own namespace until `stop` is set, with pauses.
fn change(stop: &AtomicBool, pause: Duration) {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let mut socket = Socket::open().unwrap();
    let add = keys([10, 112, 0, 0], OTHERS).map(|key| Request::NewService(Service::new(key, "rr")));
    let delete = keys([10, 112, 0, 0], OTHERS).map(Request::DelService);
    let (add, delete): (Vec<_>, Vec<_>) = (add.collect(), delete.collect());
    while !stop.load(Ordering::Relaxed) {
        execute(&mut socket, &add);
        std::thread::sleep(pause);
        execute(&mut socket, &delete);
        std::thread::sleep(pause);
    }
}

pub(crate) fn lists_are_whole_while_other_namespaces_change() {
    let mut socket = Socket::open().unwrap();
    let add = keys([10, 96, 0, 0], OURS).map(|key| Request::NewService(Service::new(key, "rr")));
    execute(&mut socket, &add.collect::<Vec<_>>());
    let begin = Instant::now();
    assert_eq!(socket.services().unwrap().len(), OURS as usize);
    // It was read twice.
    let pause = PAUSE.max(begin.elapsed() / 2 * READINGS_A_PAUSE);
    let stop = AtomicBool::new(false);
    let (mut whole, mut wrong) = (0, None);
    std::thread::scope(|scope| {
        scope.spawn(|| change(&stop, pause));
        let begin = Instant::now();
        while wrong.is_none() && whole < LISTS && begin.elapsed() < LIMIT {
            match socket.services() {
                Ok(found) if found.len() == OURS as usize => whole += 1,
                Ok(found) => wrong = Some(format!("{} services", found.len())),
                // An error is acceptable here: it is not a wrong list.
                Err(Error::Interrupted { .. }) => {}
                Err(error) => wrong = Some(error.to_string()),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, None, "after {whole} lists");
    assert_eq!(whole, LISTS, "whole lists within {LIMIT:?}");
}
