//! Maps times to positions and to text.

/// As many steps has an axis at most.
const STEPS: u64 = 8;
/// Minimum width of a bar, so that very short spans are visible.
const THINNEST: f64 = 2.0;

/// An axis: microseconds from left to right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) start: u64,
    length: u64,
    left: f64,
    right: f64,
}

impl Scale {
    pub(super) fn new(start: u64, end: u64, left: f64, right: f64) -> Self {
        Self {
            start,
            length: end.saturating_sub(start).max(1),
            left,
            right,
        }
    }

    /// Where a moment is; what lies outside is at an end.
    pub(super) fn place(self, at: u64) -> f64 {
        let after = at.saturating_sub(self.start).min(self.length);
        self.left + after as f64 / self.length as f64 * (self.right - self.left)
    }

    /// Where a bar begins and how wide it is, however short: it never leaves the axis.
    pub(super) fn bar(self, start: u64, duration: u64) -> (f64, f64) {
        let (from, to) = (
            self.place(start),
            self.place(start.saturating_add(duration)),
        );
        let width = (to - from).max(THINNEST);
        (from.min(self.right - width), width)
    }

    /// Round times, where they are, and in words.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        let step = step(self.length.div_ceil(STEPS));
        (0..=STEPS)
            .filter_map(|number| step.checked_mul(number))
            .take_while(|after| *after <= self.length)
            .map(|after| {
                (
                    self.place(self.start.saturating_add(after)),
                    label(after, step),
                )
            })
            .collect()
    }
}

/// The first of 1, 2, 5, 10, 20, 50 … that is not less.
fn step(least: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            if step >= least {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// A round time, in the unit that all of its axis have.
fn label(micros: u64, step: u64) -> String {
    match (micros, step) {
        (0, _) => "0".to_owned(),
        (_, 1_000_000..) => format!("{} s", micros / 1_000_000),
        (_, 1_000..) => format!("{} ms", micros / 1_000),
        _ => format!("{micros} µs"),
    }
}

/// A duration with three digits that count.
pub(super) fn words(micros: u64) -> String {
    let milliseconds = micros as f64 / 1e3;
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{milliseconds:.2} ms"),
        10_000..100_000 => format!("{milliseconds:.1} ms"),
        100_000..1_000_000 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.2} s", milliseconds / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_the_unit_that_fits() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1.00 ms"),
            (28_340, "28.3 ms"),
            (412_400, "412 ms"),
            (1_204_000, "1.20 s"),
        ] {
            assert_eq!(words(micros), text);
        }
    }

    #[test]
    fn ticks_are_round_few_and_within_the_axis() {
        let ticks = |length| {
            let scale = Scale::new(7, 7 + length, 100.0, 900.0);
            let ticks = scale.ticks();
            assert!((1..=9).contains(&ticks.len()), "{length}: {ticks:?}");
            assert!(ticks.iter().all(|(x, _)| (100.0..=900.0).contains(x)));
            let words = ticks.into_iter().map(|(_, words)| words);
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ticks(412_400), "0 100 ms 200 ms 300 ms 400 ms");
        assert_eq!(ticks(8), "0 1 µs 2 µs 3 µs 4 µs 5 µs 6 µs 7 µs 8 µs");
        assert_eq!(
            ticks(3_000_000),
            "0 500 ms 1000 ms 1500 ms 2000 ms 2500 ms 3000 ms"
        );
        assert_eq!(ticks(1), "0 1 µs");
        assert_eq!(ticks(0), "0 1 µs");
        assert!(ticks(u64::MAX - 7).starts_with("0 "));
    }

    #[test]
    fn no_bar_leaves_the_axis_and_none_is_too_thin_to_be_seen() {
        let scale = Scale::new(1_000, 2_000, 100.0, 900.0);
        for (start, duration) in [
            (1_000, 1_000),
            (1_000, 0),
            (2_000, 0),
            (1_999, 1),
            (0, 5_000),
            (9_000, 9_000),
            (0, u64::MAX),
        ] {
            let (x, width) = scale.bar(start, duration);
            assert!(
                x >= 100.0 && x + width <= 900.0 && width >= 2.0,
                "{start} {duration}"
            );
        }
        assert_eq!(scale.bar(1_500, 250), (500.0, 200.0));
    }
}
