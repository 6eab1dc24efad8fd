//! Facts about the machine that kernel settings depend on, from `/sys`, `/proc` and the record of written settings.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use portolan_reconcile::{Ipv6Off, Machine, Ports, RESERVED_PORTS};

use super::sysctl;
use crate::settings_before::SettingsBefore;

const ONLINE: &str = "/sys/devices/system/cpu/online";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// In the network namespace of the calling thread; `/proc/net` may be that of another one.
const IPV6_ADDRESSES: &str = "/proc/thread-self/net/if_inet6";
const IPV6_OFF: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const LOCAL_PORTS: &str = "net.ipv4.ip_local_port_range";

/// Reads the facts. Unreadable ones stay unknown, and settings that depend on them are not changed. The directory has
/// the record of the settings that the agent wrote.
pub fn read(directory: &Path) -> Machine {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    Machine {
        processors: processors(&text(ONLINE)),
        kernel: version(&text(RELEASE)).unwrap_or_default(),
        limits_conntrack: limits_conntrack(),
        ipv6_off: ipv6_off(
            &std::fs::read_to_string(IPV6_ADDRESSES),
            std::fs::read_to_string(IPV6_OFF).ok().as_deref(),
        ),
        local_ports: Ports::parse_pair(&setting(LOCAL_PORTS)),
        reserved_by_others: written(directory).ports_of_others(&setting(RESERVED_PORTS)),
    }
}

fn setting(name: &str) -> Arc<str> {
    let found = sysctl::read(&name.into());
    found.map_or_else(Arc::default, |(_, value)| value)
}

/// The settings that the agent wrote. Without a readable record, all ports count as those of others and stay.
fn written(directory: &Path) -> SettingsBefore {
    SettingsBefore::read(directory).unwrap_or_else(|_| SettingsBefore::none(directory))
}

/// Why there is no IPv6, by the list of addresses and the setting (S-182). If neither can be read, IPv6 is assumed.
/// An interface may have IPv6 although it is off in `conf/all`, which applies to new interfaces.
fn ipv6_off(list: &std::io::Result<String>, setting: Option<&str>) -> Option<Ipv6Off> {
    match (list, setting.map(str::trim)) {
        (Err(error), _) if error.kind() == ErrorKind::NotFound => Some(Ipv6Off::NotInKernel),
        (Ok(list), Some("1")) => {
            let mut interfaces = list
                .lines()
                .filter_map(|line| line.split_whitespace().last());
            let off = interfaces.all(|name| name == "lo");
            off.then_some(Ipv6Off::Disabled)
        }
        _ => None,
    }
}

/// The number of processors in a list like `0-3,6`.
fn processors(list: &str) -> u32 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)?.saturating_add(1))
    };
    let ranges = list.trim().split(',');
    ranges.filter_map(count).fold(0, u32::saturating_add)
}

/// The first two numbers of `6.1.0-32-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether the limit can be set. The kernel makes the file read-only in all network namespaces except the initial
/// one.
fn limits_conntrack() -> bool {
    const OWNER_WRITES: u32 = 0o200;
    std::fs::metadata(LIMIT).is_ok_and(|file| file.permissions().mode() & OWNER_WRITES != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_off_without_kernel_support_or_by_a_setting() {
        let list = |text: &str| Ok(text.to_owned());
        let failed = |kind: ErrorKind| Err(kind.into());
        let one = "fe800000000000000000000000000001 02 40 20 80     eth0\n";
        let own = "00000000000000000000000000000001 01 80 10 80       lo\n";
        for (list, setting, wanted) in [
            (list(one), Some("0\n"), None),
            (list(""), Some("0\n"), None),
            (list(""), Some("1\n"), Some(Ipv6Off::Disabled)),
            (list(own), Some("1\n"), Some(Ipv6Off::Disabled)),
            (list(&(own.to_owned() + one)), Some("1\n"), None),
            (list(one), None, None),
            (
                failed(ErrorKind::NotFound),
                None,
                Some(Ipv6Off::NotInKernel),
            ),
            (failed(ErrorKind::PermissionDenied), Some("1\n"), None),
        ] {
            assert_eq!(
                ipv6_off(&list, setting),
                wanted,
                "S-182: {list:?} {setting:?}"
            );
        }
    }

    #[test]
    fn processor_lists_and_kernel_versions_are_parsed() {
        for (list, count) in [
            ("0\n", 1),
            ("0-3\n", 4),
            ("0-3,6,8-9\n", 7),
            ("", 0),
            ("3-1", 0),
            ("0-4294967295", u32::MAX),
        ] {
            assert_eq!(processors(list), count, "{list:?}");
        }
        for (release, numbers) in [
            ("6.1.0-32-amd64\n", Some((6, 1))),
            ("5.10.223", Some((5, 10))),
            ("4.19", Some((4, 19))),
            ("six", None),
            ("", None),
        ] {
            assert_eq!(version(release), numbers, "{release:?}");
        }
    }
}
