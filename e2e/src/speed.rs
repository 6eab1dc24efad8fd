//! The speed of this machine, compared with the one for which the rates of clients were chosen.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long the work below takes on that machine.
const HARDWARE: Duration = Duration::from_millis(60);
/// The same on the processors that it emulates for a guest.
const EMULATED: Duration = Duration::from_millis(110);
/// Name of emulated processors in `/proc/cpuinfo`.
const EMULATOR: &str = "QEMU TCG";

/// Parts of the work of each of two threads.
const PARTS: u64 = 300;
/// Numbers that a part mixes: 256 KiB.
const NUMBERS: usize = 32 * 1024;

/// How much longer programs take here than on that machine, from 1 to 8.
///
/// This measures beside everything else that the machine does, because scenarios run beside it too.
#[must_use]
pub(crate) fn slowness() -> f64 {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let expected = if processors.contains(EMULATOR) {
        EMULATED
    } else {
        HARDWARE
    };
    (work().as_secs_f64() / expected.as_secs_f64()).clamp(1.0, 8.0)
}

/// How long two threads take that compute and wake up each other, as programs under test do.
fn work() -> Duration {
    let ((to_second, from_first), (to_first, from_second)) = (sync_channel(1), sync_channel(1));
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || share(1, &to_second, &from_second));
        share(2, &to_first, &from_first);
    });
    start.elapsed()
}

fn share(seed: u64, own: &SyncSender<u64>, other: &Receiver<u64>) {
    let mut numbers = vec![seed; NUMBERS];
    let mut mixed = seed;
    for part in 0..PARTS {
        for number in &mut numbers {
            mixed = (mixed ^ *number)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
                ^ part;
            *number = mixed;
        }
        // The other one has the same number of parts, so neither channel closes early.
        let (Ok(()), Ok(theirs)) = (own.send(mixed), other.recv()) else {
            return;
        };
        mixed = mixed.wrapping_add(theirs);
    }
}
