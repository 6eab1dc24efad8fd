//! Finds the state of kernel modules without loading any: `/sys/module` shows the loaded ones, and the lists in
//! `/lib/modules` the available ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::text;
use crate::doctor::facts::Module;
use crate::kernel::linux::is_module_loaded;

/// The state of these modules.
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

/// The module lists of this kernel; empty if they are not readable.
#[derive(Debug, Default)]
struct Lists {
    /// Contents of `modules.builtin`.
    built_in: String,
    /// Contents of `modules.dep`: loadable modules with their dependencies.
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

/// The module name of a path such as `kernel/net/netfilter/ipvs/ip_vs.ko.xz`. File names may contain dashes where the
/// kernel uses underscores.
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
