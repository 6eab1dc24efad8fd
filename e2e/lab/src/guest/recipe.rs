//! The contents of the guest image. The text of this file is part of the image's key, so any change here builds a new
//! image.

/// The package that depends on the newest kernel for virtual machines.
pub const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// Debian packages whose programs and data files are copied from this machine.
pub const PACKAGES: &[&str] = &[
    "busybox-static",
    "conntrack",
    "curl",
    "dash",
    "ipset",
    "iproute2",
    "iptables",
    "ipvsadm",
    "kmod",
    "netbase",
    "nftables",
    "procps",
    "strace",
    "tcpdump",
];

/// Kernel modules: everything below these folders, with dependencies.
pub const MODULE_FOLDERS: &[&str] = &[
    "kernel/net/",
    "kernel/drivers/net/",
    "kernel/drivers/virtio/",
    "kernel/drivers/char/",
    "kernel/lib/",
    "kernel/crypto/",
];

/// Large, and not used in the guest.
pub const MODULE_FOLDERS_LEFT_OUT: &[&str] = &[
    "kernel/drivers/net/ethernet/",
    "kernel/drivers/net/hyperv/",
    "kernel/drivers/net/phy/",
    "kernel/net/ceph/",
    "kernel/net/sunrpc/",
    "kernel/net/wireless/",
];

/// Modules that every guest loads before its command starts; others are loaded on demand.
///
/// They include two schedulers because Linux 6.1 can deadlock when IPVS loads them on demand: IPVS waits for modprobe
/// with its lock held, their modules wait for the removal of a network namespace, and that removal waits for the
/// lock.
pub const MODULES: &[&str] = &[
    "ip_vs",
    "ip_vs_lblc",
    "ip_vs_lblcr",
    "dummy",
    "vxlan",
    "veth",
    "sctp",
    "nf_conntrack",
];

/// Symlinks of Debian's alternatives, which no package lists; the nft variants are the default.
pub const LINKS: &[(&str, &str)] = &[
    ("/usr/bin/sh", "dash"),
    ("/usr/sbin/iptables", "xtables-nft-multi"),
    ("/usr/sbin/iptables-save", "xtables-nft-multi"),
    ("/usr/sbin/iptables-restore", "xtables-nft-multi"),
    ("/usr/sbin/ip6tables", "xtables-nft-multi"),
    ("/usr/sbin/ip6tables-save", "xtables-nft-multi"),
    ("/usr/sbin/ip6tables-restore", "xtables-nft-multi"),
];

/// Small files of the guest.
pub const TEXTS: &[(&str, &str)] = &[
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    (
        "/etc/hosts",
        "127.0.0.1 localhost portolan-guest\n::1 localhost\n",
    ),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\n",
    ),
];

/// Whether a file of one of [`PACKAGES`] is copied: programs, iptables extensions, lookup tables.
#[must_use]
pub fn wants(path: &str) -> bool {
    const FOLDERS: &[&str] = &["/usr/bin/", "/usr/sbin/", "/etc/iproute2/"];
    const FILES: &[&str] = &["/etc/protocols", "/etc/services"];
    FOLDERS.iter().any(|folder| path.starts_with(folder))
        || FILES.contains(&path)
        || path.starts_with("/usr/share/iproute2/")
        || (path.contains("/xtables/") && path.ends_with(".so"))
}

/// Whether a kernel module is copied on its own account. `path` is relative to the modules folder.
#[must_use]
pub fn wants_module(path: &str) -> bool {
    MODULE_FOLDERS.iter().any(|folder| path.starts_with(folder))
        && !MODULE_FOLDERS_LEFT_OUT
            .iter()
            .any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_extensions_and_tables_are_wanted_manuals_are_not() {
        assert!(wants("/usr/sbin/ipvsadm"));
        assert!(wants("/usr/lib/x86_64-linux-gnu/xtables/libxt_set.so"));
        assert!(wants("/etc/protocols"));
        assert!(!wants("/usr/share/man/man8/ip.8.gz"));
        assert!(!wants("/etc/network"));
    }

    #[test]
    fn modules_of_ipvs_are_wanted_network_cards_are_not() {
        assert!(wants_module("kernel/net/netfilter/ipvs/ip_vs_mh.ko"));
        assert!(wants_module("kernel/drivers/net/vxlan/vxlan.ko"));
        assert!(!wants_module("kernel/drivers/net/ethernet/intel/e1000.ko"));
        assert!(!wants_module("kernel/drivers/md/raid1.ko"));
    }

    #[test]
    fn every_package_of_the_guest_is_in_the_table_of_packages() {
        use crate::programs::{FILES, PROGRAMS};
        for package in PACKAGES {
            let known = PROGRAMS
                .iter()
                .chain(FILES)
                .any(|program| program.package == *package);
            assert!(known, "{package} would be missing on a fresh machine");
        }
    }
}
