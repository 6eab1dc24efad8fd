//! The contents and the metadata of each image. Pure.

/// One image.
#[derive(Debug)]
pub(super) struct Recipe {
    /// The last part of the chart's repository.
    pub(super) name: &'static str,
    /// Its program, and the program's package.
    pub(super) program: &'static str,
    /// Title for registries.
    pub(super) title: &'static str,
    /// Description, one sentence.
    pub(super) description: &'static str,
    /// SPDX expression of all contents; the texts are beside the programs.
    pub(super) licences: &'static str,
    /// The default user, numeric, so that a kubelet can verify that it is not root.
    pub(super) user: &'static str,
    /// Debian packages of which the files accepted by [`wants`] are included.
    pub(super) packages: &'static [&'static str],
    /// Empty folders for the chart's mounts.
    pub(super) mounts: &'static [&'static str],
}

/// Version of the programs, and the chart's default tag.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// All of them.
pub(super) const IMAGES: &[Recipe] = &[
    Recipe {
        name: "portolan-controller",
        program: "portolan-controller",
        title: "Portolan controller",
        description: "Watches a Kubernetes cluster once and plans the service proxy of every node.",
        licences: "Apache-2.0 AND BSD-3-Clause AND BSL-1.0 AND ISC AND MIT AND Zlib AND LGPL-2.1-or-later AND \
                   GPL-3.0-or-later WITH GCC-exception-3.1",
        user: "65532:65532",
        packages: &[],
        mounts: &[
            "/etc/portolan/tls",
            "/run/secrets/kubernetes.io/serviceaccount",
        ],
    },
    Recipe {
        name: "portolan-agent",
        program: "portolan-agent",
        title: "Portolan node agent",
        description: "Programs IPVS, sets, rules and routes of a Kubernetes node from its plan.",
        licences: AGENT_LICENCES,
        // A container's capabilities are those of root in it.
        user: "0:0",
        packages: &[IPTABLES, "kmod", "netbase", "nftables"],
        mounts: AGENT_MOUNTS,
    },
    Recipe {
        name: "portolan-agent-nftables",
        program: "portolan-agent",
        title: "Portolan node agent for the nftables dataplane",
        description: "Programs the nftables tables of a Kubernetes node from its plan; has no iptables.",
        licences: AGENT_LICENCES,
        user: "0:0",
        // The agent only needs to load modules. People list the tables with `nft`.
        packages: &["kmod", "nftables"],
        mounts: AGENT_MOUNTS,
    },
];

/// The package of what only the IPVS dataplane needs.
pub(super) const IPTABLES: &str = "iptables";

/// SPDX expression of an agent's program and packages.
const AGENT_LICENCES: &str = "Apache-2.0 AND BSD-3-Clause AND BSL-1.0 AND ISC AND MIT AND Unicode-3.0 AND \
     GPL-2.0-only AND GPL-2.0-or-later AND LGPL-2.1-or-later AND LGPL-3.0-or-later AND \
     GPL-3.0-or-later WITH GCC-exception-3.1";

/// Where the chart mounts folders in the container of an agent.
const AGENT_MOUNTS: &[&str] = &[
    "/etc/portolan/ca",
    "/etc/portolan/controllers",
    "/run/secrets/portolan",
    "/usr/lib/modules",
    "/var/lib/portolan",
];

/// PATH.
pub(super) const PATH: &str = "/usr/sbin:/usr/bin";

/// Folders of every image: mount points of runtimes, and folders for data.
pub(super) const FOLDERS: &[&str] = &[
    "/dev",
    "/proc",
    "/run",
    "/srv",
    "/sys",
    "/usr/bin",
    "/usr/sbin",
    "/var",
];

/// Symlinks of every image, besides the merged tree.
pub(super) const LINKS: &[(&str, &str)] = &[("/var/run", "../run")];

/// Symlinks of Debian's alternatives for [`IPTABLES`], which no package lists: the newer variant is the default.
pub(super) const ALTERNATIVES: [&str; 6] = [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];

/// Small files of every image.
pub(super) const TEXTS: &[(&str, &str)] = &[
    (
        "/etc/passwd",
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         portolan:x:65532:65532:portolan:/:/usr/sbin/nologin\n",
    ),
    ("/etc/group", "root:x:0:\nportolan:x:65532:\n"),
    // Entries of a pod's hosts file precede DNS.
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\n",
    ),
];

/// Whether a file of a package is included: the programs that the agent starts and the files they read. Other files
/// would only enlarge the attack surface.
pub(super) fn wants(place: &str) -> bool {
    const FILES: &[&str] = &[
        "/etc/protocols",
        "/usr/bin/kmod",
        "/usr/sbin/modprobe",
        "/usr/sbin/nft",
        "/usr/sbin/xtables-legacy-multi",
        "/usr/sbin/xtables-nft-multi",
    ];
    const TOOLS: &[&str] = &["iptables", "ip6tables"];
    const VARIANTS: &[&str] = &["-nft", "-legacy"];
    const EXTENSIONS: &[&str] = &["libxt_", "libipt_", "libip6t_"];
    let (folder, name) = place.rsplit_once('/').unwrap_or_default();
    let begins = |with: &&str| name.starts_with(*with);
    let of_variant = |tool: &&str| {
        let rest = name.strip_prefix(*tool);
        rest.is_some_and(|rest| VARIANTS.iter().any(|variant| rest.starts_with(variant)))
    };
    FILES.contains(&place)
        || (folder == "/usr/sbin" && TOOLS.iter().any(of_variant))
        || (folder.ends_with("/xtables") && EXTENSIONS.iter().any(begins))
}

