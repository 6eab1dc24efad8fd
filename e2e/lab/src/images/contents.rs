//! The contents of an image, gathered from this machine and written to a folder.
//!
//! Touches: `dpkg-query`, `ldd`, files of this machine; the given folder. Invariant: the contents do not depend on
//! the machine or the time, so the same packages and programs make the same image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::recipe::{self, Recipe};
use super::{crates, debian};
use crate::installed::{Files, usr_merge};
use crate::nested;
use crate::packages::Versions;

/// An entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// An empty folder.
    Folder,
    /// A symlink to this target.
    Link(String),
    /// A file with this text.
    Text(String),
    /// A copy of this file.
    File(PathBuf),
}

/// All entries.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// By path.
    pub(super) entries: BTreeMap<String, Entry>,
    /// Debian packages of which files are included.
    pub(super) packages: Versions,
}

impl Contents {
    /// The contents that do not depend on the machine.
    pub(super) fn fixed(recipe: &Recipe) -> Self {
        let mut contents = Self::default();
        for folder in recipe::FOLDERS.iter().chain(recipe.mounts) {
            contents.put(folder, Entry::Folder);
        }
        for (link, target) in usr_merge::LINKS.iter().chain(recipe::LINKS) {
            contents.put(link, Entry::Link((*target).to_owned()));
        }
        if recipe.packages.contains(&recipe::IPTABLES) {
            for name in recipe::ALTERNATIVES {
                let target = Entry::Link("xtables-nft-multi".to_owned());
                contents.put(&format!("/usr/sbin/{name}"), target);
            }
        }
        for (path, text) in recipe::TEXTS {
            contents.put(path, Entry::Text((*text).to_owned()));
        }
        contents
    }

    /// The contents of an image for this program.
    ///
    /// # Errors
    /// A library or a package is missing on this machine, or a package has no licence file.
    pub(super) fn gather(recipe: &Recipe, program: &Path) -> Result<Self> {
        let mut contents = Self::fixed(recipe);
        let mut files = match recipe.packages {
            [] => Files::default(),
            packages => Files::of_packages(packages, recipe::wants)?,
        };
        files.files.insert(place_of(recipe), program.to_owned());
        let libraries = files.add_libraries()?;
        let mut packages = debian::owners(&libraries)?;
        packages.extend(recipe.packages.iter().map(|name| (*name).to_owned()));
        for (place, path) in files.files {
            contents.put(&place, Entry::File(path));
        }
        for (place, target) in files.links {
            contents.put(&place, Entry::Link(target));
        }
        contents.add_papers(recipe, &packages.into_iter().collect::<Vec<_>>())?;
        Ok(contents)
    }

    /// What distributors of other people's programs must include, and what scanners look for.
    fn add_papers(&mut self, recipe: &Recipe, packages: &[String]) -> Result<()> {
        let names: Vec<&str> = packages.iter().map(String::as_str).collect();
        self.packages = crate::packages::installed(&names)?;
        let mut licences = Vec::new();
        for name in &names {
            let text = debian::copyright(name)?;
            licences.extend(debian::named_licences(&text));
            self.put(&debian::copyright_path(name), Entry::Text(text));
        }
        for licence in licences {
            let path = format!("{}/{licence}", debian::LICENCES);
            let real = fs::canonicalize(&path).with_context(|| format!("looking for {path}"))?;
            self.put(&path, Entry::File(real));
        }
        for (name, text) in debian::statuses(&names)? {
            self.put(&format!("{}/{name}", debian::STATUSES), Entry::Text(text));
        }
        let release = fs::canonicalize("/etc/os-release").context("looking for /etc/os-release")?;
        self.put("/etc/os-release", Entry::File(release));
        let own = debian::copyright_path(recipe.program);
        self.put(&own, Entry::File(nested::root().join("LICENSE")));
        let crates = crates::notices(recipe.program, recipe.licences)?;
        self.put(&crates_path(recipe), Entry::Text(crates));
        if let Some(path) = crates::standard_library()? {
            let place = format!("/usr/share/doc/{}/standard-library.html", recipe.program);
            self.put(&place, Entry::File(path));
        }
        Ok(())
    }

    fn put(&mut self, place: &str, entry: Entry) {
        self.entries.insert(place.to_owned(), entry);
    }

