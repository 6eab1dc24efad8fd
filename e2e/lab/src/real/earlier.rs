//! The chart and the images of an earlier revision of this project, built by the lab of that revision.
//!
//! Touches: the cache, `git`, `cargo`. Invariant: a folder under its final name is complete.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::store::{PORTOLAN, REPOSITORY};
use crate::progress::Step;
use crate::{cache, nested, process};

/// The tag of its images.
pub(super) const TAG: &str = "earlier";
/// The file with the default revision.
const USUAL: &str = "e2e/real/earlier";

/// An earlier revision.
pub(super) struct Earlier {
    /// Its full hash.
    pub(super) revision: String,
    folder: PathBuf,
}

impl Earlier {
    pub(super) fn chart(&self) -> PathBuf {
        self.folder.join("source/charts/portolan")
    }

    pub(super) fn archives(&self) -> impl Iterator<Item = PathBuf> {
        let archive = |name| self.folder.join(format!("{name}.tar"));
        PORTOLAN.into_iter().map(archive)
    }
}

/// The revision `name`, built once.
///
/// # Errors
/// git does not know the revision, or its build failed.
pub(super) fn prepare(name: Option<&str>) -> Result<Earlier> {
    let root = nested::root();
    let usual = fs::read_to_string(root.join(USUAL)).with_context(|| format!("reading {USUAL}"))?;
    let name = name.unwrap_or(usual.trim());
    let commit = format!("{name}^{{commit}}");
    let revision = git(&root, &["rev-parse", "--verify", &commit])
        .with_context(|| format!("there is no revision `{name}`"))?;
    let kept = cache::folder("real-earlier")?;
    let folder = kept.join(&revision);
    if !folder.is_dir() {
        let step = Step::start(&format!("Portolan at {revision}"));
        let building = kept.join("building");
        drop(fs::remove_dir_all(&building));
        fs::create_dir_all(&building)?;
        step.detail("getting its source");
        let repository = git(&root, &["rev-parse", "--absolute-git-dir"])?;
        let source = building.join("source");
        let place = source.display().to_string();
        git(
            &root,
            &["clone", "--quiet", "--no-checkout", &repository, &place],
        )?;
        git(&source, &["checkout", "--quiet", &revision])?;
        step.detail("building its images (once; about ten minutes on 2 cores)");
        images(&source, &building, &kept.join("target"))?;
        fs::rename(&building, &folder)
            .with_context(|| format!("renaming to {}", folder.display()))?;
        step.done("chart and images");
    }
    Ok(Earlier { revision, folder })
}

fn git(folder: &Path, words: &[&str]) -> Result<String> {
    let mut command = process::program("git")?;
    // It is a separate repository and must not use the variables of `cargo verify` for its copy.
    if folder != nested::root() {
        command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    }
    let said = process::output(command.current_dir(folder).args(words))?;
    Ok(said.trim().to_owned())
}

fn images(source: &Path, output: &Path, target: &Path) -> Result<()> {
    let mut command = process::cargo()?;
    for name in ["GIT_DIR", "GIT_WORK_TREE", nested::ROOT, nested::BUILT] {
        command.env_remove(name);
    }
    command
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target)
        .args(["lab", "image", "--profile", "dev", "--tag", TAG])
        .args(["--repository", REPOSITORY, "--output"])
        .arg(output);
    process::output(&mut command).map(drop)
}
