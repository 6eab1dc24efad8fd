//! Kernel modules. The kernel loads most by itself when they are asked for; asked for before, what is
//! missing is known before anything is programmed.

use std::path::Path;

use super::tool;
use crate::kernel::KernelError;

/// What every node needs, whatever its plan (S-180).
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

/// What came of asking for a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// It was there.
    Before,
    /// It was loaded, or is a part of this kernel.
    Now,
}

/// Loads a module.
///
/// # Errors
/// What `modprobe` says: most often, that this kernel does not have it.
pub fn load(name: &str) -> Result<Loaded, KernelError> {
    if is_loaded(name) {
        return Ok(Loaded::Before);
    }
    let action = format!("load module {name}");
    // Loaded without it, the module makes a device of its own, which nobody asked for.
    let parameters: &[&str] = match name {
        "dummy" => &["numdummies=0"],
        _ => &[],
    };
    let words = [&["--", name], parameters].concat();
    let load = tool::run("modprobe", &words, None);
    load.map(|_| Loaded::Now).map_err(|error| {
        let hint = "is the package with this kernel's modules installed, and may this process load them \
                    (CAP_SYS_MODULE)?";
        KernelError::new(&action, &format_args!("{error}; {hint}"))
    })
}

/// Whether a module is there; one that is a part of the kernel may not show.
pub fn is_loaded(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}
