//! Debian packages of the programs that the lab and the scenarios use: their installation, their versions, and
//! package lists of other releases.
//!
//! Touches: the packages of this machine and their lists; the given folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::programs::{FILES, PROGRAMS};
use crate::progress::Step;

/// Installed packages of the tables, with their versions.
pub type Versions = BTreeMap<String, String>;

/// Ensures that every package of the tables is installed, and returns their versions.
///
/// One `dpkg-query` if nothing is missing. Missing packages are installed if the lab runs as root.
///
/// # Errors
/// Not a Debian machine, not root while packages are missing, or `apt-get` failed.
pub fn ensure() -> Result<Versions> {
    let wanted = wanted();
    let versions = installed(&wanted)?;
    let mut missing = wanted.clone();
    missing.retain(|name| !versions.contains_key(*name));
    if missing.is_empty() {
        return Ok(versions);
    }
    if !is_root()? {
        bail!(
            "Debian packages are missing: {list}\nInstall them and try again: \
             sudo apt-get update && sudo apt-get install -y --no-install-recommends {list}",
            list = missing.join(" ")
        );
    }
    install(&missing)?;
    let versions = installed(&wanted)?;
    match wanted.iter().find(|name| !versions.contains_key(**name)) {
        None => Ok(versions),
        Some(name) => bail!(
            "apt-get succeeded but package `{name}` is still not installed; \
             look at `dpkg-query -W {name}` and `apt-cache policy {name}`"
        ),
    }
}

/// Package lists: the system's own, or those of another release.
#[derive(Debug, Default)]
pub struct Index {
    options: Vec<String>,
}

impl Index {
    /// Lists of another Debian release from the system's own mirror, kept in `folder`. The system's sources are not
    /// changed.
    ///
    /// # Errors
    /// The system has no Debian mirror, or the folder cannot be written.
    pub fn of_release(release: &str, folder: &Path) -> Result<Self> {
        for below in ["lists/partial", "cache/archives/partial"] {
            let folder = folder.join(below);
            fs::create_dir_all(&folder)
                .with_context(|| format!("creating {}", folder.display()))?;
        }
        let source = format!(
            "deb [signed-by={KEYRING}] {} {release} main\n",
            own_release()?.0
        );
        let list = folder.join("sources.list");
        fs::write(&list, source).with_context(|| format!("writing {}", list.display()))?;
        let path = |name: &str| folder.join(name).display().to_string();
        let settings = [
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", "-".to_owned()),
            ("Dir::State::lists", path("lists")),
            ("Dir::Cache", path("cache")),
            ("APT::Sandbox::User", "root".to_owned()),
        ];
        let options = settings.map(|(name, value)| format!("-o{name}={value}"));
        Ok(Self {
            options: options.into(),
        })
    }

    fn program(&self, name: &str) -> Result<Command> {
        let mut program = process::program(name)?;
        program.args(&self.options);
        Ok(program)
    }

    /// Refreshes the lists.
    ///
    /// # Errors
    /// `apt-get update` failed, or is not allowed to this user.
    pub fn refresh(&self) -> Result<()> {
        let mut update = self.program("apt-get")?;
        update.args(["update", "-qq", "-o", LOCK_WAIT]);
        process::output(&mut update)
            .map(drop)
            .context("refreshing the package lists; run `sudo apt-get update` by hand to see why")
    }

    /// The lists' information about the newest version of a package.
    ///
    /// # Errors
    /// They do not contain it.
    pub fn show(&self, package: &str) -> Result<String> {
        let mut show = self.program("apt-cache")?;
        process::output(show.args(["show", "--no-all-versions", package]))
            .with_context(|| format!("looking up {package}; try `sudo apt-get update`"))
    }

    /// Downloads a package into `folder` and unpacks it there without installing it. Returns the folder of its files,
    /// shared with packages unpacked there before.
    ///
    /// # Errors
    /// The package lists do not contain it, it cannot be downloaded, or `folder` cannot be written.
    pub fn unpack(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        let fetched = folder.join("fetched").join(package);
        fs::create_dir_all(&fetched).with_context(|| format!("creating {}", fetched.display()))?;
        // apt's own user cannot write here; as root, apt would print a warning about that.
        let mut download = self.program("apt-get")?;
        download
            .current_dir(&fetched)
            .args(["-qq", "-o", "APT::Sandbox::User=root", "download"]);
        process::output(download.arg(package))
            .with_context(|| format!("fetching {package}; try `sudo apt-get update`"))?;
        let file = fs::read_dir(&fetched)
            .with_context(|| format!("reading {}", fetched.display()))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == "deb"))
            .with_context(|| format!("apt-get left no package in {}", fetched.display()))?;
        let unpacked = folder.join("unpacked");
        let mut unpack = process::program("dpkg")?;
        process::output(unpack.arg("-x").arg(&file).arg(&unpacked))?;
        Ok(unpacked)
    }
}

