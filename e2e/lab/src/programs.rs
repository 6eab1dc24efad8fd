//! The table of Debian programs used by the lab and the scenarios.
//!
//! Invariant: a program outside of [`PROGRAMS`] cannot be started (`process.rs` rejects it), so that no fresh machine
//! lacks one.

/// A program, its Debian package, and its purpose.
#[derive(Debug)]
pub struct Program {
    /// Name as typed on a command line.
    pub name: &'static str,
    /// Debian package that holds it.
    pub package: &'static str,
    /// Its users and purpose.
    pub why: &'static str,
}

const fn program(name: &'static str, package: &'static str, why: &'static str) -> Program {
    Program { name, package, why }
}

/// Every Debian program that the lab or the scenarios start, one per line.
#[rustfmt::skip]
pub const PROGRAMS: &[Program] = &[
    program("apt-cache", "apt", "lab: finds the newest kernel package for the guest"),
    program("apt-get", "apt", "lab: installs packages, fetches the guest's kernel"),
    program("buildah", "buildah", "lab: makes images, and starts what is in them"),
    program("busybox", "busybox-static", "guest: mount, poweroff and other small tools"),
    program("conntrack", "conntrack", "guest shell: tracked connections"),
    program("cp", "coreutils", "lab: kernel modules of a node, with their links"),
    program("curl", "curl", "guest shell: ask a web Service as a person would"),
    program("dash", "dash", "guest: a shell that starts real tools before busybox's own"),
    program("debootstrap", "debootstrap", "lab: the system of nodes with kubelets"),
    program("depmod", "kmod", "lab: module dependencies of the guest's kernel"),
    program("df", "coreutils", "lab: free space for builds and images"),
    program("dpkg", "dpkg", "lab: unpacks the kernel package without installing it"),
    program("dpkg-query", "dpkg", "lab: which packages are installed, and their files"),
    program("id", "coreutils", "lab: whether it runs as root"),
    program("ip", "iproute2", "scenarios: namespaces, links, addresses, routes"),
    program("ip6tables", "iptables", "scenarios: rules of the IPv6 kernel, one at a time"),
    program("ip6tables-legacy-save", "iptables", "scenarios: IPv6 rules of the older tables"),
    program("ip6tables-restore", "iptables", "node agent: loads its IPv6 rules"),
    program("ip6tables-save", "iptables", "scenarios: rules of the IPv6 kernel as text"),
    program("ipset", "ipset", "scenarios: an independent look at our sets"),
    program("iptables", "iptables", "scenarios: rules of the IPv4 kernel, one at a time"),
    program("iptables-legacy-save", "iptables", "scenarios: IPv4 rules of the older tables"),
    program("iptables-restore", "iptables", "node agent: loads its IPv4 rules"),
    program("iptables-save", "iptables", "scenarios: rules of the IPv4 kernel as text"),
    program("ipvsadm", "ipvsadm", "scenarios: an independent look at IPVS, and the peer in measurements"),
    program("kill", "procps", "lab: stops its own container runtime"),
    program("ldd", "libc-bin", "lab: libraries of the programs that go into the guest"),
    program("mkfs.ext4", "e2fsprogs", "lab: disks of nodes with kubelets"),
    program("modprobe", "kmod", "lab: does this kernel have IPVS; guest: loads modules"),
    program("nft", "nftables", "guest shell: rules as the kernel holds them"),
    program("nice", "coreutils", "lab: lets what is timed have the processors first"),
    program("prlimit", "util-linux", "lab: ends a broken planner that runs for ever; scenarios: a controller with few open files"),
    program("ps", "procps", "guest shell: our processes, their memory and time"),
    program("qemu-system-x86_64", "qemu-system-x86", "lab: the emulated machine"),
    program("setpriv", "util-linux", "lab: ends what it started when it ends itself"),
    program("ss", "iproute2", "guest shell: sockets in a namespace"),
    program("strace", "strace", "guest shell: what a process asks of the kernel"),
    program("stty", "coreutils", "lab: the terminal of a guest shell"),
    program("sysctl", "procps", "guest shell: kernel settings of a namespace"),
    program("tar", "tar", "lab: what is in an image"),
    program("tcpdump", "tcpdump", "guest shell: packets on a link"),
];

/// Packages without a program that is started by name.
pub const FILES: &[Program] = &[program(
    "/etc/protocols",
    "netbase",
    "guest: names such as `tcp` in set entries",
)];

/// Programs extracted from a package that is never installed, because its installation would start a service on this
/// machine.
#[rustfmt::skip]
pub const UNPACKED: &[Program] = &[
    program("etcd", "etcd-server", "scenarios: a store that is too old for lists as streams"),
    program("prometheus", "prometheus", "scenarios: scrapes the programs under test"),
    program("promtool", "prometheus", "scenarios: checks metrics and alerts"),
];

/// The table's line for a program name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_each_program_once_with_a_reason() {
        for pair in PROGRAMS.windows(2) {
            let (one, next) = (pair[0].name, pair[1].name);
            assert!(one < next, "{one} before {next}");
        }
        for program in PROGRAMS.iter().chain(FILES).chain(UNPACKED) {
            assert!(program.why.contains(": "), "{} has no reason", program.name);
        }
    }

    #[test]
    fn every_program_that_scenarios_start_is_in_the_table() {
        const HAVE_NO_PACKAGE: &[&str] = &[
            "cargo",
            "portolan-controller",
            "portolan-agent",
            "kubectl-proxyplan",
            "portolan-scenarios",
        ];
        let mut tools = crate::tools::names();
        let of_nodes = crate::tools::NODE_MODULES
            .iter()
            .flat_map(|module| module.tools);
        tools.extend(of_nodes.map(|tool| tool.name));
        let file = crate::nested::root().join("e2e/src/program/which.rs");
        let text = std::fs::read_to_string(file).unwrap();
        let (_, names) = text.split_once("fn name(self)").unwrap();
        let lines = names.split("fn ").next().unwrap().lines();
        let names = lines.filter_map(|line| line.split_once("=> \"")?.1.split('"').next());
        let names: Vec<&str> = names.collect();
        assert!(names.len() > 5, "the list is no longer there: {names:?}");
        for name in names {
            let known =
                find(name).is_some() || HAVE_NO_PACKAGE.contains(&name) || tools.contains(&name);
            assert!(known, "`{name}` would be missing on a fresh machine");
        }
    }

    #[test]
    fn a_program_is_found_by_its_name_only() {
        assert_eq!(find("ip").map(|program| program.package), Some("iproute2"));
        assert!(find("/usr/sbin/ip").is_none());
        assert!(find("wget").is_none());
    }
}
