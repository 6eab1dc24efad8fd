//! The disk with a container runtime's unpacked images, since unpacking on a node would take minutes.
//!
//! Touches: the cache folder, and a private containerd during the import.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::earlier::Earlier;
use super::images;
use super::system::{System, make_disk};
use crate::images::{Order, VERSION};
use crate::nested::{Profile, Programs};
use crate::progress::Step;
use crate::{cache, nested, process};

/// Repository of Portolan's images; no such registry exists.
pub(super) const REPOSITORY: &str = "lab.example/portolan";
/// Its images and programs.
pub(super) const PORTOLAN: [&str; 2] = ["portolan-controller", "portolan-agent"];
/// A second tag of the same images, for tests that change the image.
const OTHER_TAG: &str = "another";
/// Capacity of the disk; the file is sparse.
const SIZE: &str = "6G";
/// Number of older disks kept.
const KEPT: usize = 3;
const IN_USE: Duration = Duration::from_secs(3600);
/// Timeout until it answers; measured: 1 s.
const START: Duration = Duration::from_secs(60);
const RECIPE: &[&str] = &[include_str!("store.rs"), include_str!("images.rs")];

/// The disk for this system, these programs and an earlier revision: the cached one, or a new one.
///
/// # Errors
/// Not root, a build failed, or an image cannot be imported.
pub(super) fn prepare(
    system: &System,
    assets: &Path,
    programs: &Programs,
    earlier: Option<&Earlier>,
) -> Result<PathBuf> {
    let stores = cache::folder("real-stores")?;
    let key = key(system, assets, programs, earlier)?;
    let disk = stores.join(format!("{key}.img"));
    if disk.is_file() {
        return Ok(disk);
    }
    let step = Step::start("Images of the nodes");
    let folder = cache::run_folder("real")?;
    let built = build(system, assets, earlier, &folder, &step).and_then(|count| {
        step.detail("writing the disk");
        let draft = folder.join("store.img");
        make_disk(&folder.join("containerd"), &draft, SIZE)?;
        fs::rename(&draft, &disk).with_context(|| format!("renaming to {}", disk.display()))?;
        Ok(count)
    });
    drop(fs::remove_dir_all(&folder));
    let count = built?;
    step.done(&format!("{count} images, unpacked"));
    sweep(&stores, &disk)?;
    Ok(disk)
}

fn key(
    system: &System,
    assets: &Path,
    programs: &Programs,
    earlier: Option<&Earlier>,
) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (RECIPE, system.disk()).hash(&mut hasher);
    earlier.map(|earlier| &earlier.revision).hash(&mut hasher);
    for name in images::PROGRAMS
        .into_iter()
        .chain(["e2e.test", "containerd"])
    {
        fs::canonicalize(assets.join(name))?.hash(&mut hasher);
    }
    for name in PORTOLAN {
        let path = &programs.named(name)?.path;
        let mut content = Vec::new();
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut content))
            .with_context(|| format!("reading {}", path.display()))?;
        content.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn build(
    system: &System,
    assets: &Path,
    earlier: Option<&Earlier>,
    folder: &Path,
    step: &Step,
) -> Result<usize> {
    step.detail("making those of tests");
    let images = images::make(system, assets, folder)?;
    let mut archives = images.archives;
    step.detail("making those of Portolan");
    let order = Order {
        tag: VERSION.to_owned(),
        repository: Some(REPOSITORY.to_owned()),
        output: Some(folder.to_owned()),
        profile: Profile::Dev,
    };
    let mut said = Vec::new();
    if !crate::images::run(&order, &mut said)? {
        bail!("{}", String::from_utf8_lossy(&said));
    }
    for name in PORTOLAN {
        archives.push(folder.join(format!("{name}.tar")));
    }
    archives.extend(earlier.into_iter().flat_map(Earlier::archives));
    step.detail("unpacking");
    let runtime = Runtime::start(assets, folder)?;
    for archive in &archives {
        runtime.import(archive)?;
    }
    for (image, other) in &images.tags {
        runtime.ctr(&["images", "tag", image, other])?;
    }
    for name in PORTOLAN {
        let image = |tag: &str| format!("{REPOSITORY}/{name}:{tag}");
        runtime.ctr(&["images", "tag", &image(VERSION), &image(OTHER_TAG)])?;
    }
    runtime.end()?;
    Ok(archives.len())
}

/// A containerd that only stores images.
struct Runtime<'a> {
    child: Child,
    assets: &'a Path,
    folder: &'a Path,
}

impl<'a> Runtime<'a> {
    fn start(assets: &'a Path, folder: &'a Path) -> Result<Self> {
        let config = folder.join("containerd.toml");
        let place = |name: &str| folder.join(name).display().to_string();
        let text = format!(
            "version = 3\nroot = '{}'\nstate = '{}'\ndisabled_plugins = ['io.containerd.grpc.v1.cri', \
             'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.nri.v1.nri']\n\
             [grpc]\naddress = '{}'\n[ttrpc]\naddress = '{}'\n",
            place("containerd"),
            place("state"),
            place("socket"),
            place("socket.ttrpc"),
        );
        fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
        let log =
            File::create(folder.join("containerd.log")).context("creating containerd's log")?;
        let child = process::built(&assets.join("containerd"))?
            .arg("--config")
            .arg(&config)
            .current_dir(nested::root())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting containerd")?;
        let mut runtime = Self {
            child,
            assets,
            folder,
        };
        runtime.wait_until_it_answers()?;
        Ok(runtime)
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            let asked = self.ctr(&["version"]);
            if asked.is_ok() {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || started.elapsed() > START {
                let log = fs::read(self.folder.join("containerd.log")).unwrap_or_default();
                bail!(
                    "containerd does not answer:\n{}",
                    process::last_lines(&log, 12)
                );
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn import(&self, archive: &Path) -> Result<()> {
        self.ctr(&["images", "import", &archive.display().to_string()])
            .map(drop)
            .with_context(|| format!("importing {}", archive.display()))
    }

    fn ctr(&self, words: &[&str]) -> Result<String> {
        let mut command = process::built(&self.assets.join("ctr"))?;
        command
            .arg("--address")
            .arg(self.folder.join("socket"))
            .args(["--namespace", "k8s.io"])
            .args(words);
        process::output(&mut command)
    }

    /// Stops it gracefully, so that all its data is on the disk.
    fn end(mut self) -> Result<()> {
        let mut kill = process::program("kill")?;
        process::output(kill.args(["-TERM", &self.child.id().to_string()]))?;
        self.child
            .wait()
            .map(drop)
            .context("waiting for containerd to end")
    }
}

impl Drop for Runtime<'_> {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn sweep(stores: &Path, own: &Path) -> Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(stores)? {
        let entry = entry?;
        if let Ok(time) = entry.metadata().and_then(|data| data.modified()) {
            found.push((time, entry.path()));
        }
    }
    found.sort();
    let spare = found.len().saturating_sub(KEPT);
    for (time, path) in found.into_iter().take(spare) {
        if path != own && time.elapsed().unwrap_or_default() > IN_USE {
            drop(fs::remove_file(path));
        }
    }
    Ok(())
}
