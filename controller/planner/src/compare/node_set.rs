//! A set of nodes by their indexes in a roster. Thousands of Services may each differ on thousands of nodes: a bit
//! per node is small, and sets are merged 64 nodes at a time.

/// Bits of one word of the set.
const WORD_BITS: usize = 64;

/// A set of indexes below a fixed length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeSet(Box<[u64]>);

impl NodeSet {
    /// An empty set for this number of nodes.
    pub(super) fn empty(places: usize) -> Self {
        Self(vec![0; places.div_ceil(WORD_BITS)].into())
    }

    pub(super) fn insert(&mut self, place: usize) {
        self.0[place / WORD_BITS] |= 1 << (place % WORD_BITS);
    }

    /// Adds the indexes of another set.
    pub(super) fn add(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// The indexes of this set that are not in another.
    pub(super) fn without(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(word, other)| word & !other).collect())
    }

    /// The indexes of this set that are also in another.
    pub(super) fn within(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(word, other)| word & other).collect())
    }

    /// Number of indexes.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The indexes in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(index * WORD_BITS + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_in_order() {
        let mut set = NodeSet::empty(130);
        for place in [129, 0, 64, 63, 0] {
            set.insert(place);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(set.len(), 4);
        let mut other = NodeSet::empty(130);
        other.insert(63);
        other.insert(65);
        assert_eq!(set.without(&other).iter().collect::<Vec<_>>(), [0, 64, 129]);
        assert_eq!(set.within(&other).iter().collect::<Vec<_>>(), [63]);
        set.add(&other);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 65, 129]);
        assert_eq!((set.len(), set.without(&set).len()), (5, 0));
        assert_eq!(NodeSet::empty(0).iter().next(), None);
    }
}
