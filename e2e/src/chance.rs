//! A small random number generator (splitmix64), passed as an argument. Its seed is printed, so
//! that a run can be repeated. Not for secrets.

use std::time::Duration;

/// A stream of numbers that depends on its seed alone.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The stream of one seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of two.
    pub fn either<T>(&mut self, even: T, odd: T) -> T {
        if self.number().is_multiple_of(2) {
            even
        } else {
            odd
        }
    }

    /// A moment in `from..to`, in whole microseconds; `from` if the range is empty.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let width = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX);
        from + Duration::from_micros(self.number() % width.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_published_stream() {
        let mut chance = Chance::from_seed(0);
        assert_eq!(chance.number(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(chance.number(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn moments_stay_inside_their_range() {
        let mut chance = Chance::from_seed(7);
        let (from, to) = (Duration::from_millis(5), Duration::from_millis(6));
        for _ in 0..1000 {
            let moment = chance.between(from, to);
            assert!(from <= moment && moment < to, "{moment:?}");
        }
        assert_eq!(chance.between(to, from), to);
    }
}
