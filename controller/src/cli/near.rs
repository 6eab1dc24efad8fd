//! Suggestions for mistyped names.

/// Maximum number of suggestions.
const SHOWN: usize = 5;

/// The known names most similar to `name`, nearest first; at most five.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // A third of the letters may differ, but at most four: otherwise any name would match.
    let most = (name.chars().count() / 3).clamp(1, 4);
    let distances = known.map(|other| (distance(name, other), other));
    let mut alike: Vec<_> = distances
        .filter(|(distance, _)| *distance <= most)
        .collect();
    alike.sort_unstable();
    let names = alike.into_iter().take(SHOWN);
    names.map(|(_, other)| other.to_owned()).collect()
}

/// Levenshtein distance: the number of letters inserted, deleted or replaced to turn one text into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_letters() {
        let cases = [
            ("cart", "cart", 0),
            ("cart", "crat", 2),
            ("cart", "car", 1),
            ("", "cart", 4),
            ("cart", "", 4),
            ("kitten", "sitting", 3),
        ];
        for (one, other, expected) in cases {
            assert_eq!(distance(one, other), expected, "{one} and {other}");
            assert_eq!(distance(other, one), expected, "{other} and {one}");
        }
    }

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
