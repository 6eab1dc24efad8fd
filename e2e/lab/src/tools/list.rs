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
}

/// The word for all scenarios.
pub const ALL: &[&str] = &["--all"];

/// A program of a module.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its package.
    pub package: &'static str,
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

/// The programs of a control plane.
pub const MODULES: &[Module] = &[
    Module {
        folder: "etcd",
        title: "etcd",
        requires: "go.etcd.io/etcd/server/v3",
        version_package: None,
        tools: &[Tool {
            name: "etcd",
            package: "go.etcd.io/etcd/server/v3",
            version: &["--version"],
            takes: "about half a minute on 2 cores",
            kind: Kind::Program,
        }],
        only_for: &[],
    },
    KUBERNETES,
    Module {
        folder: "kwok",
        title: "kwok",
        requires: "sigs.k8s.io/kwok",
        version_package: None,
        tools: &[Tool {
            name: "kwok",
            package: "sigs.k8s.io/kwok/cmd/kwok",
            version: &["--version"],
            takes: "about a minute on 2 cores",
            kind: Kind::Program,
        }],
        only_for: &["agents"],
    },
    Module {
        folder: "helm",
        title: "helm",
        requires: "helm.sh/helm/v4",
        version_package: None,
        tools: &[Tool {
            name: "helm",
            package: "helm.sh/helm/v4/cmd/helm",
            version: &["version", "--short"],
            takes: "about two minutes on 2 cores",
            kind: Kind::Program,
        }],
        only_for: &[],
    },
    Module {
        folder: "jaeger",
        title: "Jaeger",
        requires: "github.com/jaegertracing/jaeger",
        version_package: None,
        tools: &[Tool {
            name: "jaeger-all-in-one",
            package: "github.com/jaegertracing/jaeger/cmd/all-in-one",
            version: &["version"],
            takes: "about two minutes on 2 cores",
            kind: Kind::Program,
        }],
        only_for: &["traces"],
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
        folder,
        title,
        requires: "k8s.io/kubernetes",
        version_package: Some("k8s.io/component-base/version"),
        tools: KUBERNETES_TOOLS,
        only_for: &[],
    }
}

const KUBERNETES_TOOLS: &[Tool] = &[
    Tool {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        version: &["--version"],
        takes: "about three minutes on 2 cores",
        kind: Kind::Program,
    },
    Tool {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        version: &["--version"],
        takes: "about one minute on 2 cores",
        kind: Kind::Program,
    },
    Tool {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        version: &["version", "--client"],
        takes: "below a minute on 2 cores",
        kind: Kind::Program,
    },
    Tool {
        name: "kube-scheduler",
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
        version: &["--version"],
        takes: "below a minute on 2 cores",
        kind: Kind::Program,
    },
];

/// The programs of nodes with kubelets, their names, and Kubernetes' own tests. Always built: nodes need static
/// programs, and a machine's own programs of these names may be any build.
pub const NODE_MODULES: &[Module] = &[
    Module {
        folder: "nodes",
        title: "Kubernetes' nodes and tests",
        requires: "k8s.io/kubernetes",
        version_package: Some("k8s.io/component-base/version"),
        tools: &[
            of_node(
                "kubelet",
                "k8s.io/kubernetes/cmd/kubelet",
                "about half a minute",
            ),
            of_node(
                "kube-proxy",
                "k8s.io/kubernetes/cmd/kube-proxy",
                "some seconds",
            ),
            of_node(
                "agnhost",
                "k8s.io/kubernetes/test/images/agnhost",
                "some seconds",
            ),
            of_node(
                "regression-issue-74839",
                "k8s.io/kubernetes/test/images/regression-issue-74839",
                "some seconds",
            ),
            Tool {
                kind: Kind::Tests,
                ..of_node(
                    "e2e.test",
                    "k8s.io/kubernetes/test/e2e",
                    "about three minutes",
                )
            },
        ],
        only_for: &[],
    },
    Module {
        folder: "containerd",
        title: "containerd",
        requires: "github.com/containerd/containerd/v2",
        version_package: None,
        tools: &[
            of_node(
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
                "about a minute",
            ),
            of_node(
                "containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "some seconds",
            ),
            of_node(
                "ctr",
                "github.com/containerd/containerd/v2/cmd/ctr",
                "some seconds",
            ),
        ],
        only_for: &[],
    },
    Module {
        folder: "flannel",
        title: "flannel",
        requires: "github.com/flannel-io/flannel",
        version_package: None,
        tools: &[of_node(
            "flannel",
            "portolan/tools/flannel",
            "about two minutes",
        )],
        only_for: &[],
    },
    Module {
        folder: "coredns",
        title: "CoreDNS",
        requires: "github.com/coredns/coredns",
        version_package: None,
        tools: &[of_node(
            "coredns",
            "portolan/tools/coredns",
            "about two minutes",
        )],
        only_for: &[],
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

const fn of_node(name: &'static str, package: &'static str, takes: &'static str) -> Tool {
    Tool {
        name,
        package,
        version: &[],
        takes,
        kind: Kind::Program,
    }
}
