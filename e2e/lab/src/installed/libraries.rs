//! The shared libraries of programs, as found by the dynamic loader.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process;

/// The libraries of all these files; scripts and static programs have none.
///
/// # Errors
/// `ldd` cannot be started, a file cannot be read, or a library is missing on this machine.
pub fn needed(files: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut binaries = Vec::new();
    for file in files {
        if is_elf(file).with_context(|| format!("reading {}", file.display()))? {
            binaries.push(file);
        }
    }
    if binaries.is_empty() {
        return Ok(BTreeSet::new());
    }
    // It exits with 1 if one of them is static, so its output is parsed.
    let output = process::finish(process::program("ldd")?.args(binaries))?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn is_elf(path: &Path) -> std::io::Result<bool> {
    let mut magic = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"\x7fELF")
}

fn parse(text: &str) -> Result<BTreeSet<PathBuf>> {
    let mut libraries = BTreeSet::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with(char::is_whitespace))
    {
        let line = line.trim();
        let found = line.split_once(" => ").map_or(line, |(_, path)| path);
        if found.starts_with("not found") {
            bail!("a shared library is missing on this machine: {line}");
        }
        let path = found.split_once(" (0x").map_or(found, |(path, _)| path);
        if path.starts_with('/') {
            libraries.insert(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "/usr/sbin/ip:\n\
        \tlinux-vdso.so.1 (0x00007ffc8b5f2000)\n\
        \tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f3e3f1b2000)\n\
        \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3e3efd1000)\n\
        \t/lib64/ld-linux-x86-64.so.2 (0x00007f3e3f2a5000)\n\
        /bin/busybox:\n\
        \tnot a dynamic executable\n\
        /usr/bin/x:\n\
        \tstatically linked\n\
        \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3e3efd1000)\n";

    #[test]
    fn libraries_and_the_loader_are_listed_once_and_the_kernels_own_is_not() {
        let found: Vec<String> = parse(SAMPLE)
            .unwrap()
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib/x86_64-linux-gnu/libelf.so.1",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = parse("\tlibfoo.so.3 => not found\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("libfoo.so.3"), "{error}");
    }

    #[test]
    fn this_very_test_needs_the_c_library() {
        let found = needed(&[std::env::current_exe().unwrap()]).unwrap();
        assert!(
            found.iter().any(|path| path.ends_with("libc.so.6")),
            "{found:?}"
        );
    }
}
