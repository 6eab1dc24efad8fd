//! Slots: how backends with weights become keys of a map from which a constant rule draws at random.
//!
//! A rule cannot know the number of backends of each Service. It draws a number below a power of two, the size class,
//! and draws again if no backend has that slot. So the slots of a frontend are filled from 0 without gaps, and more
//! than half of its class is in use. A backend that leaves costs one move: the last slot takes its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use litemap::LiteMap;

/// The largest number of slots of a frontend.
pub const MAX_SLOTS: u32 = 4096;

/// The number from which a rule draws: a power of two from 1 to [`MAX_SLOTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// All classes, the smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=MAX_SLOTS.ilog2()).filter_map(|bits| u8::try_from(bits).ok().map(Self))
    }

    /// The smallest class with at least this number of slots; `None` for no slots, or for more than the largest class has.
    pub fn of(slots: u32) -> Option<Self> {
        Self::all().find(|class| slots > 0 && slots <= class.size())
    }

    /// The number of slots.
    pub fn size(self) -> u32 {
        1u32.checked_shl(self.0.into()).unwrap_or(MAX_SLOTS)
    }
}

impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.size().fmt(f)
    }
}

/// The backends in their slots.
pub type Slots<B> = LiteMap<u32, B>;

/// A change of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotChange<B> {
    /// The slot.
    pub slot: u32,
    /// The backend that leaves it.
    pub from: Option<B>,
    /// The backend that takes it.
    pub to: Option<B>,
}

/// The changes that lead to the wanted backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotPlan<B> {
    /// The class afterwards; `None` if no backend takes connections.
    pub class: Option<SizeClass>,
    /// The changes, by slot.
    pub changes: Vec<SlotChange<B>>,
    /// The number of backends that have no slot, because there are more than [`MAX_SLOTS`].
    pub left_out: usize,
}

impl<B: Copy + Ord> SlotPlan<B> {
    /// The changes from the current slots to those of the wanted backends, which have weights and occur once.
    ///
    /// A backend that is wanted keeps its slots, except for one that moves into the place of another that leaves. The
    /// current slots may be in any state.
    pub fn new(current: &Slots<B>, wanted: impl IntoIterator<Item = (B, u32)>) -> Self {
        let (mut missing, left_out) = shares(wanted);
        let slots: u32 = missing.values().sum();
        let mut stay = BTreeSet::new();
        for (slot, backend) in current.iter().filter(|(slot, _)| **slot < slots) {
            if let Some(count) = missing.get_mut(backend)
                && *count > 0
            {
                *count -= 1;
                stay.insert(*slot);
            }
        }
        let joining = missing.into_iter();
        let mut joining = joining.flat_map(|(backend, count)| {
            std::iter::repeat_n(backend, usize::try_from(count).unwrap_or(0))
        });
        let free = (0..slots).filter(|slot| !stay.contains(slot));
        let mut changes: Vec<_> = free
            .map(|slot| SlotChange {
                slot,
                from: current.get(&slot).copied(),
                to: joining.next(),
            })
            .collect();
        let beyond = current.iter().filter(|(slot, _)| **slot >= slots);
        changes.extend(beyond.map(|(slot, backend)| SlotChange {
            slot: *slot,
            from: Some(*backend),
            to: None,
        }));
        Self {
            class: SizeClass::of(slots),
            changes,
            left_out,
        }
    }
}

/// The number of slots that backends take.
pub(super) fn count<B: Copy + Ord>(wanted: impl IntoIterator<Item = (B, u32)>) -> usize {
    let slots: u32 = shares(wanted).0.values().sum();
    usize::try_from(slots).unwrap_or(usize::MAX)
}

/// The number of slots of each backend, and the number of backends without a slot only because there are too many.
///
/// Weights are divided by their greatest common divisor. If they need more slots than there are, each backend gets
/// one, and the others are divided by weight.
fn shares<B: Copy + Ord>(wanted: impl IntoIterator<Item = (B, u32)>) -> (BTreeMap<B, u32>, usize) {
    let limit = usize::try_from(MAX_SLOTS).unwrap_or(usize::MAX);
    let mut weights: BTreeMap<B, u32> = wanted.into_iter().filter(|(_, w)| *w > 0).collect();
    let left_out = weights.len().saturating_sub(limit);
    while weights.len() > limit {
        weights.pop_last();
    }
    let divisor = weights
        .values()
        .copied()
        .fold(0, greatest_common_divisor)
        .max(1);
    for weight in weights.values_mut() {
        *weight /= divisor;
    }
    let total: u64 = weights.values().copied().map(u64::from).sum();
    if total > u64::from(MAX_SLOTS) {
        let count = u64::try_from(weights.len()).unwrap_or(u64::MAX);
        let free = u64::from(MAX_SLOTS).saturating_sub(count);
        for weight in weights.values_mut() {
            let more = free.saturating_mul((*weight).into()) / total;
            *weight = u32::try_from(more).unwrap_or(MAX_SLOTS).saturating_add(1);
        }
    }
    (weights, left_out)
}

