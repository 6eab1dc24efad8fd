//! Comparing and measuring the content of objects: hashes, sizes, texts that fit. Pure.

use std::io;
use std::time::Duration;

use portolan_crds::limit;
use portolan_plan::{EntryHash, EntryKey};
use serde::Serialize;

/// The hash of written content. The content itself is not kept, because there may be thousands of objects. Not a
/// security boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentHash(u128);

impl ContentHash {
    /// The hash of the value as JSON; equal values have equal hashes in all processes.
    pub(super) fn of(value: &impl Serialize) -> Self {
        // Serialising the types of the custom resources as JSON cannot fail. If it did, the API call with the same
        // value would fail and report it.
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        Self(EntryHash::of(&EntryKey::Other("content".into()), &bytes).0)
    }

    /// The first 8 hexadecimal digits, for display.
    pub(super) fn short(self) -> String {
        let mut text = format!("{:032x}", self.0);
        text.truncate(8);
        text
    }
}

/// The size of a value as JSON in bytes, which is how the API server stores it.
pub(super) fn size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}

/// The text, shortened to the limit of the API server.
pub(super) fn sentence(text: &str) -> String {
    shortened(text, limit::MESSAGE_CHARS)
}

/// The text, shortened to at most `most` characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Up to `most` texts, the last of which says how many were left out.
pub(super) fn bounded(texts: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let mut texts = texts;
    let mut kept: Vec<String> = texts.by_ref().take(most).collect();
    let rest = texts.count();
    if rest > 0 {
        kept.pop();
        kept.push(format!("({} more)", rest + 1));
    }
    kept
}

/// A duration for display: whole milliseconds below 1 s, two decimals below 1 min, then minutes and seconds.
pub(super) fn lag(lag: Duration) -> String {
    if lag < Duration::from_secs(1) {
        return format!("{}ms", lag.as_millis());
    }
    if lag < Duration::from_secs(60) {
        return format!("{}.{:02}s", lag.as_secs(), lag.subsec_millis() / 10);
    }
    let seconds = lag.as_secs();
    format!("{}m{}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_characters_and_marked() {
        assert_eq!(shortened("grün", 4), "grün");
        assert_eq!(shortened("grüner", 4), "grü…");
        assert_eq!(
            sentence(&"ü".repeat(2000)).chars().count(),
            limit::MESSAGE_CHARS
        );
    }

    #[test]
    fn a_shortened_list_counts_what_is_missing() {
        let texts = |count: usize| (0..count).map(|n| n.to_string());
        assert_eq!(bounded(texts(3), 3), ["0", "1", "2"]);
        assert_eq!(bounded(texts(5), 3), ["0", "1", "(3 more)"]);
    }

    #[test]
    fn a_size_is_the_length_of_the_json() {
        assert_eq!(size(&["a", "b"]), r#"["a","b"]"#.len());
    }

    #[test]
    fn the_same_content_has_the_same_hash() {
        assert_eq!(ContentHash::of(&[1, 2]), ContentHash::of(&vec![1, 2]));
        assert_ne!(ContentHash::of(&[1, 2]), ContentHash::of(&[2, 1]));
    }
}
