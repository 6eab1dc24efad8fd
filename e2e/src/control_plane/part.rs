//! The three programs of a control plane and how each is started.

use std::path::Path;

use super::{ForNodes, Options, Ports, Store};
use crate::program::Program;

/// A program of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// Kubernetes' controllers.
    ControllerManager,
}

/// How soon a change of a Pod shows in an EndpointSlice; Kubernetes' default is at once too, but
/// with a batch it does not write one slice many times while many Pods start.
const SLICE_BATCH: &str = "--endpointslice-updates-batch-period=100ms";

impl Part {
    /// All, in the order in which they need each other.
    pub const ALL: [Self; 3] = [Self::Etcd, Self::ApiServer, Self::ControllerManager];

    /// Its name, which its log file bears too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
        }
    }

    pub(super) fn program(self, store: Store) -> Program {
        match (self, store) {
            (Self::Etcd, Store::Current) => Program::Etcd,
            (Self::Etcd, Store::Debian34) => Program::Etcd34,
            (Self::ApiServer, _) => Program::KubeApiserver,
            (Self::ControllerManager, _) => Program::KubeControllerManager,
        }
    }

    /// Its arguments; files are those that the control plane writes into `folder`.
    pub(super) fn arguments(self, folder: &Path, ports: Ports, options: &Options) -> Vec<String> {
        let file = |name: &str| folder.join(name).display().to_string();
        match self {
            Self::Etcd => etcd(&file("etcd"), ports.etcd),
            Self::ApiServer => api_server(&file, ports, options),
            Self::ControllerManager => controller_manager(&file, ports, options),
        }
    }
}

fn etcd(data: &str, port: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{port}");
    vec![
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        // A store of one member has no peers; any port does.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--logger=zap".to_owned(),
        "--log-level=warn".to_owned(),
        // The machine may lose power, our data need not survive that.
        "--unsafe-no-fsync".to_owned(),
        "--quota-backend-bytes=8589934592".to_owned(),
    ]
}

fn api_server(file: &dyn Fn(&str) -> String, ports: Ports, options: &Options) -> Vec<String> {
    let mut arguments = match &options.nodes {
        None => for_this_machine(),
        Some(nodes) => for_nodes(file, nodes),
    };
    arguments.extend([
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        format!("--secure-port={}", ports.api_server),
        format!("--service-cluster-ip-range={}", options.service_ranges),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--requestheader-allowed-names=aggregator".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]);
    let files = [
        ("client-ca-file", "ca.crt"),
        ("tls-cert-file", "server.crt"),
        ("tls-private-key-file", "server.key"),
        ("service-account-key-file", "accounts.pub"),
        ("service-account-signing-key-file", "accounts.key"),
        ("requestheader-client-ca-file", "ca.crt"),
        ("proxy-client-cert-file", "aggregator.crt"),
        ("proxy-client-key-file", "aggregator.key"),
    ];
    arguments.extend(files.map(|(flag, name)| format!("--{flag}={}", file(name))));
    arguments.extend(options.api_server.iter().cloned());
    arguments
}

fn for_this_machine() -> Vec<String> {
    let arguments = [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--authorization-mode=RBAC",
        // Pods of a lab need no service accounts, and no controller would create them.
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    ];
    arguments.map(str::to_owned).into()
}

fn for_nodes(file: &dyn Fn(&str) -> String, nodes: &ForNodes) -> Vec<String> {
    vec![
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={}", nodes.address),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--token-auth-file={}", file(super::TOKENS_FILE)),
        // The certificates of kubelets are self-signed and not verified.
        format!(
            "--kubelet-client-certificate={}",
            file("kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
    ]
}

fn controller_manager(
    file: &dyn Fn(&str) -> String,
    ports: Ports,
    options: &Options,
) -> Vec<String> {
    let mut arguments = vec![
        format!("--secure-port={}", ports.controller_manager),
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--controllers={}", options.controllers.join(",")),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        "--concurrent-service-endpoint-syncs=20".to_owned(),
        SLICE_BATCH.to_owned(),
        "--profiling=false".to_owned(),
    ];
    let files = [
        ("kubeconfig", super::ADMIN_FILE),
        ("client-ca-file", "ca.crt"),
        ("tls-cert-file", "server.crt"),
        ("tls-private-key-file", "server.key"),
        ("service-account-private-key-file", "accounts.key"),
        ("root-ca-file", "ca.crt"),
    ];
    arguments.extend(files.map(|(flag, name)| format!("--{flag}={}", file(name))));
    arguments.extend(options.controller_manager.iter().cloned());
    arguments
}
