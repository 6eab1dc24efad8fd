//! Kernel settings: files below `/proc/sys`, of the network namespace this process is in.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use portolan_reconcile::{SysctlOp, sysctl_is_enough};

use crate::kernel::KernelError;

/// Names have dots between their parts, or slashes where a part holds dots itself.
fn path(name: &str) -> PathBuf {
    let separator = if name.contains('/') { '/' } else { '.' };
    let mut path = PathBuf::from("/proc/sys");
    path.extend(name.split(separator));
    path
}

/// The setting and its value; `None` when the kernel has no such setting, or does not show it.
pub fn read(name: &Arc<str>) -> Option<(Arc<str>, Arc<str>)> {
    let value = std::fs::read_to_string(path(name)).ok()?;
    Some((name.clone(), value.trim().into()))
}

/// Writes a setting, and reads back whether the kernel took it as it is.
///
/// # Errors
/// What the system says, and what to check.
pub fn apply(op: &SysctlOp) -> Result<(), KernelError> {
    let SysctlOp { name, value } = op;
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
            let made = format!("the kernel made {found} of it; is the value in its range?");
            Err(KernelError::new(op, &made))
        }
        _ => Ok(()),
    }
}

/// Gives a setting a value that it had before.
///
/// # Errors
/// What the system says.
pub fn restore(name: &str, value: &str) -> Result<(), KernelError> {
    // A list that was empty is written as an empty line.
    std::fs::write(path(name), format!("{value}\n")).map_err(|error| {
        let action = format!("set {name} to {value:?} again");
        KernelError::new(
            &action,
            &format_args!("{error}; is /proc/sys writable for this process?"),
        )
    })
}

/// What to do about a setting that is not there.
fn missing(name: &str) -> &'static str {
    if name.starts_with("net.bridge.") {
        "load the module br_netfilter on this node: without it, pods on one bridge get no answer \
         from each other through a Service"
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
    fn names_of_interfaces_may_hold_dots() {
        let vlan = "net/ipv4/conf/eth0.100/rp_filter";
        let file = "/proc/sys/net/ipv4/conf/eth0.100/rp_filter";
        assert_eq!(path(vlan), PathBuf::from(file));
        let file = "/proc/sys/net/ipv4/vs/conntrack";
        assert_eq!(path("net.ipv4.vs.conntrack"), PathBuf::from(file));
    }

    #[test]
    fn a_setting_that_is_not_there_names_what_to_do() {
        let told = |name: &str| {
            let (name, value) = (name.into(), "1".into());
            apply(&SysctlOp { name, value }).unwrap_err().to_string()
        };
        let bridge = told("net.bridge.no-such-setting");
        assert!(bridge.contains("br_netfilter") && bridge.contains("pods on one bridge"));
        let ipvs = told("net.ipv4.vs.no-such-setting");
        assert!(
            ipvs.ends_with("load the module ip_vs on this node"),
            "{ipvs}"
        );
    }
}
