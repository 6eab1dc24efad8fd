//! The guest's kernel, taken out of a Debian package without installing it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::recipe;
use crate::packages::Index;
use crate::{packages, process};

/// An unpacked kernel package.
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// Folder of its modules.
    pub folder: PathBuf,
    /// The bootable image.
    pub image: PathBuf,
}

/// Downloads the newest kernel from these package lists and unpacks it into `folder`.
///
/// # Errors
/// The package lists do not contain it, it cannot be downloaded, or it contains no kernel.
pub fn fetch(index: &Index, folder: &Path) -> Result<Kernel> {
    // A fresh machine has no lists, and old lists name deleted packages.
    if packages::is_root()? {
        index.refresh()?;
    }
    let package = depends(&index.show(recipe::KERNEL_PACKAGE)?, &["linux-image-"]);
    let package = package.into_iter().next().with_context(|| {
        format!(
            "`apt-cache show {}` names no linux-image package",
            recipe::KERNEL_PACKAGE
        )
    })?;
    let mut unpacked = index.unpack(&package, folder)?;
    // Debian 13 backports split the kernel and its modules into several packages.
    for part in depends(&index.show(&package)?, &["linux-modules-", "linux-binary-"]) {
        unpacked = index.unpack(&part, folder)?;
    }
    of_unpacked(&unpacked)
}

/// Finds a kernel among unpacked files, in the layout of any Debian release.
fn of_unpacked(unpacked: &Path) -> Result<Kernel> {
    let merged = unpacked.join("usr/lib/modules");
    if merged.exists() {
        // depmod looks only there.
        symlink("usr/lib", unpacked.join("lib")).context("linking lib to usr/lib")?;
    }
    let folder = only_entry(&unpacked.join("lib/modules"))?;
    let release = folder.file_name().unwrap_or_default();
    let release = release.to_string_lossy().into_owned();
    for table in ["modules.builtin", "modules.order"] {
        let table = folder.join(table);
        if !table.exists() {
            fs::write(&table, "").with_context(|| format!("writing {}", table.display()))?;
        }
    }
    let mut depmod = process::program("depmod")?;
    process::output(depmod.arg("-b").arg(unpacked).arg(&release))?;
    let places = [
        unpacked.join(format!("boot/vmlinuz-{release}")),
        folder.join("vmlinuz"),
    ];
    let image = places.into_iter().find(|place| place.exists());
    let image = image.with_context(|| format!("no vmlinuz of {release} in its packages"))?;
    Ok(Kernel {
        release,
        folder,
        image,
    })
}

impl Kernel {
    /// The path of a module, relative to its folder; `None` if it is built into the kernel.
    ///
    /// # Errors
    /// The table of modules cannot be read.
    pub fn module(&self, name: &str) -> Result<Option<String>> {
        let table = self.folder.join("modules.dep");
        let text = fs::read_to_string(&table)
            .with_context(|| format!("reading {}, which depmod writes", table.display()))?;
        let files = text
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0));
        let is_it = |file: &&str| {
            let file_name = file.rsplit('/').next().unwrap_or_default();
            file_name.split('.').next() == Some(name)
        };
        Ok(files.into_iter().find(is_it).map(str::to_owned))
    }

    /// The modules in `wanted` with their dependencies and the tables of `depmod`; relative to the modules' folder.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn modules(&self) -> Result<Vec<String>> {
        let table = self.folder.join("modules.dep");
        let text = fs::read_to_string(&table)
            .with_context(|| format!("reading {}, which depmod writes", table.display()))?;
        let mut files = with_dependencies(&text, recipe::wants_module);
        if !files.iter().any(|file| file.contains("/ip_vs.ko")) {
            bail!(
                "kernel {} has no module ip_vs; look at {}",
                self.release,
                table.display()
            );
        }
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with("modules.") {
                files.insert(name);
            }
        }
        Ok(files.into_iter().collect())
    }
}

/// The dependencies of a package with this prefix.
fn depends(text: &str, prefixes: &[&str]) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("Depends:"));
    let names = line.into_iter().flat_map(|line| line.split(','));
    let names = names.filter_map(|one| one.split_whitespace().next());
    let is_wanted = |name: &&str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    names.filter(is_wanted).map(str::to_owned).collect()
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let reading = || format!("reading {}", folder.display());
    let mut entries = fs::read_dir(folder).with_context(reading)?;
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry.with_context(reading)?.path()),
        (None, _) => bail!(
            "{} is empty; the kernel package has changed",
            folder.display()
        ),
        (Some(_), Some(_)) => bail!("{} holds more than one entry", folder.display()),
    }
}

/// The modules accepted by `wants`, with their dependencies. `table` is a `modules.dep`.
fn with_dependencies(table: &str, wants: impl Fn(&str) -> bool) -> BTreeSet<String> {
    // Each line lists the transitive closure, so one step is enough.
    let lines: BTreeMap<&str, &str> = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let mut files = BTreeSet::new();
    for (module, needs) in lines {
        if wants(module) {
            files.insert(module.to_owned());
            files.extend(needs.split_whitespace().map(str::to_owned));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_kernel_package_is_read_from_the_newest_ones_dependencies() {
        let text = "Package: linux-image-cloud-amd64\nVersion: 6.1.192-2\n\
            Depends: linux-base (>= 4), linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\n";
        let images = depends(text, &["linux-image-"]);
        assert_eq!(images, ["linux-image-6.1.0-56-cloud-amd64"]);
        assert_eq!(depends("Package: x\n", &["linux-image-"]), [""; 0]);
    }

    #[test]
    fn a_wanted_module_brings_what_it_depends_on_from_anywhere() {
        let table = "kernel/net/ip_vs.ko: kernel/lib/libcrc32c.ko kernel/fs/a.ko\n\
            kernel/lib/libcrc32c.ko:\nkernel/fs/a.ko:\nkernel/fs/b.ko: kernel/lib/libcrc32c.ko\n";
        let files = with_dependencies(table, |path| path.starts_with("kernel/net/"));
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        assert_eq!(
            files,
            [
                "kernel/fs/a.ko",
                "kernel/lib/libcrc32c.ko",
                "kernel/net/ip_vs.ko"
            ]
        );
    }
}
