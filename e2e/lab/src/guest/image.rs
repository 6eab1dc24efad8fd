//! The guest's kernel and base file system, built once and kept outside the clone.
//!
//! Touches: the cache folder, `dpkg`, `apt`, `ldd`, `depmod`. Invariant: a folder under its final
//! name is complete; building happens beside it and ends with a rename.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use super::kernel::{self, Kernel};
use super::recipe;
use crate::installed::{Files, usr_merge};
use crate::packages::{Index, Versions};
use crate::progress::Step;
use crate::{cache, process};

const INIT: &str = include_str!("init.sh");
/// Everything that determines the contents of an image.
const RECIPE_TEXTS: &[&str] = &[
    INIT,
    include_str!("recipe.rs"),
    include_str!("image.rs"),
    include_str!("kernel.rs"),
    include_str!("archive.rs"),
    include_str!("../installed/mod.rs"),
    include_str!("../installed/libraries.rs"),
    include_str!("../installed/usr_merge.rs"),
];
/// Number of older images kept: another clone may use an older recipe, and there are images with other kernels.
const IMAGES_KEPT: usize = 6;
/// A younger image may be booting right now.
const IN_USE: Duration = Duration::from_secs(3600);

/// A bootable guest.
#[derive(Debug)]
pub struct Image {
    folder: PathBuf,
}

impl Image {
    /// The kernel to boot.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Its first file system, without the files of a single run.
    #[must_use]
    pub fn base(&self) -> PathBuf {
        self.folder.join("base.cpio")
    }
}

/// The image for these package versions: the cached one, or a new one. `release`: the Debian release of the kernel,
/// if it differs from this machine's.
///
/// # Errors
/// The cache folder cannot be written, a package cannot be fetched, or a tool failed.
pub fn prepare(versions: &Versions, release: Option<&str>) -> Result<Image> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the guest is an x86-64 machine and runs what is built here; build on x86-64");
    }
    let images = cache::folder("guest")?;
    let folder = images.join(key(versions, RECIPE_TEXTS, release));
    if is_fresh(&folder) {
        return Ok(Image { folder });
    }
    let step = Step::start("Guest image");
    let index = match release {
        Some(release) => Index::of_release(release, &cache::folder("packages")?.join(release))?,
        None => Index::default(),
    };
    let building = images.join(format!("building-{}", std::process::id()));
    let built = build(&building, &index, &step).and_then(|summary| {
        install(&building, &folder)?;
        Ok(summary)
    });
    if built.is_err() {
        // The first error is more useful than one of the clean-up.
        drop(fs::remove_dir_all(&building));
    }
    step.done(&built?);
    cache::keep_newest(&images, IMAGES_KEPT, &|_, age| age < IN_USE)?;
    Ok(Image { folder })
}

/// The kernel's version is not part of it: the lookup takes longer than a warm start may, and a newer kernel of the
/// same Debian release needs no new image.
fn key(versions: &Versions, texts: &[&str], release: Option<&str>) -> String {
    let mut hasher = DefaultHasher::new();
    release.hash(&mut hasher);
    for package in recipe::PACKAGES {
        (package, versions.get(*package)).hash(&mut hasher);
    }
    texts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Libraries belong to packages outside the key, so each copied file is compared.
fn is_fresh(folder: &Path) -> bool {
    let Ok(sources) = fs::read_to_string(folder.join("sources")) else {
        return false;
    };
    sources.lines().all(|line| {
        line.split_once('\t')
            .is_some_and(|(stamp, path)| stamp_of(Path::new(path)) == stamp)
    })
}

fn stamp_of(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path)
        .map(|data| format!("{}-{}.{}", data.len(), data.mtime(), data.mtime_nsec()))
        .unwrap_or_default()
}

fn install(building: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        let old = building.with_extension("old");
        fs::rename(folder, &old).with_context(|| format!("moving {} away", folder.display()))?;
        fs::remove_dir_all(&old).with_context(|| format!("removing {}", old.display()))?;
    }
    fs::rename(building, folder).with_context(|| format!("renaming to {}", folder.display()))
}

fn build(building: &Path, index: &Index, step: &Step) -> Result<String> {
    drop(fs::remove_dir_all(building));
    fs::create_dir_all(building).with_context(|| format!("creating {}", building.display()))?;
    step.detail("fetching the kernel");
    let kernel = kernel::fetch(index, &building.join("kernel"))?;
    step.detail("choosing programs, libraries and modules");
    let modules = kernel.modules()?;
    let tools = Tools::find()?;
    step.detail("writing the base file system");
    let base = building.join("base.cpio");
    write_base(&base, &kernel, &modules, &tools)
        .with_context(|| format!("writing {}", base.display()))?;
    fs::copy(&kernel.image, building.join("vmlinuz")).context("copying the kernel")?;
    fs::write(building.join("sources"), tools.sources()).context("writing the list of sources")?;
    fs::remove_dir_all(building.join("kernel")).context("removing the unpacked kernel")?;
    Ok(format!(
        "Linux {}, {} modules, {} files of {} packages, {} MB",
        kernel.release,
        modules.len(),
        tools.files.len(),
        recipe::PACKAGES.len(),
        fs::metadata(&base)?.len() / 1_000_000
    ))
}

