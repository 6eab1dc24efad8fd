//! The crates in the programs, with the notices that their licences require.
//!
//! Touches: `cargo tree`, `cargo metadata`, `rustc`, sources of crates. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{nested, process};

/// Prefixes of licence files, in capitals.
const TEXTS: &[&str] = &[
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
/// The toolchain's path of those of the standard library.
const STANDARD_LIBRARY: &str = "share/doc/rust/COPYRIGHT-library.html";

/// A third-party crate.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    /// Name and version.
    name: String,
    /// SPDX expression.
    licence: String,
    /// The texts of its licence files, by name.
    texts: BTreeMap<String, String>,
}

/// All licence texts of a program, without duplicates, each with the crates it belongs to. `licences` is the declared
/// expression for the whole.
///
/// # Errors
/// Cargo does not know the package, or a crate has a licence outside of `licences`.
pub(super) fn notices(package: &str, licences: &str) -> Result<String> {
    let crates = crates_of(package)?;
    for one in &crates {
        if !covers(licences, &one.licence) {
            bail!(
                "{package} is said to be under {licences}; {} in it is under {}: add that in \
                 e2e/lab/src/images/recipe.rs",
                one.name,
                one.licence
            );
        }
    }
    Ok(render(&crates))
}

/// The licences of the standard library, if the toolchain contains them.
///
/// # Errors
/// There is no compiler.
pub(super) fn standard_library() -> Result<Option<PathBuf>> {
    let mut rustc = process::program("rustc")?;
    let root = process::output(
        rustc
            .args(["--print", "sysroot"])
            .current_dir(nested::root()),
    )?;
    let path = Path::new(root.trim()).join(STANDARD_LIBRARY);
    Ok(path.is_file().then_some(path))
}

fn crates_of(package: &str) -> Result<Vec<Crate>> {
    let cargo = |words: &str| -> Result<String> {
        let mut command = process::cargo()?;
        process::output(command.args(words.split(' ')).current_dir(nested::root()))
    };
    let version = cargo("--version --verbose")?;
    let mut lines = version.lines();
    let host = lines.find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`cargo --version --verbose` names no host")?;
    // Build dependencies and proc macros are not part of a program.
    let edges = "--edges normal,no-proc-macro";
    let tree = cargo(&format!(
        "tree --prefix none --format {{p}} {edges} --package {package}"
    ))?;
    let metadata = cargo(&format!(
        "metadata --format-version 1 --filter-platform {host}"
    ))?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("reading what `cargo metadata` prints")?;
    let found = chosen(&metadata, &names(&tree))?.into_iter();
    found
        .map(|(name, licence, folder)| {
            let texts = texts(&folder)?;
            Ok(Crate {
                name,
                licence,
                texts,
            })
        })
        .collect()
}

/// Names and versions in what `cargo tree` prints: `anyhow v1.0.104 (*)`.
fn names(tree: &str) -> BTreeSet<String> {
    let named = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?);
        Some(format!("{name} {}", version.strip_prefix('v')?))
    });
    named.collect()
}

/// The third-party crates among them: name with version, licence, folder.
fn chosen(metadata: &Value, names: &BTreeSet<String>) -> Result<Vec<(String, String, PathBuf)>> {
    let packages = metadata["packages"].as_array();
    let packages = packages.context("`cargo metadata` lists no packages")?;
    let mut found = Vec::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        if package["source"].is_null() || !names.contains(&name) {
            continue;
        }
        let manifest = Path::new(text("manifest_path"));
        let folder = manifest.parent().context("a manifest is in a folder")?;
        found.push((name, text("license").to_owned(), folder.to_owned()));
    }
    found.sort();
    Ok(found)
}

