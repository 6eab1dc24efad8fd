//! Kernel settings: files below `/proc/sys`, of the network namespace this process is in.

use std::path::PathBuf;
use std::sync::Arc;

use portolan_reconcile::Op;

use crate::kernel::KernelError;

fn path(name: &str) -> PathBuf {
    let mut path = PathBuf::from("/proc/sys");
    path.extend(name.split('.'));
    path
}

/// The setting and its value; `None` when the kernel has no such setting, or does not show it.
pub fn read(name: &Arc<str>) -> Option<(Arc<str>, Arc<str>)> {
    let value = std::fs::read_to_string(path(name)).ok()?;
    Some((name.clone(), value.trim().into()))
}

/// Writes a setting.
///
/// # Errors
/// What the system says, and what to check.
pub fn apply(op: &Op) -> Result<(), KernelError> {
    let Op::WriteSysctl { name, value } = op else {
        return Err(KernelError::new(op, "no kernel setting"));
    };
    std::fs::write(path(name), value.as_bytes()).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "the kernel has no such setting; is ip_vs loaded?",
            _ => "is /proc/sys writable for this process?",
        };
        KernelError::new(op, &format_args!("{error}; {hint}"))
    })
}