/// Files of this machine that go into the guest: guest path → host path, guest path → link target.
struct Tools {
    files: BTreeMap<String, PathBuf>,
    links: BTreeMap<String, String>,
    applets: BTreeSet<String>,
}

impl Tools {
    fn find() -> Result<Self> {
        let mut installed = Files::of_packages(recipe::PACKAGES, recipe::wants)?;
        installed.add_libraries()?;
        let applets = process::output(process::program("busybox")?.arg("--list"))?;
        let applets = applets
            .lines()
            .filter(|name| *name != "sh")
            .map(str::to_owned)
            .collect();
        Ok(Self {
            files: installed.files,
            links: installed.links,
            applets,
        })
    }

    fn sources(&self) -> String {
        let line = |path: &PathBuf| format!("{}\t{}\n", stamp_of(path), path.display());
        self.files.values().map(line).collect()
    }
}

fn write_base(base: &Path, kernel: &Kernel, modules: &[String], tools: &Tools) -> Result<()> {
    let mut archive = Archive::new(BufWriter::new(File::create(base)?));
    for folder in [
        "/dev",
        "/proc",
        "/sys",
        "/root",
        "/usr/bin",
        "/usr/sbin",
        "/usr/lib64",
    ] {
        archive.folder(folder)?;
    }
    archive.device("/dev/console", 5, 1)?;
    for (path, target) in usr_merge::LINKS.iter().chain(recipe::LINKS) {
        archive.link(path, target)?;
    }
    for (path, target) in &tools.links {
        archive.link(path, target)?;
    }
    for applet in &tools.applets {
        archive.link(&format!("/usr/lib/applets/{applet}"), "/usr/bin/busybox")?;
    }
    for (path, text) in recipe::TEXTS {
        archive.text(path, 0o644, text)?;
    }
    archive.text("/init", 0o755, INIT)?;
    for (path, source) in &tools.files {
        add_file(&mut archive, path, source)?;
    }
    let folder = format!("/usr/lib/modules/{}", kernel.release);
    for module in modules {
        add_file(
            &mut archive,
            &format!("{folder}/{module}"),
            &kernel.folder.join(module),
        )?;
    }
    archive.finish()?;
    Ok(())
}

/// Adds one file of this machine to an archive.
///
/// # Errors
/// The file cannot be read or the archive cannot be written.
pub fn add_file<W: std::io::Write>(
    archive: &mut Archive<W>,
    path: &str,
    source: &Path,
) -> Result<()> {
    let adding = || format!("adding {}", source.display());
    let file = File::open(source).with_context(adding)?;
    let data = file.metadata().with_context(adding)?;
    archive
        .file(
            path,
            data.permissions().mode(),
            data.len(),
            BufReader::new(file),
        )
        .with_context(adding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(of: &str, version: &str) -> Versions {
        let mut all: Versions = recipe::PACKAGES
            .iter()
            .map(|name| ((*name).to_owned(), "1".to_owned()))
            .collect();
        all.insert(of.to_owned(), version.to_owned());
        all
    }

    #[test]
    fn the_key_follows_package_versions_and_the_recipes_text() {
        let first = key(&versions("ipset", "7.17-1"), &["a"], None);
        assert_eq!(first, key(&versions("ipset", "7.17-1"), &["a"], None));
        assert_ne!(first, key(&versions("ipset", "7.19-1"), &["a"], None));
        assert_ne!(first, key(&versions("ipset", "7.17-1"), &["b"], None));
        assert_ne!(
            first,
            key(&versions("ipset", "7.17-1"), &["a"], Some("trixie"))
        );
        assert_eq!(first.len(), 16);
    }

    #[test]
    fn a_package_that_is_not_in_the_guest_does_not_change_the_key() {
        let first = key(&versions("ipset", "1"), &["a"], None);
        assert_eq!(first, key(&versions("qemu-system-x86", "9"), &["a"], None));
    }

    #[test]
    fn a_changed_or_missing_source_makes_an_image_stale() {
        let folder = std::env::temp_dir().join(format!("portolan-fresh-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let source = folder.join("tool");
        fs::write(&source, "1").unwrap();
        assert!(
            !is_fresh(&folder),
            "an unfinished image has no list of sources"
        );
        let line = format!("{}\t{}\n", stamp_of(&source), source.display());
        fs::write(folder.join("sources"), line).unwrap();
        assert!(is_fresh(&folder));
        fs::write(&source, "22").unwrap();
        assert!(!is_fresh(&folder));
        fs::remove_file(&source).unwrap();
        assert!(!is_fresh(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
