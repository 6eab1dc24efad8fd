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

/// The directory of loaded modules.
const LOADED: &str = "/sys/module";

/// Whether a module is loaded. A built-in module may not be listed.
pub fn is_loaded(name: &str) -> bool {
    Path::new(LOADED).join(name).exists()
}

/// Whether the kernel contains a module, which `/sys/module` need not list; `None` if the list of its modules cannot be
/// read.
pub fn is_built_in(name: &str) -> Option<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let lists = Path::new("/lib/modules").join(release.trim());
    let list = std::fs::read_to_string(lists.join("modules.builtin")).ok()?;
    Some(lists_module(&list, name))
}

/// Whether a list of modules, with a path in each line, has one of this name.
fn lists_module(list: &str, name: &str) -> bool {
    let files = list.lines().filter_map(|line| line.rsplit('/').next());
    let mut names = files.filter_map(|file| file.split_once(".ko"));
    names.any(|(found, _)| found.replace('-', "_") == name)
}

/// Modules of IPVS that are not schedulers, without their prefix.
const OTHERS: [&str; 2] = ["ftp", "pe_sip"];

/// The schedulers of IPVS whose modules are loaded, in order. Built-in ones may be missing.
pub fn loaded_schedulers() -> Vec<String> {
    schedulers_in(Path::new(LOADED))
}

fn schedulers_in(modules: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(modules).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let schedulers = names.filter_map(|name| Some(name.strip_prefix("ip_vs_")?.to_owned()));
    let mut schedulers: Vec<_> = schedulers
        .filter(|name| !OTHERS.contains(&name.as_str()))
        .collect();
    schedulers.sort_unstable();
    schedulers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_in_module_is_found_by_its_name() {
        let list = "kernel/net/netfilter/nf_tables.ko\nkernel/net/netfilter/nf-other.ko\n";
        assert!(lists_module(list, "nf_tables") && lists_module(list, "nf_other"));
        assert!(!lists_module(list, "tables") && !lists_module("", "nf_tables"));
    }

    #[test]
    fn loaded_schedulers_are_those_with_a_module() {
        let modules = tempfile::tempdir().unwrap();
        for name in [
            "ip_vs",
            "ip_vs_wrr",
            "ip_vs_ftp",
            "ip_vs_lc",
            "ip_set",
            "ip_vs_pe_sip",
        ] {
            std::fs::create_dir(modules.path().join(name)).unwrap();
        }
        assert_eq!(schedulers_in(modules.path()), ["lc", "wrr"]);
        assert_eq!(schedulers_in(&modules.path().join("none")), [""; 0]);
    }
}
