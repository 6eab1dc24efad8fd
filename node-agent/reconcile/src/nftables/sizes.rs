//! The sizes of the hash sets and maps of a table.
//!
//! The kernel lists a set reliably only if it does not resize its table, which needs a size (`nft_rs::Socket::elements`
//! has the reason). The size is also the highest number of elements. As soon as the set exists, its table takes 8 bytes
//! for each of `size * 4 / 3` elements, rounded up to a power of two. So sizes follow the contents in steps of four.
//!
//! A table with sets that are too small is rebuilt. Larger sets stay, so that no table is rebuilt again and again because
//! its contents vary. Elements of former frontends that are still to be deleted may fill a set: then the kernel refuses
//! new ones, and they are written with the next attempt, after the deletions.

use super::set::SetName;

/// The smallest size. Its table takes 8 KiB. Three times a power of two wastes nothing.
const SMALLEST: u32 = 768;
/// The largest size, far beyond what the kernel could hold.
const LARGEST: u32 = SMALLEST << 20;

/// The sizes of the sets of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Each set of frontends. All have the same size, because a change of Services may move frontends from one to another.
    frontends: u32,
    /// The map of backends by slot.
    slots: u32,
    /// This node's endpoints.
    hairpins: u32,
}

impl Sizes {
    /// The sizes for these numbers of frontends, slots and endpoints of this node.
    pub fn new(frontends: usize, slots: usize, hairpins: usize) -> Self {
        Self {
            frontends: step(frontends),
            slots: step(slots),
            hairpins: step(hairpins),
        }
    }

    /// The size of a set; `None` if it does not follow the contents.
    pub(super) fn of(&self, set: SetName) -> Option<u32> {
        set.follows_contents().then_some(match set {
            SetName::Endpoint => self.slots,
            SetName::Hairpin => self.hairpins,
            _ => self.frontends,
        })
    }
}

/// The smallest size for this number of elements.
fn step(count: usize) -> u32 {
    let sizes = std::iter::successors(Some(SMALLEST), |size| size.checked_mul(4));
    let mut sizes = sizes.take_while(|size| *size <= LARGEST);
    let holds = |size: &u32| usize::try_from(*size).is_ok_and(|size| count <= size);
    sizes.find(holds).unwrap_or(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_in_steps_of_four() {
        let steps = [0, 768, 769, 3_072, 3_073, 200_000, usize::MAX].map(step);
        let expected = [768, 768, 3_072, 3_072, 12_288, 786_432, LARGEST];
        assert_eq!(steps, expected);
        // The kernel multiplies the size by 4.
        assert!(LARGEST.checked_mul(4).is_some());
    }

    #[test]
    fn sets_that_the_kernel_resizes_or_keeps_in_a_tree_have_no_step() {
        let sizes = Sizes::new(1_000, 5_000, 0);
        assert_eq!(sizes.of(SetName::Endpoint), Some(12_288));
        assert_eq!(sizes.of(SetName::StickyFor(5)), Some(3_072));
        assert_eq!(sizes.of(SetName::Hairpin), Some(768));
        for set in [
            SetName::Affinity,
            SetName::Counted,
            SetName::Allow,
            SetName::Pods,
            SetName::Ranges,
            SetName::Balancers,
        ] {
            assert_eq!(sizes.of(set), None, "{set}");
        }
    }
}
