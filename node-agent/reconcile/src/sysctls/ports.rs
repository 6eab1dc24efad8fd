//! Port lists in the format of `ip_local_reserved_ports`: `80,30000-32767`.

use std::collections::BTreeMap;

/// Parses a list into disjoint ranges, from first to last port, in order. Invalid parts are ignored; the kernel
/// writes none.
fn ranges(text: &str) -> BTreeMap<u16, u16> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().ok();
        number(first).zip(number(last))
    };
    let mut all: Vec<(u16, u16)> = text.split(',').filter_map(part).collect();
    all.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in all {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined.into_iter().collect()
}

/// Whether `found` contains all ports of `wanted`.
pub(super) fn holds(found: &str, wanted: &str) -> bool {
    let found = ranges(found);
    ranges(wanted).into_iter().all(|(first, last)| {
        let around = found.range(..=first).next_back();
        around.is_some_and(|(_, end)| *end >= last)
    })
}

/// The union of both lists.
pub(super) fn joined(found: &str, wanted: &str) -> String {
    let all = ranges(&format!("{found},{wanted}"));
    let part = |(first, last): (u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    all.into_iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_and_what_is_no_port_is_left_out() {
        assert_eq!(joined("9,7-8,x,70000", "10-12,11"), "7-12");
        assert_eq!(joined("", "65535"), "65535");
        assert_eq!(joined("1-65535", "3"), "1-65535");
    }

    #[test]
    fn a_list_holds_what_is_in_one_of_its_ranges() {
        assert!(holds("1-5,6-9", "2-8") && holds("7", "") && holds("7", "7"));
        assert!(!holds("1-5,7-9", "2-8") && !holds("", "7") && !holds("8-9", "7-9"));
    }
}
