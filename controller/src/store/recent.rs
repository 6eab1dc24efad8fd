//! Values that thousands of streams ask for at the same time, each made once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of values that are kept. Streams that are slower than others ask for other ones.
const MAX_VALUES: usize = 32;

/// The last values that were made.
#[derive(Debug)]
pub(super) struct Recent<K, V>(Mutex<VecDeque<(K, Arc<V>)>>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V> Recent<K, V> {
    /// The value of a key. One that is not known is made; others that ask for it wait. `None` if `make` returns it.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Option<Arc<V>>) -> Option<Arc<V>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = known.iter().find(|(other, _)| *other == key) {
            return Some(value.clone());
        }
        let value = make()?;
        known.truncate(MAX_VALUES - 1);
        known.push_front((key, value.clone()));
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_while_it_is_recent() {
        let recent = Recent::default();
        let made = std::cell::Cell::new(0);
        let ask = |key: usize| {
            recent.get(key, || {
                made.set(made.get() + 1);
                Some(Arc::new(key * 2))
            })
        };
        assert_eq!(ask(1).as_deref(), Some(&2));
        assert_eq!(ask(1).as_deref(), Some(&2));
        assert_eq!(made.get(), 1);
        for key in 2..=MAX_VALUES + 1 {
            assert_eq!(ask(key).as_deref(), Some(&(key * 2)));
        }
        assert_eq!(ask(1).as_deref(), Some(&2));
        assert_eq!(made.get(), MAX_VALUES + 2, "the oldest was forgotten");
        assert_eq!(ask(MAX_VALUES + 1).as_deref(), Some(&(2 * MAX_VALUES + 2)));
        assert_eq!(made.get(), MAX_VALUES + 2);
        assert_eq!(recent.get(99, || None), None);
    }
}
