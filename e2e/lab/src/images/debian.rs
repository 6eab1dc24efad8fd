//! Information of Debian packages: owner of a file, licence, version.
//!
//! Touches: `dpkg-query`, `/usr/share/doc`. Writes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::installed::usr_merge;
use crate::process;

/// The folder of shared licence texts.
pub(super) const LICENCES: &str = "/usr/share/common-licenses";
/// The folder in which scanners look for packages in an image without a package manager, one file each.
pub(super) const STATUSES: &str = "/var/lib/dpkg/status.d";

/// The packages that these files belong to.
///
/// # Errors
/// One of them belongs to none.
pub(super) fn owners(files: &[PathBuf]) -> Result<BTreeSet<String>> {
    if files.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut search = process::program("dpkg-query")?;
    search.arg("--search");
    for file in files {
        search.args(spellings(file));
    }
    // It exits with 1 because it knows each file under only one of its names.
    let output = process::finish(&mut search)?;
    owners_in(&String::from_utf8_lossy(&output.stdout), files)
}

/// The loader, and the package, may use either path of the merged tree.
fn spellings(file: &Path) -> [String; 2] {
    let merged = usr_merge::merged(&file.to_string_lossy());
    let short = merged.strip_prefix("/usr").unwrap_or(&merged).to_owned();
    [merged, short]
}

fn owners_in(text: &str, files: &[PathBuf]) -> Result<BTreeSet<String>> {
    let owner = |file: &PathBuf| {
        let names = spellings(file);
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        let (owner, _) = lines.find(|(_, path)| names.iter().any(|name| name == path))?;
        // With several owners any will do; the suffix after the colon is the architecture.
        owner.split([',', ':']).next().map(str::to_owned)
    };
    let known = |file: &PathBuf| {
        owner(file).with_context(|| {
            format!(
                "{} belongs to no Debian package, so its licence is unknown and it may not be \
                 distributed; `dpkg -S` finds none of what is in /usr/local",
                file.display()
            )
        })
    };
    files.iter().map(known).collect()
}

/// The path of a package's licence file.
pub(super) fn copyright_path(package: &str) -> String {
    format!("/usr/share/doc/{package}/copyright")
}

/// The text of that file.
///
/// # Errors
/// It was excluded on this machine.
pub(super) fn copyright(package: &str) -> Result<String> {
    let path = copyright_path(package);
    std::fs::read_to_string(&path).with_context(|| {
        format!(
            "reading {path}, which has to go with the package; \
             `apt-get install --reinstall {package}` brings it back"
        )
    })
}

/// The shared licence texts that this one refers to.
pub(super) fn named_licences(copyright: &str) -> BTreeSet<String> {
    let begin = format!("{LICENCES}/");
    let is_of_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '-' || sign == '.';
    let named = copyright.split(&begin).skip(1).map(|rest| {
        let end = rest.find(|sign| !is_of_name(sign)).unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    });
    named.filter(|name| !name.is_empty()).collect()
}

/// The package manager's records of these packages, by name.
///
/// # Errors
/// One of them is not installed.
pub(super) fn statuses(packages: &[&str]) -> Result<Vec<(String, String)>> {
    let mut query = process::program("dpkg-query")?;
    let text = process::output(query.arg("--status").args(packages))?;
    Ok(paragraphs(&text))
}

fn paragraphs(text: &str) -> Vec<(String, String)> {
    let named = text.split("\n\n").filter_map(|paragraph| {
        let name = paragraph.trim_start().lines().next()?;
        let name = name.strip_prefix("Package: ")?;
        Some((name.to_owned(), format!("{}\n", paragraph.trim())))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_found_under_either_name_of_a_file() {
        let files = [
            "/lib/x/libzstd.so.1",
            "/usr/lib/x/libc.so.6",
            "/lib64/ld.so",
        ];
        let files = files.map(PathBuf::from);
        let text = "libzstd1:amd64: /usr/lib/x/libzstd.so.1\n\
            libc6:amd64, libc6:i386: /lib/x/libc.so.6\nlibc6:amd64: /lib64/ld.so\n";
        let owners = owners_in(text, &files).unwrap();
        assert_eq!(
            owners.into_iter().collect::<Vec<_>>(),
            ["libc6", "libzstd1"]
        );
        let error = owners_in("libc6: /lib64/ld.so\n", &files).unwrap_err();
        assert!(error.to_string().contains("/lib/x/libzstd.so.1"), "{error}");
    }

    #[test]
    fn shared_texts_are_named_once_without_the_full_stop_of_a_sentence() {
        let text = "see /usr/share/common-licenses/GPL-2.\n\
            see `/usr/share/common-licenses/GPL-2'; /usr/share/common-licenses/LGPL-2.1, \
            /usr/share/common-licenses/";
        let named: Vec<String> = named_licences(text).into_iter().collect();
        assert_eq!(named, ["GPL-2", "LGPL-2.1"]);
        assert!(named_licences("MIT").is_empty());
    }

    #[test]
    fn each_package_has_a_paragraph_of_its_own() {
        let text =
            "Package: a\nVersion: 1\nDescription: first\n .\n more\n\nPackage: b\nVersion: 2\n";
        let [first, second] = &paragraphs(text)[..] else {
            panic!("{:?}", paragraphs(text));
        };
        assert_eq!((first.0.as_str(), second.0.as_str()), ("a", "b"));
        assert!(first.1.ends_with(" more\n") && !first.1.contains("Package: b"));
        assert_eq!(second.1, "Package: b\nVersion: 2\n");
    }
}
