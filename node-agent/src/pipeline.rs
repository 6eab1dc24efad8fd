//! Carries out a sequence of parts on a second thread, while the calling thread makes the next part and records the
//! previous one. Without this, computing a first plan would add to the time that the kernel takes for it.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::watchdog;

/// Parts that wait to be carried out, and results that wait to be recorded.
const AHEAD: usize = 1;

/// Calls `carry_out` for each part in order, and then `record`, in the same order, with the part and its result.
///
/// `parts` and `record` run on the calling thread. `carry_out` runs on another one, except if there is only one part or no
/// thread can be started. The part after a failed one may have been made already, so `carry_out` has to know itself when
/// to leave out the rest.
pub(crate) fn run<P: Send, R: Send>(
    parts: impl IntoIterator<Item = P>,
    mut carry_out: impl FnMut(&P) -> R + Send,
    mut record: impl FnMut(P, R),
) {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return };
    let Some(second) = parts.next() else {
        let result = carry_out(&first);
        return record(first, result);
    };
    let parts = [first, second].into_iter().chain(parts);
    // A hang of either thread is reported under this name.
    let named = thread::Builder::new().name(watchdog::PROGRAMMER.into());
    if let Some(parts) = on_second_thread(named, parts, &mut carry_out, &mut record) {
        for part in parts {
            let result = carry_out(&part);
            record(part, result);
        }
    }
}

/// Does two things at the same time: the second one on another thread, or after the first if none can be started.
pub(crate) fn both<A, B: Send>(first: impl FnOnce() -> A, second: impl Fn() -> B + Sync) -> (A, B) {
    thread::scope(|scope| {
        let named = thread::Builder::new().name(watchdog::PROGRAMMER.into());
        let started = named.spawn_scoped(scope, &second);
        let first = first();
        let second = match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => second(),
        };
        (first, second)
    })
}

/// The same on a second thread. Returns the parts if it cannot be started.
fn on_second_thread<P: Send, R: Send, I: Iterator<Item = P>>(
    builder: thread::Builder,
    parts: I,
    carry_out: &mut (impl FnMut(&P) -> R + Send),
    record: &mut impl FnMut(P, R),
) -> Option<I> {
    thread::scope(|scope| {
        let (give, given) = sync_channel::<P>(AHEAD);
        let (done, results) = sync_channel::<(P, R)>(AHEAD);
        let Ok(worker) = builder.spawn_scoped(scope, move || work(&given, &done, carry_out)) else {
            return Some(parts);
        };
        let mut waiting = 0_usize;
        for part in parts {
            if waiting > AHEAD
                && let Ok((part, result)) = results.recv()
            {
                record(part, result);
                waiting = waiting.saturating_sub(1);
            }
            if give.send(part).is_err() {
                break;
            }
            waiting = waiting.saturating_add(1);
        }
        drop(give);
        for (part, result) in results {
            record(part, result);
        }
        if let Err(panic) = worker.join() {
            resume_unwind(panic);
        }
        None
    })
}

fn work<P, R>(given: &Receiver<P>, done: &SyncSender<(P, R)>, mut carry_out: impl FnMut(&P) -> R) {
    for part in given {
        let result = carry_out(&part);
        if done.send((part, result)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;
    use std::thread::current;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_part_is_carried_out_and_recorded_once_and_in_order() {
        for count in [0, 1, 2, 3, 10] {
            let carried_out = Mutex::new(Vec::new());
            let mut recorded = Vec::new();
            let carry_out = |part: &u32| {
                carried_out.lock().unwrap().push(*part);
                part * 2
            };
            run(0..count, carry_out, |part, result| {
                recorded.push((part, result));
            });
            let parts: Vec<_> = (0..count).collect();
            assert_eq!(carried_out.into_inner().unwrap(), parts);
            let results: Vec<_> = parts.iter().map(|part| (*part, part * 2)).collect();
            assert_eq!(recorded, results);
        }
    }

    #[test]
    fn the_next_part_is_made_while_one_is_carried_out_and_not_many_more() {
        let log = Mutex::new(Vec::new());
        let note = |what: &str, part: u32| log.lock().unwrap().push(format!("{what} {part}"));
        let in_work = Mutex::new(());
        let hold = RefCell::new(Some(in_work.lock().unwrap()));
        let parts = (0..5_u32).inspect(|part| {
            note("make", *part);
            // The first part is being carried out until the third one is made.
            if *part == 2 {
                hold.borrow_mut().take();
            }
        });
        let carry_out = |part: &u32| {
            drop(in_work.lock().unwrap());
            thread::sleep(Duration::from_millis(5));
            note("carry out", *part);
        };
        run(parts, carry_out, |part, ()| note("record", part));
        let log = log.into_inner().unwrap();
        let place = |line: &str| log.iter().position(|one| one == line).unwrap();
        assert!(place("make 2") < place("carry out 0"), "{log:?}");
        assert!(place("carry out 0") < place("make 4"), "{log:?}");
    }

    #[test]
    fn a_single_part_stays_on_the_calling_thread() {
        let own = current().id();
        run([()], |()| assert_eq!(current().id(), own), |(), ()| {});
    }

    #[test]
    fn parts_are_returned_if_no_thread_can_be_started() {
        // No machine has memory for such a stack.
        let builder = thread::Builder::new().stack_size(usize::MAX / 4);
        let mut record = |_, ()| panic!("nothing was carried out");
        let rest = on_second_thread(builder, 0..3_u32, &mut |_: &u32| {}, &mut record);
        assert_eq!(rest, Some(0..3));
    }

    #[test]
    fn two_things_are_done_at_the_same_time() {
        let (give, given) = sync_channel(0);
        // Each waits for the other.
        let (first, second) = both(
            || given.recv_timeout(Duration::from_secs(20)).unwrap(),
            || give.send("met").is_ok(),
        );
        assert_eq!((first, second), ("met", true));
    }

    #[test]
    #[should_panic(expected = "carried out badly")]
    fn a_panic_is_passed_on() {
        let carry_out = |part: &u32| assert_ne!(*part, 1, "carried out badly");
        run(0..4, carry_out, |_, ()| {});
    }
}
