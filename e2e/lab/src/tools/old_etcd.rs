//! etcd 3.4 as Debian 12 has it: the oldest store that people run, without lists as streams. It is
//! taken out of its package and never installed, because that would start a service.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::version::Version;
use crate::progress::Step;
use crate::{cache, packages};

/// Under which scenarios find it; `etcd` is the present one.
pub(super) const NAME: &str = "etcd-3.4";
const WANTED: (u32, u32) = (3, 4);
const ASK: &[&str] = &["--version"];

/// A finished one, or the one of the Debian package.
pub(super) fn ensure() -> Result<PathBuf> {
    let in_assets = super::assets().map(|folder| folder.join(NAME));
    let installed = super::in_path("etcd");
    if let Some(path) = in_assets
        .into_iter()
        .chain(installed)
        .find(|path| serves(path))
    {
        return Ok(path);
    }
    let folder = cache::folder(super::CACHE)?.join(NAME);
    let path = folder.join("etcd");
    if !serves(&path) {
        fetch(&folder, &path)?;
    }
    Ok(path)
}

fn serves(path: &Path) -> bool {
    path.is_file() && version(path).is_some_and(|found| is_wanted(&found))
}

fn version(path: &Path) -> Option<Version> {
    super::ask(path, ASK)
}

fn is_wanted(version: &Version) -> bool {
    (version.major, version.minor) == WANTED
}

fn fetch(folder: &Path, path: &Path) -> Result<()> {
    let step = Step::start("etcd of Debian 12");
    step.detail("fetching its package");
    if packages::is_root()? {
        packages::refresh_lists()?;
    }
    let draft = folder.with_extension(format!("fetching-{}", std::process::id()));
    let package = packages::UNPACKED
        .iter()
        .find(|program| program.name == "etcd")
        .context("the table of packages has no etcd any more")?
        .package;
    let fetched = packages::unpack(package, &draft).and_then(|unpacked| {
        let program = unpacked.join("usr/bin/etcd");
        let found = version(&program);
        let Some(version) = found.filter(is_wanted) else {
            bail!(
                "Debian's {package} on this machine is not etcd {}.{}; put one as `{NAME}` into \
                 a folder that {} names",
                WANTED.0,
                WANTED.1,
                super::ASSETS
            );
        };
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        fs::rename(&program, path).with_context(|| format!("renaming to {}", path.display()))?;
        Ok(version)
    });
    drop(fs::remove_dir_all(&draft));
    step.done(&format!("etcd {}, unpacked, not installed", fetched?));
    Ok(())
}
