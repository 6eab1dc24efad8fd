//! A private view of files in `/proc` for a program under test.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;

/// The calling thread, and what it starts, has mounts of its own from now on.
///
/// # Errors
/// Without the privilege.
pub fn keep_to_ourselves() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace (needs root)")?;
    mount(NONE, "/", NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE)
        .context("keep mounts to ourselves")
}

/// Kernel settings cannot be written by the calling thread and what it starts.
///
/// # Errors
/// Without the privilege, or if they are still writable.
pub fn make_settings_read_only() -> Result<()> {
    let settings = Some("/proc/sys");
    keep_to_ourselves()?;
    mount(settings, "/proc/sys", NONE, MsFlags::MS_BIND, NONE).context("mount /proc/sys")?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(settings, "/proc/sys", NONE, flags, NONE).context("mount /proc/sys read-only")?;
    match File::options()
        .write(true)
        .open("/proc/sys/net/ipv4/ip_forward")
    {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => Ok(()),
        other => bail!("/proc/sys is not read-only: {other:?}"),
    }
}

/// This folder is mounted read-only for the calling thread and what it starts.
///
/// # Errors
/// Without the privilege, or if it is still writable.
pub fn make_read_only(folder: &Path) -> Result<()> {
    keep_to_ourselves()?;
    mount(Some(folder), folder, NONE, MsFlags::MS_BIND, NONE).context("mount the folder")?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(Some(folder), folder, NONE, flags, NONE).context("mount the folder read-only")?;
    match File::create(folder.join("written")) {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => Ok(()),
        other => bail!("{} is not read-only: {other:?}", folder.display()),
    }
}

/// For the calling thread and what it starts, this file is the kernel's name for the time since it was
/// started.
///
/// # Errors
/// Without the privilege.
pub fn rename_boot(name: &Path) -> Result<()> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    keep_to_ourselves()?;
    mount(Some(name), BOOT, NONE, MsFlags::MS_BIND, NONE).context("mount another boot_id")?;
    let (seen, wanted) = (std::fs::read(BOOT)?, std::fs::read(name)?);
    ensure!(seen == wanted, "boot_id is not another one");
    Ok(())
}
