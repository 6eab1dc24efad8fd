//! Kernel modules. The kernel loads most of them on demand; loading them in advance shows missing ones before
//! anything is programmed.

use std::path::Path;

use super::tool;
use crate::kernel::KernelError;

/// The modules that every node needs, regardless of its plan (S-180).
pub const MODULES: [&str; 12] = [
    "ip_vs",
    "nf_conntrack",
    "nf_conntrack_netlink",
    "ip_set",
    "ip_set_bitmap_port",
    "ip_set_hash_ipport",
    "ip_set_hash_ipportip",
    "ip_set_hash_ipportnet",
    "ip_set_hash_net",
    "xt_set",
    "xt_conntrack",
    "dummy",
];

/// The result of loading a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// It was already loaded.
    Before,
    /// It was loaded now.
    Now,
    /// The kernel contains it.
    BuiltIn,
}

/// Loads a module.
///
/// # Errors
/// That of `modprobe`, usually because this kernel does not have the module.
pub fn load(name: &str) -> Result<Loaded, KernelError> {
    if is_loaded(name) {
        return Ok(Loaded::Before);
    }
    let action = format!("load module {name}");
    // By default, the module creates a device when it is loaded.
    let parameters: &[&str] = match name {
        "dummy" => &["numdummies=0"],
        _ => &[],
    };
    let words = [&["--", name], parameters].concat();
    tool::run("modprobe", &words, None).map_err(|error| {
        let hint = "is the package with this kernel's modules installed, and may this process load them \
                    (CAP_SYS_MODULE)?";
        KernelError::new(&action, &format_args!("{error}; {hint}"))
    })?;
    // For a built-in module modprobe succeeds without an effect.
    Ok(if is_loaded(name) {
        Loaded::Now
    } else {
        Loaded::BuiltIn
    })
}

/// Whether a module is loaded. A built-in module may not be listed.
pub fn is_loaded(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}
