//! Whether the kernel has modules, without loading any: what is loaded shows in `/sys/module`, the rest
//! is listed beside the kernel's modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::text;
use crate::doctor::facts::Module;
use crate::kernel::linux::is_module_loaded;

/// What is known of these modules.
pub(super) fn read(names: &BTreeSet<String>) -> BTreeMap<String, Module> {
    let lists = Lists::of_this_kernel();
    let find = |name: &String| {
        let module = if is_module_loaded(name) {
            Module::There
        } else {
            lists.find(name)
        };
        (name.clone(), module)
    };
    names.iter().map(find).collect()
}

/// The lists that come with a kernel's modules; empty text if there are none here.
#[derive(Debug, Default)]
struct Lists {
    /// Those that are a part of the kernel.
    built_in: String,
    /// Those that can be loaded, each with what it needs.
    dependencies: String,
}

impl Lists {
    fn of_this_kernel() -> Self {
        let release = text("/proc/sys/kernel/osrelease").unwrap_or_default();
        let directory = Path::new("/lib/modules").join(release.trim());
        let list = |name| text(directory.join(name)).unwrap_or_default();
        Self {
            built_in: list("modules.builtin"),
            dependencies: list("modules.dep"),
        }
    }

    fn find(&self, name: &str) -> Module {
        let mut built_in = self.built_in.lines().filter_map(module);
        let first = |line: &str| line.split(':').next().and_then(module);
        let mut loadable = self.dependencies.lines().filter_map(first);
        if built_in.any(|found| found == name) {
            Module::There
        } else if loadable.any(|found| found == name) {
            Module::Loadable
        } else if self.built_in.is_empty() && self.dependencies.is_empty() {
            Module::Unknown
        } else {
            Module::Missing
        }
    }
}

/// The module that a file holds: `kernel/net/netfilter/ipvs/ip_vs.ko.xz`. Files may be named with
/// dashes where the kernel has underscores.
fn module(path: &str) -> Option<String> {
    let file = path.trim().rsplit('/').next()?;
    let (name, _) = file.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_there_or_loadable_or_missing_or_unknown() {
        let lists = Lists {
            built_in: "kernel/net/netfilter/nf_conntrack.ko\nkernel/net/netfilter/xt_set.ko\n"
                .into(),
            dependencies: "kernel/net/netfilter/ipvs/ip_vs_rr.ko.xz: \
                           kernel/net/netfilter/ipvs/ip_vs.ko.xz\n\
                           kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/lib/libcrc32c.ko.xz\n\
                           kernel/drivers/net/dummy.ko:\nkernel/fs/nls/nls_iso8859-1.ko:\n"
                .into(),
        };
        for (name, module) in [
            ("nf_conntrack", Module::There),
            ("ip_vs", Module::Loadable),
            ("ip_vs_rr", Module::Loadable),
            ("dummy", Module::Loadable),
            ("nls_iso8859_1", Module::Loadable),
            ("ip_vs_mh", Module::Missing),
            ("libcrc32c", Module::Missing),
            ("ip", Module::Missing),
        ] {
            assert_eq!(lists.find(name), module, "{name}");
        }
        assert_eq!(Lists::default().find("ip_vs"), Module::Unknown);
    }
}
