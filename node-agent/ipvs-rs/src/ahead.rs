//! Encodes sends ahead of time. The kernel works within the send call, so a thread encodes the next sends meanwhile.
//! With two processors, the kernel then never waits.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::batch::{Batch, Form};
use crate::request::Request;

/// Fewer sends than this are encoded one by one, because starting a thread would take as long.
const MIN_THREADED_SENDS: usize = 8;

/// The maximum number of encoded sends that wait.
const QUEUE_CAPACITY: usize = 4;

/// Encodes the requests of `items` into sends of up to `per_send`, and passes each to `send` in order, with the index
/// of its first request.
pub(crate) fn write_ahead<T: Sync>(
    items: &[T],
    request: &(impl Fn(&T) -> Request + Sync),
    per_send: usize,
    form: Form,
    send: impl FnMut((usize, Batch)),
) {
    let sends = Sends {
        request,
        rest: items,
        per_send,
        form,
        done: 0,
    };
    if items.len() < per_send.saturating_mul(MIN_THREADED_SENDS) {
        return sends.for_each(send);
    }
    thread::scope(|scope| {
        let (sender, written) = sync_channel(QUEUE_CAPACITY);
        let writer = sends.clone();
        let started = thread::Builder::new()
            .name("ipvs-writer".into())
            .spawn_scoped(scope, move || write(writer, &sender));
        match started {
            Ok(_) => written.into_iter().for_each(send),
            // No thread could be started, so the current thread encodes them.
            Err(_) => sends.for_each(send),
        }
    });
}

fn write<T, F: Fn(&T) -> Request>(sends: Sends<'_, T, F>, sender: &SyncSender<(usize, Batch)>) {
    for send in sends {
        // The receiver is gone.
        if sender.send(send).is_err() {
            return;
        }
    }
}

/// The sends of some requests, with the index of the first request of each.
struct Sends<'a, T, F> {
    request: &'a F,
    rest: &'a [T],
    per_send: usize,
    form: Form,
    done: usize,
}

impl<T, F> Clone for Sends<'_, T, F> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T, F: Fn(&T) -> Request> Iterator for Sends<'_, T, F> {
    type Item = (usize, Batch);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let done = self.done;
        let next = self.rest.chunks(self.per_send).next().unwrap_or_default();
        let batch = Batch::build(next, self.request, self.form);
        self.rest = self.rest.get(batch.taken..).unwrap_or_default();
        self.done = done.saturating_add(batch.taken);
        self.form = self.form.behind(batch.taken);
        Some((done, batch))
    }
}