fn greatest_common_divisor(left: u32, right: u32) -> u32 {
    let (mut left, mut right) = (left, right);
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn apply(current: &Slots<u16>, plan: &SlotPlan<u16>) -> Slots<u16> {
        let mut slots = current.clone();
        for change in &plan.changes {
            assert_eq!(slots.remove(&change.slot), change.from);
            if let Some(backend) = change.to {
                slots.insert(change.slot, backend);
            }
        }
        slots
    }

    fn counts(slots: &Slots<u16>) -> BTreeMap<u16, u32> {
        let mut counts = BTreeMap::new();
        for backend in slots.values() {
            *counts.entry(*backend).or_default() += 1;
        }
        counts
    }

    fn filled(backends: &[(u16, u32)]) -> Slots<u16> {
        let empty = Slots::new();
        apply(&empty, &SlotPlan::new(&empty, backends.iter().copied()))
    }

    fn ones(backends: impl IntoIterator<Item = u16>) -> Vec<(u16, u32)> {
        backends.into_iter().map(|backend| (backend, 1)).collect()
    }

    #[test]
    fn a_leaving_backend_costs_one_move_and_a_joining_one_none() {
        let before = filled(&ones(1..=5));
        let leaves = SlotPlan::new(&before, ones([1, 3, 4, 5]));
        let change = |slot, from, to| SlotChange { slot, from, to };
        let moved = [change(1, Some(2), Some(5)), change(4, Some(5), None)];
        assert_eq!(leaves.changes, moved);
        assert_eq!(leaves.class.map(SizeClass::size), Some(4));
        let joins = SlotPlan::new(&before, ones(1..=6));
        assert_eq!(joins.changes, [change(5, None, Some(6))]);
        assert_eq!(joins.class.map(SizeClass::size), Some(8));
    }

    #[test]
    fn weights_are_reduced_and_a_weight_of_0_has_no_slot() {
        let slots = filled(&[(1, 100), (2, 300), (3, 0)]);
        assert_eq!(counts(&slots), [(1, 1), (2, 3)].into());
        assert!(filled(&[(1, 0)]).is_empty());
        let none = SlotPlan::new(&slots, []);
        assert_eq!((none.class, none.changes.len()), (None, 4));
    }

    #[test]
    fn weights_that_need_too_many_slots_are_scaled_down() {
        let slots = filled(&[(1, 1), (2, 65_535), (3, 65_534)]);
        let counts = counts(&slots);
        assert_eq!(counts[&1], 1, "every backend has a slot");
        assert!(slots.len() <= 4096 && slots.len() > 4090);
        assert!(counts[&2].abs_diff(counts[&3]) <= 1);
    }

    #[test]
    fn more_backends_than_slots_are_counted() {
        let many = ones(0..5000);
        let plan = SlotPlan::new(&Slots::new(), many);
        assert_eq!(plan.left_out, 904);
        assert_eq!(plan.changes.len(), 4096);
        assert_eq!(plan.class.map(SizeClass::size), Some(4096));
    }

    #[test]
    fn classes_are_powers_of_two_up_to_the_limit() {
        let sizes: Vec<_> = SizeClass::all().map(SizeClass::size).collect();
        assert_eq!(sizes.len(), 13);
        assert_eq!((sizes[0], sizes[12]), (1, MAX_SLOTS));
        assert_eq!(SizeClass::of(0), None);
        assert_eq!(SizeClass::of(MAX_SLOTS + 1), None);
    }

    fn backends() -> impl Strategy<Value = BTreeMap<u16, u32>> {
        let weight = prop_oneof![4 => Just(1u32), 1 => 0u32..20];
        btree_map(0u16..40, weight, 0..30)
    }

    proptest! {
        /// From any slots, with gaps, repeated backends and foreign ones.
        #[test]
        fn slots_become_exactly_the_wanted_shares_without_gaps(
            garbage in vec((0u32..80, 0u16..50), 0..60),
            wanted in backends(),
        ) {
            let current: Slots<u16> = garbage.into_iter().collect();
            let plan = SlotPlan::new(&current, wanted.clone());
            let slots = apply(&current, &plan);
            let (shares, _) = shares(wanted.clone());
            prop_assert_eq!(counts(&slots), shares);
            let numbers: Vec<u32> = slots.keys().copied().collect();
            let count = u32::try_from(slots.len()).unwrap();
            prop_assert_eq!(numbers, (0..count).collect::<Vec<_>>());
            match plan.class {
                None => prop_assert_eq!(count, 0),
                Some(class) => {
                    let half_full = class.size() / 2 < count;
                    prop_assert!(count <= class.size() && half_full);
                }
            }
            let again = SlotPlan::new(&slots, wanted);
            prop_assert!(again.changes.is_empty());
            prop_assert_eq!(again.class, plan.class);
        }

        /// The number of slots that change from one wanted backend to another is at most that of the leaving ones.
        #[test]
        fn no_more_slots_move_than_leave(before in backends(), after in backends()) {
            let slots = filled(&before.into_iter().collect::<Vec<_>>());
            let plan = SlotPlan::new(&slots, after);
            let next = apply(&slots, &plan);
            let (was, is) = (counts(&slots), counts(&next));
            let surplus = |left: &BTreeMap<u16, u32>, right: &BTreeMap<u16, u32>| -> u32 {
                let right = |backend| right.get(backend).copied().unwrap_or(0);
                left.iter().map(|(b, count)| count.saturating_sub(right(b))).sum()
            };
            let (leaving, joining) = (surplus(&was, &is), surplus(&is, &was));
            let taken = plan.changes.iter().filter(|change| change.to.is_some()).count();
            let moves = u32::try_from(taken).unwrap() - joining;
            prop_assert!(moves <= leaving, "{moves} moves, {leaving} leave");
        }
    }
}
