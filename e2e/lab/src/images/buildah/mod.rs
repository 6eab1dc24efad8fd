//! Buildah, and the folder that it works in.
//!
//! Touches: the given folder. Invariant: the machine's own containers and images are never touched, its settings are
//! not read, and no registry is accessed: no name here refers to one.

mod command_lines;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use super::recipe::Recipe;
use crate::progress::say;
use crate::{cache, packages, process};
use command_lines::{commit, configure, copy, in_container, words};

/// Buildah's settings, in files of the folder.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("CONTAINERS_CONF", "containers.conf", ""),
    ("CONTAINERS_REGISTRIES_CONF", "registries.conf", ""),
    (
        "CONTAINERS_STORAGE_CONF",
        "storage.conf",
        "[storage]\ndriver = \"vfs\"\n",
    ),
];
/// Variables that may be set for other builds.
const UNSET: &[&str] = &[
    "BUILDAH_FORMAT",
    "BUILDAH_HISTORY",
    "BUILDAH_ISOLATION",
    "SOURCE_DATE_EPOCH",
    "STORAGE_DRIVER",
    "STORAGE_OPTS",
];

/// A private store, removed when this value is dropped.
pub(crate) struct Store {
    folder: PathBuf,
    is_root: bool,
}

impl Store {
    /// An empty store in the lab's cache.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(crate) fn make() -> Result<Self> {
        let folder = cache::run_folder("images")?;
        for (_, file, text) in SETTINGS {
            let path = folder.join(file);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let is_root = packages::is_root()?;
        Ok(Self { folder, is_root })
    }

    /// A path in its folder, for temporary files.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Checks that images can be built and started in it.
    ///
    /// # Errors
    /// They cannot; the message has the remedy.
    pub(super) fn probe(&self) -> Result<()> {
        const NAME: &str = "probe";
        if !is_usable(&self.folder) {
            bail!(
                "there is a colon in {}, which buildah takes for the beginning of a tag; name another \
                 folder in XDG_CACHE_HOME",
                self.folder.display()
            );
        }
        self.run(&words(&["from", "--name", NAME, "scratch"]))?;
        // The expected error: the program does not exist.
        self.run_in(NAME, &[], &words(&["/nothing"]))?;
        self.run(&words(&["rm", NAME])).map(drop)
    }

