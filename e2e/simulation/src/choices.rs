//! The choices of a seed (splitmix64). Not for secrets.

use std::time::Duration;

/// A sequence of choices that depends on its seed alone.
#[derive(Debug)]
pub(crate) struct Choices(u64);

impl Choices {
    /// The sequence of one seed.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..count`; 0 if the range is empty.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.number() % count).unwrap_or(0)
    }

    /// True once in `count` times.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A time of `from` milliseconds to less than `to`.
    pub(crate) fn milliseconds(&mut self, from: usize, to: usize) -> Duration {
        let chosen = from + self.below(to.saturating_sub(from));
        Duration::from_millis(u64::try_from(chosen).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_choices_and_ranges_are_kept() {
        let choices = |seed| {
            let mut choices = Choices::from_seed(seed);
            (0..100).map(|_| choices.below(7)).collect::<Vec<_>>()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
        assert!(choices(3).iter().all(|chosen| *chosen < 7));
        let mut choices = Choices::from_seed(4);
        assert_eq!(choices.below(0), 0);
        for _ in 0..100 {
            let time = choices.milliseconds(5, 9).as_millis();
            assert!((5..9).contains(&time), "{time}");
        }
    }
}
