//! The disk, kernel and initial file system of a node: Debian with a container runtime and a kubelet.
//!
//! Touches: the cache folder, `debootstrap`, `dpkg`, `mkfs.ext4`. Invariant: a folder under its final name is
//! complete.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufWriter;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::iperf;
use crate::guest::archive::Archive;
use crate::guest::image::add_file;
use crate::guest::kernel::{self, Kernel};
use crate::packages::{self, Index, Versions};
use crate::progress::Step;
use crate::{cache, process};

const INIT: &str = include_str!("initrd.sh");
const NODE: &str = include_str!("node.sh");
/// Everything that determines the contents of the disk, except packages and tools.
const RECIPE: &[&str] = &[
    INIT,
    NODE,
    include_str!("system.rs"),
    include_str!("iperf.rs"),
    include_str!("../guest/kernel.rs"),
];

/// Packages for a node and for the containers of tests, besides the minimal Debian.
const PACKAGES: &[&str] = &[
    "bind9-dnsutils",
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "curl",
    "ethtool",
    "iproute2",
    "ipset",
    "iptables",
    "ipvsadm",
    "kmod",
    "netcat-openbsd",
    "nftables",
    "procps",
    "runc",
    "socat",
    "tcpdump",
    "wget",
];
/// Static programs on it, built from `e2e/tools`.
const PROGRAMS: &[&str] = &[
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "flannel",
    "kube-proxy",
    "kubelet",
];
/// Modules needed to access the disk, in the order of their dependencies.
const FIRST_MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
];
/// Capacity of the disk; the file is sparse.
const SIZE: &str = "6G";
/// Number of older systems kept.
const KEPT: usize = 3;
/// A younger system may be in use right now.
const IN_USE: Duration = Duration::from_secs(3600);

/// The files that a node boots from.
#[derive(Debug)]
pub(super) struct System {
    folder: PathBuf,
}

impl System {
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    pub(super) fn initrd(&self) -> PathBuf {
        self.folder.join("initrd")
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.folder.join("system.img")
    }

    /// The contents of the disk.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }
}

/// The system for these versions and tools: the cached one, or a new one.
///
/// # Errors
/// Not root, a package cannot be fetched, or a tool failed.
pub(super) fn prepare(versions: &Versions, assets: &Path) -> Result<System> {
    let systems = cache::folder("real-systems")?;
    let folder = systems.join(key(versions, assets)?);
    if folder.is_dir() {
        return Ok(System { folder });
    }
    let step = Step::start("System of the nodes");
    let building = systems.join(format!("building-{}", std::process::id()));
    let system = System { folder: building };
    let built = build(&system, assets, &step)
        .and_then(|summary| Ok((fs::rename(&system.folder, &folder)?, summary).1));
    if built.is_err() {
        // The first error is more useful than one of the clean-up.
        drop(fs::remove_dir_all(&system.folder));
    }
    step.done(&built?);
    cache::keep_newest(&systems, KEPT, &|path, age| path == folder || age < IN_USE)?;
    Ok(System { folder })
}

fn key(versions: &Versions, assets: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (RECIPE, versions.get("debootstrap")).hash(&mut hasher);
    for name in PROGRAMS {
        let target =
            fs::canonicalize(assets.join(name)).with_context(|| format!("looking for {name}"))?;
        target.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn build(system: &System, assets: &Path, step: &Step) -> Result<String> {
    let folder = &system.folder;
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    step.detail("fetching the kernel");
    let kernel = kernel::fetch(&Index::default(), &folder.join("kernel"))?;
    fs::copy(&kernel.image, system.kernel()).context("copying the kernel")?;
    step.detail("installing Debian");
    debootstrap(&system.root())?;
    step.detail("adding iperf");
    iperf::add(&system.root(), &folder.join("iperf"))?;
    step.detail("adding modules and programs");
    furnish(&system.root(), &kernel, assets)?;
    write_initrd(&system.initrd(), &kernel)?;
    step.detail("writing the disk");
    make_disk(&system.root(), &system.disk(), SIZE)?;
    for unpacked in ["kernel", "iperf"] {
        fs::remove_dir_all(folder.join(unpacked))
            .with_context(|| format!("removing the unpacked {unpacked}"))?;
    }
    Ok(format!(
        "Linux {}, {} packages beside the smallest Debian",
        kernel.release,
        PACKAGES.len()
    ))
}

fn debootstrap(root: &Path) -> Result<()> {
    let (mirror, release) = packages::own_release()?;
    let mut command = process::program("debootstrap")?;
    command
        .args([
            "--variant=minbase",
            &format!("--include={}", PACKAGES.join(",")),
        ])
        .arg(release)
        .arg(root)
        .arg(mirror);
    process::output(&mut command)
        .map(drop)
        .context("installing Debian for the nodes")
}

fn furnish(root: &Path, kernel: &Kernel, assets: &Path) -> Result<()> {
    let modules = root.join("usr/lib/modules");
    fs::create_dir_all(&modules)?;
    let mut copy = process::program("cp")?;
    process::output(copy.arg("-a").arg(&kernel.folder).arg(&modules))?;
    for name in PROGRAMS {
        let place = root.join("usr/local/bin").join(name);
        fs::copy(assets.join(name), &place).with_context(|| format!("copying {name}"))?;
    }
    let node = root.join("usr/local/sbin/lab-node");
    fs::write(&node, NODE).with_context(|| format!("writing {}", node.display()))?;
    fs::set_permissions(&node, fs::Permissions::from_mode(0o755))?;
    // Container runtimes look for them here; Debian has another folder.
    fs::create_dir_all(root.join("opt/cni"))?;
    symlink("/usr/lib/cni", root.join("opt/cni/bin")).context("linking the network plugins")?;
    // Downloads that nodes do not need.
    drop(fs::remove_dir_all(root.join("var/cache/apt")));
    drop(fs::remove_dir_all(root.join("var/lib/apt/lists")));
    Ok(())
}

fn write_initrd(path: &Path, kernel: &Kernel) -> Result<()> {
    let writing = || format!("writing {}", path.display());
    let mut archive = Archive::new(BufWriter::new(File::create(path).with_context(writing)?));
    for folder in ["/dev", "/proc", "/root", "/bin"] {
        archive.folder(folder)?;
    }
    archive.device("/dev/console", 5, 1)?;
    add_file(&mut archive, "/bin/busybox", Path::new("/bin/busybox"))?;
    archive.link("/bin/sh", "busybox")?;
    archive.text("/init", 0o755, INIT)?;
    let mut order = String::new();
    for name in FIRST_MODULES {
        // Some may be built into the kernel.
        if let Some(module) = kernel.module(name)? {
            add_file(
                &mut archive,
                &format!("/modules/{name}.ko"),
                &kernel.folder.join(module),
            )?;
            order += &format!("{name}\n");
        }
    }
    archive.text("/modules/order", 0o644, &order)?;
    archive.finish().with_context(writing)?;
    Ok(())
}

/// A file system with the contents of a folder, in a sparse file.
///
/// # Errors
/// There is no space, or `mkfs.ext4` failed.
pub(super) fn make_disk(folder: &Path, disk: &Path, size: &str) -> Result<()> {
    let mut command = process::program("mkfs.ext4")?;
    command
        .args(["-q", "-F", "-O", "^has_journal", "-d"])
        .arg(folder)
        .arg(disk)
        .arg(size);
    process::output(&mut command)
        .map(drop)
        .with_context(|| format!("writing {}", disk.display()))
}
