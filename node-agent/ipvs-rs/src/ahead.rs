//! Making batches ahead of their turn. The kernel does its work within the send call, so with another
//! processor the next batches are made meanwhile, and writing many costs what the kernel takes.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::batch::Batch;
use crate::request::Request;

/// How many batches may wait for their turn: making one takes less time than the kernel needs for it.
const WAITING: usize = 2;

/// The batches of many writes, made one after the other.
pub(crate) struct Batches<'r, R> {
    /// Gives each write by its place.
    pub(crate) request: &'r R,
    /// The place of the next one.
    pub(crate) next: usize,
    /// How many there are.
    pub(crate) count: usize,
    /// The most in one batch, at least 1.
    pub(crate) per_send: usize,
    /// The number of the family.
    pub(crate) family_id: u16,
    /// The sequence number before the next one.
    pub(crate) sequence: u32,
}

impl<R> Clone for Batches<'_, R> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<R: Fn(usize) -> Request> Iterator for Batches<'_, R> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let left = self.count.saturating_sub(self.next);
        if left == 0 {
            return None;
        }
        let most = self.per_send.min(left);
        let batch = Batch::build(self.request, self.next, most, self.family_id, self.sequence);
        self.next = self.next.saturating_add(batch.taken);
        self.sequence = batch.last_sequence();
        Some(batch)
    }
}

impl<R: Fn(usize) -> Request + Sync> Batches<'_, R> {
    /// Hands out one batch after the other until there are no more, or `take` breaks off.
    pub(crate) fn hand_out(self, take: impl FnMut(Batch) -> ControlFlow<()>) {
        let left = self.count.saturating_sub(self.next);
        if left <= self.per_send {
            let _: ControlFlow<()> = { self }.try_for_each(take);
            return;
        }
        thread::scope(|scope| {
            let (give, made) = sync_channel(WAITING);
            let ahead = self.clone();
            let maker = thread::Builder::new()
                .name("ipvs-requests".into())
                // It ends by itself when nobody takes what it makes.
                .spawn_scoped(scope, move || {
                    for batch in ahead {
                        if give.send(batch).is_err() {
                            return;
                        }
                    }
                });
            // Where no more threads are to be had, they are made as they are needed.
            let _: ControlFlow<()> = match maker {
                Ok(_) => made.into_iter().try_for_each(take),
                Err(_) => { self }.try_for_each(take),
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::key::{Protocol, ServiceKey};

    fn request(place: usize) -> Request {
        let port = u16::try_from(place).unwrap();
        let address = Ipv4Addr::LOCALHOST.into();
        Request::DelService(ServiceKey::address(Protocol::Tcp, address, port))
    }

    fn batches(count: usize) -> Batches<'static, fn(usize) -> Request> {
        const REQUEST: fn(usize) -> Request = request;
        Batches {
            request: &REQUEST,
            next: 1,
            count,
            per_send: 64,
            family_id: 9,
            sequence: u32::MAX - 70,
        }
    }

    #[test]
    fn what_is_made_ahead_is_what_would_be_made_one_by_one() {
        for count in [1, 2, 65, 66, 129, 1000] {
            let wanted: Vec<_> = batches(count).map(|batch| batch.bytes).collect();
            let mut found = Vec::new();
            batches(count).hand_out(|batch| {
                found.push(batch.bytes);
                ControlFlow::Continue(())
            });
            assert_eq!(found, wanted, "{count}");
            assert_eq!(wanted.len(), (count - 1).div_ceil(64), "{count}");
        }
    }

    #[test]
    fn whoever_has_enough_is_given_no_more() {
        let mut places = Vec::new();
        batches(10_000).hand_out(|batch| {
            places.push(batch.from);
            if places.len() == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(places, [1, 65, 129]);
    }
}