fn texts(folder: &Path) -> Result<BTreeMap<String, String>> {
    let reading = || format!("reading {}", folder.display());
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        if TEXTS.iter().any(|begin| upper.starts_with(begin)) && entry.path().is_file() {
            let bytes = fs::read(entry.path()).with_context(reading)?;
            texts.insert(name, String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
    Ok(texts)
}

/// Whether one of the alternatives of this licence expression is among those. Without parentheses, `AND` is treated
/// as if it bound less, which requires more, never less.
fn covers(licences: &str, licence: &str) -> bool {
    let ours: Vec<&str> = licences.split(" AND ").collect();
    let licence = licence.replace(['(', ')'], "").replace('/', " OR ");
    let one = |way: &str| ours.contains(&way.trim());
    !licence.is_empty()
        && licence
            .split(" AND ")
            .all(|part| part.split(" OR ").any(one))
}

fn render(crates: &[Crate]) -> String {
    let mut by_text: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut all =
        String::from("This program holds code of these crates, each under its own licence:\n\n");
    for one in crates {
        // Writing to a string cannot fail.
        let _ = writeln!(all, "{}: {}", one.name, one.licence);
        for (file, text) in &one.texts {
            let of = format!("{}: {file}", one.name);
            by_text.entry(text).or_default().push(of);
        }
    }
    all += "\nand of the standard library of Rust: MIT OR Apache-2.0\n";
    let mut texts: Vec<(Vec<String>, &str)> =
        by_text.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    for (of, text) in texts {
        let _ = write!(all, "\n{}\n{}\n\n{text}\n", "=".repeat(78), of.join("\n"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_covered_by_any_of_its_ways() {
        let ours = "Apache-2.0 AND ISC AND BSD-3-Clause";
        for licence in [
            "ISC",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "(Apache-2.0 OR MIT) AND BSD-3-Clause",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(covers(ours, licence), "{licence}");
        }
        for licence in [
            "MIT",
            "GPL-2.0-only",
            "Apache-2.0 AND MIT",
            "Apache-2.0 WITH x",
            "",
        ] {
            assert!(!covers(ours, licence), "{licence}");
        }
    }

    #[test]
    fn crates_in_the_tree_are_found_with_their_folders_and_ours_are_left_out() {
        let tree = "portolan-agent v0.1.0 (/p)\nanyhow v1.0.1\nanyhow v1.0.1 (*)\n\nb v2.0.0+x\n";
        let names = names(tree);
        let package = |name: &str, version: &str, source: Value| {
            serde_json::json!({
                "name": name, "version": version, "license": "MIT", "source": source,
                "manifest_path": format!("/r/{name}/Cargo.toml"),
            })
        };
        let registry = || Value::from("registry");
        let metadata = serde_json::json!({"packages": [
            package("b", "2.0.0+x", registry()),
            package("anyhow", "1.0.1", registry()),
            package("anyhow", "0.9.0", registry()),
            package("portolan-agent", "0.1.0", Value::Null),
        ]});
        let found = chosen(&metadata, &names).unwrap();
        let named: Vec<&str> = found.iter().map(|one| one.0.as_str()).collect();
        assert_eq!(named, ["anyhow 1.0.1", "b 2.0.0+x"]);
        assert_eq!(found[0].2, Path::new("/r/anyhow"));
    }

    #[test]
    fn each_text_is_there_once_below_all_crates_that_have_it() {
        let one = |name: &str, files: &[(&str, &str)]| Crate {
            name: name.to_owned(),
            licence: "MIT".to_owned(),
            texts: files
                .iter()
                .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
                .collect(),
        };
        let crates = [
            one("a 1", &[("LICENSE", "same"), ("NOTICE", "own")]),
            one("b 2", &[("LICENSE-MIT", "same")]),
        ];
        let text = render(&crates);
        assert_eq!(text.matches("same").count(), 1);
        assert!(text.contains("a 1: MIT\nb 2: MIT\n"), "{text}");
        assert!(
            text.contains("a 1: LICENSE\nb 2: LICENSE-MIT\n\nsame\n"),
            "{text}"
        );
        assert!(text.contains("a 1: NOTICE\n\nown\n"), "{text}");
    }
}