    /// Builds an archive of an image with the contents of the folder `root`. `labels`: its configuration and
    /// annotations; `reference`: its name with the tag.
    ///
    /// # Errors
    /// Buildah failed; the message has the remedy.
    pub(super) fn build(
        &self,
        recipe: &Recipe,
        root: &Path,
        labels: &[(&'static str, String)],
        archive: &Path,
        reference: &str,
    ) -> Result<()> {
        let steps = [
            words(&["from", "--name", recipe.name, "scratch"]),
            copy(recipe, root),
            configure(recipe, labels),
            commit(recipe, archive, reference),
        ];
        for step in steps {
            self.run(&step)?;
        }
        Ok(())
    }

    /// Builds an archive of an image with the contents of this folder, for tests: it is not compressed. `settings`
    /// are options of `buildah config` with their values.
    ///
    /// # Errors
    /// Buildah failed; the message has the remedy.
    pub(crate) fn build_for_tests(
        &self,
        root: &Path,
        settings: &[(&str, &str)],
        archive: &Path,
        reference: &str,
    ) -> Result<()> {
        const NAME: &str = "plain";
        let (root, archive) = (root.to_string_lossy(), archive.display());
        let archive = format!("oci-archive:{archive}:{reference}");
        let settings = settings
            .iter()
            .flat_map(|(option, value)| [*option, *value]);
        let configure: Vec<&str> = ["config"]
            .into_iter()
            .chain(settings)
            .chain([NAME])
            .collect();
        for step in [
            &["from", "--name", NAME, "scratch"][..],
            &["copy", "--quiet", NAME, &root, "/"],
            &configure,
            &[
                "commit",
                "--quiet",
                "--disable-compression=true",
                "--rm",
                NAME,
                &archive,
            ],
        ] {
            self.run(&words(step))?;
        }
        Ok(())
    }

    /// A container of the image in this archive.
    ///
    /// # Errors
    /// As [`Store::build`].
    pub(super) fn unpack(&self, archive: &Path, name: &str) -> Result<()> {
        let archive = format!("oci-archive:{}", archive.display());
        self.run(&words(&["from", "--name", name, &archive]))
            .map(drop)
    }

    /// Runs a program in such a container, as configured by the image and with only these capabilities. Returns its
    /// exit status and output.
    ///
    /// # Errors
    /// This machine cannot start programs in a container.
    pub(super) fn run_in(
        &self,
        name: &str,
        capabilities: &[String],
        command: &[String],
    ) -> Result<Output> {
        let mut command = self.command(&in_container(name, capabilities, command))?;
        let output = process::finish(&mut command)?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.stdout.is_empty() && remedy(&format!("buildah: {said}")).is_some() {
            bail!("`buildah run` cannot start programs here: {}", said.trim());
        }
        Ok(output)
    }

    fn run(&self, words: &[String]) -> Result<String> {
        process::output(&mut self.command(words)?)
    }

    fn command(&self, words: &[String]) -> Result<Command> {
        let path = |name: &str| self.folder.join(name);
        let mut command = process::program("buildah")?;
        for name in UNSET {
            command.env_remove(name);
        }
        for (name, file, _) in SETTINGS {
            command.env(name, path(file));
        }
        command.env("TMPDIR", &self.folder);
        // It stores what it learns about layers and networks there. As root it would use folders of the machine; this
        // makes it treat root as another user.
        command.env("XDG_DATA_HOME", path("data"));
        command.env("XDG_CONFIG_HOME", path("config"));
        if self.is_root {
            command.env("_CONTAINERS_ROOTLESS_UID", "1");
        }
        command
            .arg("--root")
            .arg(path("store"))
            .arg("--runroot")
            .arg(path("state"))
            .args(["--storage-driver", "vfs"])
            .args(words);
        Ok(command)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Through a remaining mount, another part of the machine would be removed.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if mounts.contains(&*self.folder.to_string_lossy()) {
            let folder = self.folder.display();
            say(&format!(
                "{folder} is kept, since something is mounted in it"
            ));
            return;
        }
        // Files of containers may belong to other users, which only buildah can access.
        for all in [["rm", "--all"], ["rmi", "--all"]] {
            drop(self.run(&words(&all)));
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// The remedy for a failure caused by the machine.
pub(super) fn remedy(said: &str) -> Option<&'static str> {
    const NO_SPACE: &[&str] = &[
        "no space left on device",
        "disk quota exceeded",
        // Buildah's message about a layer that it could not write.
        "read/write on closed pipe",
    ];
    const NO_NAMESPACE: &[&str] = &[
        "newuidmap",
        "newgidmap",
        "/etc/subuid",
        "/etc/subgid",
        "user namespace",
        "ranges set aside",
        "unshare",
        "operation not permitted",
    ];
    let said = said.to_lowercase();
    let says = |words: &&str| said.contains(words);
    if NO_SPACE.iter().any(&says) {
        Some(
            "make room (the programs of a test build take about 1 GB, as shipped 200 MB), or name a \
             folder that has it: XDG_CACHE_HOME, and --output for the archives",
        )
    } else if said.contains("buildah") && NO_NAMESPACE.iter().any(says) {
        Some(
            "buildah needs root (inside of a container, a privileged one), or user namespaces: ranges in \
             /etc/subuid and /etc/subgid (`sudo usermod --add-subuids 100000-165535 --add-subgids \
             100000-165535 $USER`), the package uidmap, and a kernel that lets users have them (`sysctl \
             user.max_user_namespaces` above 0)",
        )
    } else {
        None
    }
}

/// Whether buildah would not parse the name of this folder as an image name.
fn is_usable(folder: &Path) -> bool {
    !folder.to_string_lossy().contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_machine_have_a_remedy_and_others_have_none() {
        let space = "`buildah copy` failed (exit status: 125): write /x: no space left on device";
        assert!(remedy(space).unwrap().contains("XDG_CACHE_HOME"));
        for said in [
            "`buildah from` failed: cannot find newuidmap: exec: \"newuidmap\": not found",
            "`buildah from` failed: No subuid ranges found for user \"a\" in /etc/subuid",
            "`buildah run` failed: error during unshare(CLONE_NEWUSER): Operation not permitted",
            "buildah: Found no UID ranges set aside for user \"a\" in /etc/subuid.",
        ] {
            assert!(remedy(said).unwrap().contains("/etc/subuid"), "{said}");
        }
        assert_eq!(
            remedy("`cargo build` failed: operation not permitted"),
            None
        );
        assert_eq!(remedy("`buildah from` failed: bad name"), None);
        assert!(!is_usable(Path::new("/a:b")) && is_usable(Path::new("/a/b")));
    }
}