    /// Writes all entries below a folder, with permissions independent of the umask.
    ///
    /// # Errors
    /// A file cannot be read, or the folder cannot be written.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        folder(root)?;
        for (place, entry) in &self.entries {
            let path = root.join(place.trim_start_matches('/'));
            let at = || format!("writing {}", path.display());
            let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
            above.retain(|above| above.starts_with(root) && *above != root);
            above.into_iter().rev().try_for_each(folder)?;
            match entry {
                Entry::Folder => folder(&path)?,
                Entry::Link(target) => symlink(target, &path).with_context(at)?,
                Entry::Text(text) => {
                    fs::write(&path, text).with_context(at)?;
                    allow(&path, 0o644)?;
                }
                Entry::File(source) => {
                    let copying = || format!("copying {} into an image", source.display());
                    fs::copy(source, &path).with_context(copying)?;
                    let mode = fs::metadata(source).with_context(copying)?.permissions();
                    let runs = mode.mode() & 0o111 != 0;
                    allow(&path, if runs { 0o755 } else { 0o644 })?;
                }
            }
        }
        Ok(())
    }
}

/// The path of the list of crates in an image.
pub(super) fn crates_path(recipe: &Recipe) -> String {
    format!("/usr/share/doc/{}/crates", recipe.program)
}

/// The path of the program in an image.
pub(super) fn place_of(recipe: &Recipe) -> String {
    format!("/usr/bin/{}", recipe.program)
}

fn folder(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => return Ok(()),
        // Debian's tree is merged: entries below such a symlink must use their real path.
        Ok(_) => bail!("{} is to be a folder and is not", path.display()),
        Err(_) => fs::create_dir(path).with_context(|| format!("creating {}", path.display()))?,
    }
    allow(path, 0o755)
}

fn allow(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("setting permissions of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::recipe::IMAGES;

    #[test]
    fn nothing_lies_below_a_link() {
        for recipe in IMAGES {
            let entries = Contents::fixed(recipe).entries;
            for (place, entry) in &entries {
                let below = |other: &&String| other.starts_with(&format!("{place}/"));
                if let (Entry::Link(_), Some(other)) = (entry, entries.keys().find(below)) {
                    panic!("{other} is below the link {place}");
                }
            }
        }
    }

    #[test]
    fn what_is_written_owes_nothing_to_the_source_but_whether_it_runs() {
        let work = std::env::temp_dir().join(format!("portolan-contents-{}", std::process::id()));
        drop(fs::remove_dir_all(&work));
        fs::create_dir_all(&work).unwrap();
        let source = work.join("source");
        fs::write(&source, "program").unwrap();
        let mut contents = Contents::default();
        for (mode, place) in [(0o700, "/usr/bin/a"), (0o600, "/usr/lib/b")] {
            allow(&source, mode).unwrap();
            contents.entries = [(place.to_owned(), Entry::File(source.clone()))].into();
            contents.put("/bin", Entry::Link("usr/bin".into()));
            contents.write(&work.join(format!("{mode:o}"))).unwrap();
        }
        let mode = |path: &str| fs::metadata(work.join(path)).unwrap().permissions().mode();
        assert_eq!(mode("700/usr/bin/a") & 0o7777, 0o755);
        assert_eq!(mode("700/bin/a") & 0o7777, 0o755);
        assert_eq!(mode("600/usr/lib/b") & 0o7777, 0o644);
        assert_eq!(mode("600/usr/lib") & 0o7777, 0o755);
        contents.put("/bin/c", Entry::Text(String::new()));
        let error = contents.write(&work.join("through")).unwrap_err();
        assert!(
            format!("{error:#}").contains("/bin is to be a folder"),
            "{error:#}"
        );
        fs::remove_dir_all(&work).unwrap();
    }

    #[test]
    fn a_program_brings_its_libraries_and_the_papers_of_their_packages() {
        let own = std::env::current_exe().unwrap();
        let contents = Contents::gather(&IMAGES[0], &own).unwrap();
        let program = contents.entries.get("/usr/bin/portolan-controller");
        assert_eq!(program, Some(&Entry::File(own)));
        let mut places = contents.entries.keys();
        assert!(places.any(|place| place.ends_with("/libc.so.6")));
        assert!(
            contents.packages.contains_key("libc6"),
            "{:?}",
            contents.packages
        );
        for place in [
            "/usr/share/doc/libc6/copyright",
            "/usr/share/doc/portolan-controller/copyright",
            "/usr/share/doc/portolan-controller/crates",
            "/usr/share/common-licenses/LGPL-2.1",
            "/var/lib/dpkg/status.d/libc6",
            "/etc/os-release",
        ] {
            assert!(contents.entries.contains_key(place), "{place}");
        }
    }
}
