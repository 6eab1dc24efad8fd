//! Kernel settings: files below `/proc/sys`, in the network namespace of this process.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_reconcile::{Ports, RESERVED_PORTS, SysctlOp, sysctl_is_enough};
use tracing::warn;

use crate::kernel::KernelError;
use crate::settings_before::SettingsBefore;

/// Sizes of buffers in bytes: for almost every value, and for the longest, a list of every second port.
const BUFFERS: [usize; 2] = [4 << 10, 256 << 10];

/// The file of a setting. Its parts are separated by dots, or by slashes if a part contains dots.
fn path(name: &str) -> PathBuf {
    let separator = if name.contains('/') { '/' } else { '.' };
    let mut path = PathBuf::from("/proc/sys");
    path.extend(name.split(separator));
    path
}

/// The setting and its value; `None` if the kernel has no such setting, or it is not readable.
pub fn read(name: &Arc<str>) -> Option<(Arc<str>, Arc<str>)> {
    let value = first_read(&path(name)).ok()?;
    Some((name.clone(), value.trim().into()))
}

/// The kernel answers only the first read of some settings, with as much of the value as fits into its buffer.
fn first_read(path: &Path) -> io::Result<String> {
    let mut value = Vec::new();
    for size in BUFFERS {
        value.resize(size, 0);
        let length = File::open(path)?.read(&mut value)?;
        value.truncate(length);
        if length < size {
            break;
        }
    }
    String::from_utf8(value).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// A value as messages print it.
pub fn printed_value(value: &str) -> &str {
    match value {
        "" => "empty",
        value => value,
    }
}

/// Writes a setting, and reads it back to check that the kernel accepted the value. The record in the directory has the
/// previous value; a failure there does not prevent writing the setting.
///
/// # Errors
/// That of the system, with what to check.
pub fn apply(op: &SysctlOp, directory: &Path) -> Result<(), KernelError> {
    let SysctlOp { name, value } = op;
    let before = read(name).map(|(_, before)| before);
    let value = &with_ports_of_others(name, value, before.as_deref(), directory);
    let note = |written: &str| {
        let before = before.iter();
        let noted = before.map(|before| note(directory, name, before, written));
        for error in noted.filter_map(Result::err) {
            warn!(
                %name,
                %error,
                "cannot save the previous value of a kernel setting, so `cleanup` cannot restore it; is the state \
                 directory writable?"
            );
        }
    };
    // Before it is written: reserved ports that are not recorded would count as those of others.
    note(value);
    let written = std::fs::write(path(name), value.as_bytes());
    written.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => missing(name),
            ErrorKind::ReadOnlyFilesystem => {
                "/proc/sys is read-only for this process: mount it writable for the agent, or have the \
                 node set it (sysctl -w, or a file in /etc/sysctl.d)"
            }
            _ => "is /proc/sys writable for this process?",
        };
        KernelError::new(op, &format_args!("{error}; {hint}"))
    })?;
    match read(name) {
        Some((_, found)) if !sysctl_is_enough(name, &found, value) => {
            let found = printed_value(&found);
            let reason = format!("the kernel set it to {found}; is the value in the valid range?");
            Err(KernelError::new(op, &reason))
        }
        // The kernel formats some values differently.
        Some((_, found)) if found != *value => {
            note(&found);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Reserved ports with those that others added since the agent read the setting.
fn with_ports_of_others(
    name: &str,
    value: &Arc<str>,
    found: Option<&str>,
    directory: &Path,
) -> Arc<str> {
    match (name, found, SettingsBefore::read(directory)) {
        (RESERVED_PORTS, Some(found), Ok(settings)) => {
            let others = settings.ports_of_others(found);
            Ports::parse(value).and(&others).to_string().into()
        }
        _ => value.clone(),
    }
}

fn note(directory: &Path, name: &str, before: &str, written: &str) -> io::Result<()> {
    let mut settings = SettingsBefore::read(directory)?;
    settings.note(name, before, written);
    settings.write()
}

/// Restores the previous value of a setting.
///
/// # Errors
/// That of the system.
pub fn restore(name: &str, value: &str) -> Result<(), KernelError> {
    // An empty list has to be written as an empty line.
    std::fs::write(path(name), format!("{value}\n")).map_err(|error| {
        let action = format!("restore {name} to {value:?}");
        KernelError::new(
            &action,
            &format_args!("{error}; is /proc/sys writable for this process?"),
        )
    })
}

/// The remedy for a setting that does not exist.
fn missing(name: &str) -> &'static str {
    if name.starts_with("net.bridge.") {
        "load the module br_netfilter on this node: without it, pods on the same bridge cannot reach \
         each other through a Service"
    } else if name.starts_with("net.ipv4.vs.") {
        "load the module ip_vs on this node"
    } else {
        "this kernel has no such setting"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_may_contain_dots() {
        let vlan = "net/ipv4/conf/eth0.100/rp_filter";
        let file = "/proc/sys/net/ipv4/conf/eth0.100/rp_filter";
        assert_eq!(path(vlan), PathBuf::from(file));
        let file = "/proc/sys/net/ipv4/vs/conntrack";
        assert_eq!(path("net.ipv4.vs.conntrack"), PathBuf::from(file));
    }

    #[test]
    fn an_empty_value_is_printed_as_a_word() {
        assert_eq!([printed_value(""), printed_value("0")], ["empty", "0"]);
    }

    #[test]
    fn the_error_for_a_missing_setting_has_a_remedy() {
        let message = |name: &str| {
            let (name, value) = (name.into(), "1".into());
            apply(&SysctlOp { name, value }, Path::new("/nonexistent"))
                .unwrap_err()
                .to_string()
        };
        let bridge = message("net.bridge.no-such-setting");
        assert!(bridge.contains("br_netfilter") && bridge.contains("pods on the same bridge"));
        let ipvs = message("net.ipv4.vs.no-such-setting");
        assert!(
            ipvs.ends_with("load the module ip_vs on this node"),
            "{ipvs}"
        );
    }
}
