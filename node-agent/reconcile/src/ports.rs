//! Sets of ports.

use std::fmt;

/// A set of ports, in the format of `ip_local_reserved_ports`: `80,30000-32767`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports {
    /// Ranges from first to last port, in order; neither adjacent nor overlapping.
    ranges: Vec<(u16, u16)>,
}

impl Ports {
    /// Parses a list. Invalid parts are ignored; the kernel writes none.
    pub fn parse(text: &str) -> Self {
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u16>().ok();
            number(first).zip(number(last))
        };
        text.split(',').filter_map(part).collect()
    }

    /// Parses `ip_local_port_range`: the first and the last port. Empty if the text is anything else.
    pub fn parse_pair(text: &str) -> Self {
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        let pair = (numbers.next().flatten(), numbers.next().flatten());
        let (Some(first), Some(last)) = pair else {
            return Self::default();
        };
        [(first, last)].into_iter().collect()
    }

    /// The ports of either set.
    #[must_use]
    pub fn and(&self, more: &Self) -> Self {
        self.ranges.iter().chain(&more.ranges).copied().collect()
    }

    /// The ports that are not in the other set.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = Vec::new();
        for &(first, last) in &self.ranges {
            let mut next = Some(first);
            for &(from, to) in &others.ranges {
                let Some(start) = next.filter(|start| *start <= to && from <= last) else {
                    continue;
                };
                if start < from {
                    left.push((start, from - 1));
                }
                next = to.checked_add(1);
            }
            left.extend(
                next.filter(|start| *start <= last)
                    .map(|start| (start, last)),
            );
        }
        Self { ranges: left }
    }

    /// The ports that are in both sets.
    #[must_use]
    pub fn common(&self, others: &Self) -> Self {
        self.without(&self.without(others))
    }

    /// Whether it has no port.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of ports.
    pub fn count(&self) -> usize {
        let count = |(first, last): &(u16, u16)| usize::from(last - first) + 1;
        self.ranges.iter().map(count).sum()
    }
}

impl FromIterator<(u16, u16)> for Ports {
    fn from_iter<I: IntoIterator<Item = (u16, u16)>>(ranges: I) -> Self {
        let mut all: Vec<_> = ranges.into_iter().collect();
        all.retain(|(first, last)| first <= last);
        all.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in all {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ports(text: &str) -> Ports {
        Ports::parse(text)
    }

    #[test]
    fn neighbours_are_joined_and_what_is_no_port_is_left_out() {
        assert_eq!(ports("9,7-8,x,70000,10-12,11,5-3").to_string(), "7-12");
        assert_eq!(ports("").and(&ports("65535")).to_string(), "65535");
        assert_eq!(ports("1-65535").and(&ports("3")), ports("1-65535"));
        assert_eq!(Ports::parse_pair("32768\t60999\n"), ports("32768-60999"));
        assert_eq!(Ports::parse_pair("32768"), Ports::default());
    }

    fn any_ports() -> impl Strategy<Value = Ports> {
        let range = (0_u16..40, 0_u16..12).prop_map(|(first, more)| (first, first + more));
        proptest::collection::vec(range, 0..5).prop_map(|ranges| ranges.into_iter().collect())
    }

    fn one_by_one(ports: &Ports) -> BTreeSet<u16> {
        let ranges = ports.ranges.iter();
        ranges.flat_map(|(first, last)| *first..=*last).collect()
    }

    proptest! {
        #[test]
        fn sets_of_ports_are_sets(left in any_ports(), right in any_ports()) {
            let (one, other) = (one_by_one(&left), one_by_one(&right));
            prop_assert_eq!(one_by_one(&left.and(&right)), &one | &other);
            prop_assert_eq!(one_by_one(&left.without(&right)), &one - &other);
            prop_assert_eq!(one_by_one(&left.common(&right)), &one & &other);
            prop_assert_eq!(left.count(), one.len());
            prop_assert_eq!(Ports::parse(&left.to_string()), left);
        }
    }
}
