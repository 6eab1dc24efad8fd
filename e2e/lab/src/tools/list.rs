//! The list of tools and their modules.

use clap::ValueEnum;

/// A Go module in `e2e/tools`.
#[derive(Debug)]
pub struct Module {
    /// Its folder in `e2e/tools`.
    pub folder: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The module that determines the version of the programs.
    pub requires: &'static str,
    /// The package with version variables, if they must be set by the linker.
    pub version_package: Option<&'static str>,
    /// Its programs.
    pub tools: &'static [Tool],
    /// The scenarios that use them; empty if all do. Demos and other commands may use every tool.
    pub only_for: &'static [&'static str],
}

impl Module {
    /// Whether a command with these words may use it: names of scenarios, or [`ALL`].
    #[must_use]
    pub fn serves(&self, words: &[&str]) -> bool {
        let names_it = |word: &&str| ALL.contains(word) || self.only_for.contains(word);
        self.only_for.is_empty() || words.iter().any(names_it)
    }

    /// The package of one of its tools.
    #[must_use]
    pub fn package(&self, tool: &Tool) -> String {
        let usual = || format!("{}/cmd/{}", self.requires, tool.name);
        tool.package.map_or_else(usual, str::to_owned)
    }
}

/// The word for all scenarios.
pub const ALL: &[&str] = &["--all"];

/// A program of a module.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its package, if that is not `cmd/NAME` of the module that determines the version.
    pub package: Option<&'static str>,
    /// Arguments to query its version.
    pub version: &'static [&'static str],
    /// Duration of its first build, for people.
    pub takes: &'static str,
    /// The kind of build.
    pub kind: Kind,
}

/// The kind of build of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its main program.
    Program,
    /// Its test program.
    Tests,
}

const fn module(
    folder: &'static str,
    title: &'static str,
    requires: &'static str,
    tools: &'static [Tool],
) -> Module {
    Module {
        folder,
        title,
        requires,
        version_package: None,
        tools,
        only_for: &[],
    }
}

const fn tool(name: &'static str, takes: &'static str) -> Tool {
    Tool {
        name,
        package: None,
        version: &["--version"],
        takes,
        kind: Kind::Program,
    }
}

/// The programs of a control plane.
pub const MODULES: &[Module] = &[
    module(
        "etcd",
        "etcd",
        "go.etcd.io/etcd/server/v3",
        &[Tool {
            package: Some("go.etcd.io/etcd/server/v3"),
            ..tool("etcd", "about half a minute on 2 cores")
        }],
    ),
    KUBERNETES,
    Module {
        only_for: &["agents"],
        ..module(
            "kwok",
            "kwok",
            "sigs.k8s.io/kwok",
            &[tool("kwok", "about a minute on 2 cores")],
        )
    },
    module(
        "helm",
        "helm",
        "helm.sh/helm/v4",
        &[Tool {
            version: &["version", "--short"],
            ..tool("helm", "about two minutes on 2 cores")
        }],
    ),
    Module {
        only_for: &["traces"],
        ..module(
            "jaeger",
            "Jaeger",
            "github.com/jaegertracing/jaeger",
            &[Tool {
                package: Some("github.com/jaegertracing/jaeger/cmd/all-in-one"),
                version: &["version"],
                ..tool("jaeger-all-in-one", "about two minutes on 2 cores")
            }],
        )
    },
];

/// The default control plane of all tests.
const KUBERNETES: Module = kubernetes("kubernetes", "Kubernetes");
/// Other releases that the chart accepts: the newest and the oldest.
pub(super) const OTHER_KUBERNETES: [(Release, Module); 2] = [
    (
        Release::Newest,
        kubernetes("kubernetes-newest", "the newest Kubernetes"),
    ),
    (
        Release::Oldest,
        kubernetes("kubernetes-oldest", "the oldest Kubernetes"),
    ),
];

/// The Kubernetes release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Release {
    /// The default release of all tests.
    #[default]
    Usual,
    /// The newest release.
    Newest,
    /// The oldest release accepted by the chart.
    Oldest,
}

const fn kubernetes(folder: &'static str, title: &'static str) -> Module {
    Module {
        version_package: Some("k8s.io/component-base/version"),
        ..module(folder, title, "k8s.io/kubernetes", KUBERNETES_TOOLS)
    }
}

const KUBERNETES_TOOLS: &[Tool] = &[
    tool("kube-apiserver", "about three minutes on 2 cores"),
    tool("kube-controller-manager", "about one minute on 2 cores"),
    Tool {
        version: &["version", "--client"],
        ..tool("kubectl", "below a minute on 2 cores")
    },
    tool("kube-scheduler", "below a minute on 2 cores"),
];

/// The programs of nodes with kubelets, their names, and Kubernetes' own tests. Always built: nodes need static
/// programs, and a machine's own programs of these names may be any build.
pub const NODE_MODULES: &[Module] = &[
    Module {
        tools: NODE_TOOLS,
        ..kubernetes("nodes", "Kubernetes' nodes and tests")
    },
    module(
        "containerd",
        "containerd",
        "github.com/containerd/containerd/v2",
        &[
            tool("containerd", "about a minute"),
            tool("containerd-shim-runc-v2", "some seconds"),
            tool("ctr", "some seconds"),
        ],
    ),
    module(
        "flannel",
        "flannel",
        "github.com/flannel-io/flannel",
        &[Tool {
            package: Some("portolan/tools/flannel"),
            ..tool("flannel", "about two minutes")
        }],
    ),
    module(
        "coredns",
        "CoreDNS",
        "github.com/coredns/coredns",
        &[Tool {
            package: Some("portolan/tools/coredns"),
            ..tool("coredns", "about two minutes")
        }],
    ),
];

const NODE_TOOLS: &[Tool] = &[
    tool("kubelet", "about half a minute"),
    tool("kube-proxy", "some seconds"),
    Tool {
        package: Some("k8s.io/kubernetes/test/images/agnhost"),
        ..tool("agnhost", "some seconds")
    },
    Tool {
        package: Some("k8s.io/kubernetes/test/images/regression-issue-74839"),
        ..tool("regression-issue-74839", "some seconds")
    },
    Tool {
        package: Some("k8s.io/kubernetes/test/e2e"),
        kind: Kind::Tests,
        ..tool("e2e.test", "about three minutes")
    },
];

/// Whether this module folder has tools only for nodes with kubelets.
#[must_use]
pub fn are_of_nodes(folder: &str) -> bool {
    NODE_MODULES.iter().any(|module| module.folder == folder)
}

/// Whether this module folder has the control plane of another Kubernetes release.
#[must_use]
pub fn are_of_other_kubernetes(folder: &str) -> bool {
    let mut others = OTHER_KUBERNETES.iter();
    others.any(|(_, module)| module.folder == folder)
}
