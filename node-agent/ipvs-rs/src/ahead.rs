//! Sends that are written to memory before their turn: a thread writes them while the kernel, which works
//! within the send call, is busy with one before. On two processors the kernel then never waits.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::batch::{Batch, Form};
use crate::request::Request;

/// Fewer sends than this are written one by one: starting a thread takes as long.
const FEW: usize = 8;

/// So many sends wait at most.
const AHEAD: usize = 4;

/// Writes `count` requests into sends of up to `per_send`, and hands each to `send` in order with the place
/// of its first request.
pub(crate) fn write_ahead(
    request: &(impl Fn(usize) -> Request + Sync),
    count: usize,
    per_send: usize,
    form: Form,
    send: impl FnMut((usize, Batch)),
) {
    let sends = Sends {
        request,
        count,
        per_send,
        form,
        done: 0,
    };
    if count < per_send.saturating_mul(FEW) {
        return sends.for_each(send);
    }
    thread::scope(|scope| {
        let (sender, written) = sync_channel(AHEAD);
        let writer = sends.clone();
        let started = thread::Builder::new()
            .name("ipvs-writer".into())
            .spawn_scoped(scope, move || write(writer, &sender));
        match started {
            Ok(_) => written.into_iter().for_each(send),
            // There is no thread to be had, but there is this one.
            Err(_) => sends.for_each(send),
        }
    });
}

fn write<F: Fn(usize) -> Request>(sends: Sends<'_, F>, sender: &SyncSender<(usize, Batch)>) {
    for send in sends {
        // Nobody takes them any more.
        if sender.send(send).is_err() {
            return;
        }
    }
}

/// The sends of some requests, with the place of the first request of each.
struct Sends<'a, F> {
    request: &'a F,
    count: usize,
    per_send: usize,
    form: Form,
    done: usize,
}

impl<F> Clone for Sends<'_, F> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<F: Fn(usize) -> Request> Iterator for Sends<'_, F> {
    type Item = (usize, Batch);

    fn next(&mut self) -> Option<Self::Item> {
        let done = self.done;
        let most = self.per_send.min(self.count.saturating_sub(done));
        if most == 0 {
            return None;
        }
        let at = |place: usize| (self.request)(done.saturating_add(place));
        let batch = Batch::build(at, most, self.form);
        self.done = done.saturating_add(batch.taken);
        self.form = self.form.behind(batch.taken);
        Some((done, batch))
    }
}
