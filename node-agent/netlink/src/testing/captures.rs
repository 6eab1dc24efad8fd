//! Captures of messages, as files that people can read.

use std::path::Path;

/// The bytes of a capture: hexadecimal numbers, separated by white space; `#` begins a comment.
///
/// # Panics
/// The file cannot be read, or contains something else.
pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .flat_map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
        })
        .map(|byte| u8::from_str_radix(byte, 16).expect("a hexadecimal byte"))
        .collect()
}