/// Debian's keys, including those of later releases.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The system's Debian mirror, and the name of its release.
///
/// # Errors
/// It names no source of a Debian release.
pub fn own_release() -> Result<(String, String)> {
    let mut targets = process::program("apt-get")?;
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(CODENAME) $(COMPONENT)",
        "Identifier: Packages",
    ]);
    let text = process::output(&mut targets)?;
    own_mirror(&text).context(
        "`apt-get indextargets` names no Debian release with the component main; look at /etc/apt/sources.list",
    )
}

/// The first source of the release itself, not of its updates; and the release.
fn own_mirror(targets: &str) -> Option<(String, String)> {
    targets.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (source, release, component) = (words.next()?, words.next()?, words.next()?);
        let is_release = component == "main" && !release.contains('-') && source.contains("debian");
        is_release.then(|| (source.to_owned(), release.to_owned()))
    })
}

/// Whether this process may install packages.
///
/// # Errors
/// `id` cannot be started.
pub fn is_root() -> Result<bool> {
    Ok(process::output(process::program("id")?.arg("-u"))?.trim() == "0")
}

/// How long to wait for another apt on the machine instead of failing at once, seconds.
const LOCK_WAIT: &str = "DPkg::Lock::Timeout=300";

fn wanted() -> Vec<&'static str> {
    let all = PROGRAMS.iter().chain(FILES);
    let names: BTreeSet<&str> = all.map(|program| program.package).collect();
    names.into_iter().collect()
}

/// The installed ones of these packages, with their versions.
///
/// # Errors
/// This is not a Debian machine.
pub fn installed(names: &[&str]) -> Result<Versions> {
    let mut query = process::program("dpkg-query")?;
    query
        .args(["-W", "-f", r"${Package}\t${Version}\t${db:Status-Status}\n"])
        .args(names);
    // It exits with 1 if a name is unknown, but still prints the known ones.
    let output = query.output().context(
        "starting `dpkg-query`: the lab prepares Debian machines; on another system run it \
         in a Debian 12 container or machine",
    )?;
    Ok(parse_installed(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_installed(text: &str) -> Versions {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let (name, version, status) = (fields.next()?, fields.next()?, fields.next()?);
            (status == "installed").then(|| (name.to_owned(), version.to_owned()))
        })
        .collect()
}

fn install(missing: &[&str]) -> Result<()> {
    let step = Step::start("Debian packages");
    step.detail("refreshing the package lists");
    Index::default().refresh()?;
    step.detail(&format!("installing {}", missing.join(" ")));
    let mut install = process::program("apt-get")?;
    install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(["-o", LOCK_WAIT])
        .args(missing);
    process::output(&mut install)
        .with_context(|| format!("installing Debian packages: {}", missing.join(" ")))?;
    step.done(&format!("installed {}", missing.join(" ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::UNPACKED;

    #[test]
    fn only_packages_that_are_really_installed_count() {
        let text = "cpio\t\tnot-installed\ndash\t0.5.12-2\tinstalled\nold\t1\tconfig-files\n";
        let versions = parse_installed(text);
        assert_eq!(
            versions.into_iter().collect::<Vec<_>>(),
            [("dash".into(), "0.5.12-2".into())]
        );
    }

    #[test]
    fn a_package_that_would_start_a_service_is_never_installed() {
        for program in UNPACKED {
            assert!(!wanted().contains(&program.package), "{}", program.package);
            assert!(process::program(program.name).is_err(), "{}", program.name);
        }
    }

    #[test]
    fn the_mirror_is_that_of_the_release() {
        let targets = "https://tools.example/apt stable main\n\
                       http://deb.example/debian-security bookworm-security main\n\
                       http://deb.example/debian bookworm contrib\nhttp://deb.example/debian bookworm main\n";
        let found = own_mirror(targets);
        let (mirror, release) = found.unwrap();
        assert_eq!(
            (&*mirror, &*release),
            ("http://deb.example/debian", "bookworm")
        );
        assert_eq!(own_mirror(""), None);
    }
}
