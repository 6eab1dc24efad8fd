//! Programs extracted from Debian packages, which are never installed because that would start a service: etcd 3.4,
//! the oldest store in use, without streaming lists; and Prometheus.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::version::Version;
use crate::packages::Index;
use crate::progress::Step;
use crate::{cache, packages, programs};

/// A program.
#[derive(Debug)]
pub(super) struct Unpacked {
    /// The name by which scenarios find it.
    pub(super) name: &'static str,
    /// The name of its package.
    program: &'static str,
    /// The required version, for messages.
    needed: &'static str,
    serves: fn(&Version) -> bool,
}

/// All of them.
pub(super) const ALL: &[Unpacked] = &[
    Unpacked {
        name: "etcd-3.4",
        program: "etcd",
        needed: "3.4",
        serves: |version| (version.major, version.minor) == (3, 4),
    },
    Unpacked {
        name: "prometheus",
        program: "prometheus",
        needed: SINCE,
        serves: is_new_enough,
    },
    Unpacked {
        name: "promtool",
        program: "promtool",
        needed: SINCE,
        serves: is_new_enough,
    },
];

/// The first version that keeps exemplars and validates rules as today.
const SINCE: &str = "2.42 or newer";
const ASK: &[&str] = &["--version"];

fn is_new_enough(version: &Version) -> bool {
    (version.major, version.minor) >= (2, 42)
}

impl Unpacked {
    /// An existing program, or the one of the Debian package.
    pub(super) fn ensure(&self) -> Result<PathBuf> {
        let in_assets = super::assets().map(|folder| folder.join(self.name));
        let installed = super::in_path(self.program);
        let found = in_assets.into_iter().chain(installed);
        if let Some(path) = found.into_iter().find(|path| self.version(path).is_some()) {
            return Ok(path);
        }
        let folder = cache::folder(super::CACHE)?.join(self.name);
        let path = folder.join(self.program);
        if self.version(&path).is_none() {
            self.fetch(&folder, &path)?;
        }
        Ok(path)
    }

    fn version(&self, path: &Path) -> Option<Version> {
        super::ask(path, ASK).filter(|version| (self.serves)(version))
    }

    fn fetch(&self, folder: &Path, path: &Path) -> Result<()> {
        let (program, needed) = (self.program, self.needed);
        let step = Step::start(&format!("{program} of Debian"));
        step.detail("fetching its package");
        if packages::is_root()? {
            Index::default().refresh()?;
        }
        let draft = folder.with_extension(format!("fetching-{}", std::process::id()));
        let mut listed = programs::UNPACKED.iter();
        let package = listed
            .find(|listed| listed.name == program)
            .with_context(|| format!("the table of packages has no {program} any more"))?
            .package;
        let fetched = Index::default()
            .unpack(package, &draft)
            .and_then(|unpacked| {
                let found = unpacked.join("usr/bin").join(program);
                let Some(version) = self.version(&found) else {
                    bail!(
                        "Debian's {package} on this machine has no {program} {needed}; put one as \
                     `{name}` into a folder that {assets} names",
                        name = self.name,
                        assets = super::ASSETS
                    );
                };
                fs::create_dir_all(folder)
                    .with_context(|| format!("creating {}", folder.display()))?;
                fs::rename(&found, path)
                    .with_context(|| format!("renaming to {}", path.display()))?;
                Ok(version)
            });
        drop(fs::remove_dir_all(&draft));
        step.done(&format!("{program} {}, unpacked, not installed", fetched?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_needs_its_own_version_and_has_a_package() {
        for (name, version, serves) in [
            ("etcd-3.4", "3.4.23", true),
            ("etcd-3.4", "3.5.0", false),
            ("prometheus", "2.42.0+ds", true),
            ("prometheus", "2.41.9", false),
            ("promtool", "3.0.1", true),
        ] {
            let one = ALL.iter().find(|one| one.name == name).unwrap();
            let version = Version::parse(version).unwrap();
            assert_eq!((one.serves)(&version), serves, "{name} {version}");
            let listed = programs::UNPACKED
                .iter()
                .any(|listed| listed.name == one.program);
            assert!(listed, "{name} has no package");
        }
    }
}
