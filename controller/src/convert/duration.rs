//! Durations in Go's syntax.

/// Units in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The nanoseconds of a text like `1m30s`, `1.5h`, `250ms` or `-5s`; `None` if Go rejects it too.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0i64;
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = rest.find(|c| !is_number(c))?;
        let (number, tail) = rest.split_at(end);
        let end = tail.find(is_number).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(part(number, *length)?)?;
        rest = tail;
    }
    Some(if negative { -total } else { total })
}

/// A number of units in nanoseconds; further digits are truncated.
fn part(number: &str, length: u64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let (mut nanoseconds, mut scale) = (whole.checked_mul(length)?, length);
    for digit in fraction.chars() {
        scale /= 10;
        nanoseconds = nanoseconds.checked_add(u64::from(digit.to_digit(10)?) * scale)?;
    }
    i64::try_from(nanoseconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("-0", Some(0)),
            ("24h0m0s", Some(86_400_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("1m30s", Some(90_000_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("+250ms", Some(250_000_000)),
            ("100us", Some(100_000)),
            ("100µs", Some(100_000)),
            ("1.23456789999s", Some(1_234_567_899)),
            ("-5s", Some(-5_000_000_000)),
            ("", None),
            ("-", None),
            ("30", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("5 s", None),
            ("1d", None),
            ("9999999999h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(nanoseconds(text), expected, "{text:?}");
        }
    }
}
