//! Suggestions for mistyped names.

use strsim::levenshtein;

/// Maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 5;

/// The known names most similar to `name`, nearest first; at most five.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // A third of the letters may differ, but at most four: otherwise any name would match.
    let most = (name.chars().count() / 3).clamp(1, 4);
    let distances = known.map(|other| (levenshtein(name, other), other));
    let mut alike: Vec<_> = distances
        .filter(|(distance, _)| *distance <= most)
        .collect();
    alike.sort_unstable();
    let names = alike.into_iter().take(MAX_SUGGESTIONS);
    names.map(|(_, other)| other.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_unlike_ones_not_at_all() {
        let known = ["shop/cart", "shop/card", "shop/web", "billing/ledger"];
        assert_eq!(
            near("shop/carts", known.into_iter()),
            ["shop/cart", "shop/card"]
        );
        assert_eq!(near("x", known.into_iter()), Vec::<String>::new());
    }
}
