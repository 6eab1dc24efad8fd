//! The known programs and their origin.

/// The programs that scenarios and tests may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Links, addresses, routes and namespaces.
    Ip,
    /// The standard tool for virtual servers.
    Ipvsadm,
    /// Address sets.
    Ipset,
    /// IPv4 rules, one at a time.
    Iptables,
    /// IPv6 rules, one at a time.
    Ip6tables,
    /// Loads IPv4 rules from text.
    IptablesRestore,
    /// Loads IPv6 rules from text.
    Ip6tablesRestore,
    /// IPv4 rules as text.
    IptablesSave,
    /// IPv6 rules as text.
    Ip6tablesSave,
    /// The same two of the kernel's older tables.
    IptablesLegacySave,
    /// See above.
    Ip6tablesLegacySave,
    /// Rules in nf_tables, as they are there.
    Nft,
    /// Connections that the kernel tracks.
    Conntrack,
    /// Loads kernel modules.
    Modprobe,
    /// Traces the system calls of a process.
    Strace,
    /// The controller under test.
    Controller,
    /// The plugin of kubectl under test.
    ProxyPlan,
    /// The node agent under test.
    Agent,
    /// This program, for what it does in another process.
    Scenarios,
    /// The store below the API server.
    Etcd,
    /// The store as Debian 12 has it: 3.4, too old for lists as streams.
    Etcd34,
    /// The API server.
    KubeApiserver,
    /// Kubernetes' own controllers.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// Simulates nodes and reports their pods as running.
    Kwok,
    /// The command line client of Kubernetes.
    Kubectl,
    /// The installer of charts.
    Helm,
    /// The trace backend.
    Jaeger,
    /// The metrics backend.
    Prometheus,
    /// Checks metrics and rules.
    Promtool,
    /// A nameserver.
    CoreDns,
    /// Kubernetes' own service proxy.
    KubeProxy,
    /// Kubernetes' own tests.
    E2eTest,
    /// The emulated machine.
    Qemu,
    /// Starts another program so that it ends when this one does.
    Setpriv,
    /// Starts another program with limits.
    Prlimit,
    /// Packs what a node is given.
    Tar,
    /// Gives tests the metadata of the workspace.
    Cargo,
}

impl Program {
    /// Its file name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ipvsadm => "ipvsadm",
            Self::Ipset => "ipset",
            Self::Iptables => "iptables",
            Self::Ip6tables => "ip6tables",
            Self::IptablesRestore => "iptables-restore",
            Self::Ip6tablesRestore => "ip6tables-restore",
            Self::IptablesSave => "iptables-save",
            Self::Ip6tablesSave => "ip6tables-save",
            Self::IptablesLegacySave => "iptables-legacy-save",
            Self::Ip6tablesLegacySave => "ip6tables-legacy-save",
            Self::Nft => "nft",
            Self::Conntrack => "conntrack",
            Self::Modprobe => "modprobe",
            Self::Strace => "strace",
            Self::Controller => "portolan-controller",
            Self::ProxyPlan => "kubectl-proxyplan",
            Self::Agent => "portolan-agent",
            Self::Scenarios => "portolan-scenarios",
            Self::Etcd => "etcd",
            Self::Etcd34 => "etcd-3.4",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Jaeger => "jaeger-all-in-one",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
            Self::CoreDns => "coredns",
            Self::KubeProxy => "kube-proxy",
            Self::E2eTest => "e2e.test",
            Self::Qemu => "qemu-system-x86_64",
            Self::Setpriv => "setpriv",
            Self::Prlimit => "prlimit",
            Self::Tar => "tar",
            Self::Cargo => "cargo",
        }
    }

    pub(super) fn comes_from(self) -> &'static str {
        match self {
            Self::Ip => "Debian package iproute2",
            Self::Ipvsadm => "Debian package ipvsadm",
            Self::Ipset => "Debian package ipset",
            Self::Iptables
            | Self::Ip6tables
            | Self::IptablesRestore
            | Self::Ip6tablesRestore
            | Self::IptablesSave
            | Self::Ip6tablesSave
            | Self::IptablesLegacySave
            | Self::Ip6tablesLegacySave => "Debian package iptables",
            Self::Nft => "Debian package nftables",
            Self::Conntrack => "Debian package conntrack",
            Self::Modprobe => "Debian package kmod",
            Self::Strace => "Debian package strace",
            Self::Controller | Self::ProxyPlan => "cargo build -p portolan-controller",
            Self::Agent => "cargo build -p portolan-agent",
            Self::Scenarios => "cargo build -p portolan-e2e",
            Self::Etcd
            | Self::Etcd34
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kwok
            | Self::Kubectl
            | Self::Helm
            | Self::Jaeger
            | Self::Prometheus
            | Self::Promtool => {
                "`cargo lab cluster` and `cargo lab control-plane`, which build or fetch it once and \
                 name its folder in KUBEBUILDER_ASSETS"
            }
            Self::CoreDns | Self::KubeProxy | Self::E2eTest => {
                "`cargo lab real` and `cargo lab bench peers`, which build it once and name its folder in KUBEBUILDER_ASSETS"
            }
            Self::Qemu => "Debian package qemu-system-x86",
            Self::Setpriv | Self::Prlimit => "Debian package util-linux",
            Self::Tar => "Debian package tar",
            Self::Cargo => "the Rust toolchain",
        }
    }

    /// Whether it is searched in the folder `KUBEBUILDER_ASSETS`, and never in PATH, which may have
    /// any version of it.
    pub(super) fn is_of_control_plane(self) -> bool {
        match self {
            Self::Etcd
            | Self::Etcd34
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kwok
            | Self::Kubectl
            | Self::Helm
            | Self::Jaeger
            | Self::Prometheus
            | Self::Promtool
            | Self::CoreDns
            | Self::KubeProxy
            | Self::E2eTest => true,
            Self::Ip
            | Self::Ipvsadm
            | Self::Ipset
            | Self::Iptables
            | Self::Ip6tables
            | Self::IptablesRestore
            | Self::Ip6tablesRestore
            | Self::IptablesSave
            | Self::Ip6tablesSave
            | Self::IptablesLegacySave
            | Self::Ip6tablesLegacySave
            | Self::Nft
            | Self::Conntrack
            | Self::Modprobe
            | Self::Strace
            | Self::Controller
            | Self::ProxyPlan
            | Self::Scenarios
            | Self::Agent
            | Self::Qemu
            | Self::Setpriv
            | Self::Prlimit
            | Self::Tar
            | Self::Cargo => false,
        }
    }
}
