//! Which tools are built, from which modules.

use clap::ValueEnum;

/// A Go module in `e2e/tools`.
#[derive(Debug)]
pub struct Module {
    /// Its folder there.
    pub folder: &'static str,
    /// For people.
    pub title: &'static str,
    /// The module whose version is that of its programs.
    pub requires: &'static str,
    /// The package whose variables hold the version that its programs tell, if they are not told.
    pub version_package: Option<&'static str>,
    /// Its programs.
    pub tools: &'static [Tool],
}

/// A program of a module.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its package.
    pub package: &'static str,
    /// How it is asked for its version.
    pub version: &'static [&'static str],
    /// How long its build takes the first time, for people.
    pub takes: &'static str,
    /// What is built.
    pub kind: Kind,
}

/// What is built of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its program.
    Program,
    /// A program that runs its tests.
    Tests,
}

/// Those of a control plane.
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
    },
];

/// The control plane that everything is tested with.
const KUBERNETES: Module = kubernetes("kubernetes", "Kubernetes");
/// Others that the chart accepts: the newest that is released, and the oldest.
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

/// Which Kubernetes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Release {
    /// That with which everything is tested.
    #[default]
    Usual,
    /// The newest that is released.
    Newest,
    /// The oldest that the chart accepts.
    Oldest,
}

const fn kubernetes(folder: &'static str, title: &'static str) -> Module {
    Module {
        folder,
        title,
        requires: "k8s.io/kubernetes",
        version_package: Some("k8s.io/component-base/version"),
        tools: KUBERNETES_TOOLS,
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

/// Those of nodes with kubelets, their names, and Kubernetes' own tests. They are always built: nodes need static
/// programs, and whatever a machine has by these names may be any other build.
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
            Tool {
                kind: Kind::Tests,
                ..of_node(
                    "e2e.test",
                    "k8s.io/kubernetes/test/e2e",
                    "about three minutes",
                )
            },
        ],
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
    },
];

/// Whether this folder of a module has tools that only nodes with kubelets need.
#[must_use]
pub fn are_of_nodes(folder: &str) -> bool {
    NODE_MODULES.iter().any(|module| module.folder == folder)
}

/// Whether this folder of a module has the control plane of another Kubernetes.
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
