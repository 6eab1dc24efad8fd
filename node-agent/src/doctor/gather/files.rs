//! Facts from `/proc`, `/sys` and the state directory.

use std::path::Path;
use std::str::FromStr;

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::io::Errno;

use crate::doctor::facts::{Disk, Fact, Tracked};

const STATUS: &str = "/proc/self/status";
const CONNTRACK_COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const CONNTRACK_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const TABLE_BITS: &str = "/sys/module/ip_vs/parameters/conn_tab_bits";

/// The bit number of `CAP_NET_ADMIN`.
const NET_ADMIN: u32 = 12;

pub(super) fn text(path: impl AsRef<Path>) -> Fact<String> {
    let path = path.as_ref();
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn may_administer_network() -> Fact<bool> {
    let status = text(STATUS)?;
    let held = capabilities(&status).ok_or_else(|| format!("{STATUS} has no line CapEff"))?;
    Ok(held >> NET_ADMIN & 1 == 1)
}

/// The effective capabilities in a file like `/proc/self/status`.
fn capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(line?.trim(), 16).ok()
}

pub(super) fn tracked() -> Fact<Tracked> {
    Ok(Tracked {
        count: number(CONNTRACK_COUNT)?,
        most: number(CONNTRACK_MAX)?,
    })
}

pub(in crate::doctor) fn connection_table_bits() -> Fact<u32> {
    number(TABLE_BITS)
}

fn number<T: FromStr>(path: &str) -> Fact<T> {
    let text = text(path)?;
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("{path}: {text:?} is not a number"))
}

/// The disk of a directory; `None` if the directory does not exist.
pub(super) fn disk(directory: &Path) -> Fact<Option<Disk>> {
    let held = match statvfs(directory) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", directory.display())),
    };
    // For root, access(2) also succeeds on a read-only mount.
    let read_only = held.f_flag.contains(StatVfsMountFlags::RDONLY);
    let may = access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    Ok(Some(Disk {
        writable: may && !read_only,
        size: held.f_frsize.saturating_mul(held.f_blocks),
        free: held.f_frsize.saturating_mul(held.f_bavail),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ROOT: &str = "Name:\tcat\nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\n\
                           CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";

    #[test]
    fn effective_capabilities_are_parsed() {
        assert_eq!(capabilities(OF_ROOT), Some(0x1ff_ffff_ffff));
        let of_agent = OF_ROOT.replace("CapEff:\t000001ffffffffff", "CapEff:\t0000000000003000");
        assert_eq!(capabilities(&of_agent), Some(0x3000));
        assert_eq!(capabilities("Name:\tcat\n"), None);
        assert_eq!(capabilities("CapEff:\tall\n"), None);
    }

    #[test]
    fn a_directory_has_a_disk_or_does_not_exist() {
        let here = tempfile::tempdir().unwrap();
        let found = disk(here.path()).unwrap().unwrap();
        assert!(found.writable && found.size >= found.free, "{found:?}");
        assert_eq!(disk(&here.path().join("none-such")), Ok(None));
        assert!(disk(Path::new("/dev/null/x")).is_err());
        let proc = disk(Path::new("/proc/self/task")).unwrap().unwrap();
        assert_eq!(proc.size, 0);
    }

    #[test]
    fn an_invalid_number_is_reported_with_its_file() {
        let error = number::<u32>(STATUS).unwrap_err();
        assert!(error.starts_with("/proc/self/status: "), "{error}");
        let error = number::<u32>("/proc/none-such").unwrap_err();
        assert!(error.starts_with("/proc/none-such: "), "{error}");
    }
}