/// The labels and annotations of an image.
pub(super) fn labels<'a>(
    recipe: &Recipe,
    version: &str,
    revision: Option<&str>,
    packages: impl Iterator<Item = (&'a String, &'a String)>,
) -> Vec<(&'static str, String)> {
    let packages: Vec<String> = packages
        .map(|(name, version)| format!("{name}={version}"))
        .collect();
    let mut labels = vec![
        ("org.opencontainers.image.title", recipe.title.to_owned()),
        (
            "org.opencontainers.image.description",
            recipe.description.to_owned(),
        ),
        ("org.opencontainers.image.version", version.to_owned()),
        (
            "org.opencontainers.image.licenses",
            recipe.licences.to_owned(),
        ),
        (PACKAGES_LABEL, packages.join(" ")),
    ];
    if let Some(revision) = revision {
        labels.push(("org.opencontainers.image.revision", revision.to_owned()));
    }
    labels
}

/// Names and versions of the Debian packages in an image.
pub(super) const PACKAGES_LABEL: &str = "dev.portolan.image.debian-packages";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nested::root;
    use crate::packages::Versions;
    use crate::programs;

    fn read(path: &str) -> String {
        std::fs::read_to_string(root().join(path)).unwrap()
    }

    #[test]
    fn what_the_agent_starts_is_wanted_and_what_else_packages_have_is_not() {
        for place in [
            "/usr/sbin/iptables-nft-save",
            "/usr/sbin/ip6tables-legacy-restore",
            "/usr/sbin/xtables-legacy-multi",
            "/usr/sbin/modprobe",
            "/usr/bin/kmod",
            "/usr/sbin/nft",
            "/usr/lib/x86_64-linux-gnu/xtables/libxt_set.so",
            "/usr/lib/aarch64-linux-gnu/xtables/libip6t_REJECT.so",
            "/etc/protocols",
        ] {
            assert!(wants(place), "{place}");
        }
        for place in [
            "/usr/sbin/arptables-nft",
            "/usr/sbin/iptables-apply",
            "/usr/sbin/iptables-restore-translate",
            "/usr/bin/iptables-xml",
            "/usr/sbin/nfnl_osf",
            "/usr/sbin/rmmod",
            "/usr/lib/x86_64-linux-gnu/xtables/libebt_arp.so",
            "/usr/share/doc/iptables/copyright",
            "/etc/services",
            "nft",
        ] {
            assert!(!wants(place), "{place}");
        }
    }

    /// Names in the files that may use the agent's only module that starts programs.
    #[test]
    fn whatever_program_the_agent_names_is_wanted() {
        let mut named = Vec::new();
        let mut paths = vec![root().join("node-agent/src/kernel/linux")];
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                let below = std::fs::read_dir(path).unwrap();
                paths.extend(below.map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            for call in ["tool::run(\"", "tool::start(\""] {
                let names = text.split(call).skip(1);
                named.extend(names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
        named.sort_unstable();
        assert_eq!(named, ["modprobe", "nft"], "look at the packages, too");
        for name in named {
            assert!(wants(&format!("/usr/sbin/{name}")), "{name}");
        }
        let variants = read("node-agent/src/kernel/linux/iptables.rs");
        for form in [
            "{iptables}-nft-{act}",
            "{iptables}-legacy-{act}",
            "{iptables}-{act}",
        ] {
            assert!(variants.contains(form), "{form}");
        }
        assert!(ALTERNATIVES.iter().all(|name| name.starts_with("ip")));
    }

    #[test]
    fn every_package_of_an_image_is_in_the_table_of_packages() {
        for package in IMAGES.iter().flat_map(|recipe| recipe.packages) {
            let mut known = programs::PROGRAMS.iter().chain(programs::FILES);
            let known = known.any(|program| program.package == *package);
            assert!(known, "{package} would be missing on a fresh machine");
        }
    }

    #[test]
    fn what_is_said_holds_packages_by_version_and_the_revision_if_there_is_one() {
        let packages = Versions::from([
            ("kmod".to_owned(), "30+1".to_owned()),
            ("libc6".to_owned(), "2.36".to_owned()),
        ]);
        let labels = |revision| labels(&IMAGES[1], "1.2.3", revision, packages.iter());
        let find = |key: &str| {
            let found = labels(Some("abc")).into_iter().find(|label| label.0 == key);
            found.map(|label| label.1)
        };
        assert_eq!(find(PACKAGES_LABEL).unwrap(), "kmod=30+1 libc6=2.36");
        assert_eq!(find("org.opencontainers.image.version").unwrap(), "1.2.3");
        assert_eq!(find("org.opencontainers.image.revision").unwrap(), "abc");
        assert_eq!(labels(Some("abc")).len(), labels(None).len() + 1);
    }

    #[test]
    fn images_are_named_as_the_chart_names_them() {
        let rendered = read("e2e/api/chart/minimal.yaml");
        let named_by_chart = IMAGES.iter().filter(|recipe| recipe.name == recipe.program);
        assert_eq!(named_by_chart.clone().count(), 2);
        for recipe in named_by_chart {
            let image = format!("image: registry.example.com/portolan/{}:", recipe.name);
            assert!(rendered.contains(&image), "{image}");
        }
    }
}
