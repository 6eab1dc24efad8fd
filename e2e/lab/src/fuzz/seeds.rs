//! Inputs that the fuzzer begins with, besides the corpora: captures and examples of other tests, copied to the lab's
//! cache.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Targets, and the folders with their inputs: captures (`.hex`) and manifests (`.yaml`).
const SEEDS: &[(&str, &str)] = &[
    ("ipvs_replies", "node-agent/ipvs-rs/tests/captures"),
    ("ipset_replies", "node-agent/ipset-rs/tests/captures"),
    ("nft_replies", "node-agent/nft-rs/tests/captures"),
    ("manifests", "controller/tests/example"),
    ("manifests", "controller/tests/command/reported"),
    ("manifests", "e2e/cluster"),
    ("manifests", "e2e/external"),
];

/// The folders with inputs.
pub(crate) fn folders() -> impl Iterator<Item = &'static str> {
    SEEDS.iter().map(|(_, folder)| *folder)
}

/// Copies all of them to a folder for each target.
///
/// # Errors
/// A file cannot be read or written, or contains something else.
pub(super) fn copy(root: &Path, to: &Path) -> Result<()> {
    for (target, folder) in SEEDS {
        let folder = root.join(folder);
        let to = to.join(target);
        fs::create_dir_all(&to).with_context(|| format!("creating {}", to.display()))?;
        let reading = || format!("reading {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(reading)? {
            let path = entry.with_context(reading)?.path();
            let read =
                || fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()));
            let input = match path.extension().and_then(OsStr::to_str) {
                Some("hex") => bytes(&read()?).with_context(|| path.display().to_string())?,
                Some("yaml") => read()?.into_bytes(),
                _ => continue,
            };
            let name = path.file_stem().unwrap_or_default();
            fs::write(to.join(name), input).with_context(|| format!("writing {}", to.display()))?;
        }
    }
    Ok(())
}

/// The bytes of a capture: hexadecimal numbers, separated by white space; `#` begins a comment.
fn bytes(text: &str) -> Result<Vec<u8>> {
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let words = lines.flat_map(str::split_whitespace);
    let byte = |word| {
        u8::from_str_radix(word, 16).with_context(|| format!("{word:?} is not a hexadecimal byte"))
    };
    words.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nested;

    #[test]
    fn every_folder_has_inputs() {
        let to = std::env::temp_dir().join(format!("portolan-seeds-{}", std::process::id()));
        copy(&nested::root(), &to).unwrap();
        for (target, _) in SEEDS {
            let count = fs::read_dir(to.join(target)).unwrap().count();
            assert!(count > 3, "{target}: {count}");
        }
        fs::remove_dir_all(&to).unwrap();
    }

    #[test]
    fn a_capture_is_read_without_its_comments() {
        assert_eq!(bytes("# a\n0a ff # b\n 00\n").unwrap(), [10, 255, 0]);
        assert!(bytes("0x").is_err());
    }
}
