//! Files of a node for one run: its name and network, and the settings of its kubelet and container runtime. Texts
//! only.

use anyhow::Result;
use serde_json::{Value, json};

use super::network::{CONTROL_PLANE, Pods, addresses, pods};
use super::proxy::Proxy;

/// The cluster's DNS.
pub(super) const DNS: &str = "10.96.0.10";
/// Ranges of all pods, one a family.
pub(super) const PODS: &str = "10.244.0.0/16,fd00:10:244::/56";

/// flannel's user.
pub(super) const FLANNEL: &str = "lab:flannel";

/// Values common to all nodes.
pub(super) struct Common<'a> {
    pub(super) nodes: u8,
    pub(super) proxy: Proxy,
    pub(super) network: Pods,
    /// The API server, as nodes reach it.
    pub(super) server: String,
    /// The certificate of its authority.
    pub(super) authority: String,
    /// The image that holds a pod's namespaces.
    pub(super) pause: &'a str,
}

/// The name of a node.
pub(super) fn name(number: u8) -> String {
    format!("node{number}")
}

/// The token of a node, kube-proxy or flannel.
pub(super) fn token(user: &str) -> String {
    format!("token-of-{user}")
}

/// Users with tokens, as the API server reads them.
pub(super) fn tokens(nodes: u8) -> String {
    let kubelet = |number| {
        let name = name(number);
        format!(
            "{},system:node:{name},{name},\"system:nodes\"\n",
            token(&name)
        )
    };
    let kube_proxy = format!(
        "{},system:kube-proxy,kube-proxy,\"\"\n",
        token("kube-proxy")
    );
    let flannel = format!("{},{FLANNEL},flannel,\"\"\n", token("flannel"));
    let others = [kube_proxy, flannel];
    (1..=nodes).map(kubelet).chain(others).collect()
}

/// The files of a node by their path below the root.
pub(super) fn of(number: u8, common: &Common<'_>) -> Result<Vec<(&'static str, String)>> {
    let name = name(number);
    let [v4, v6] = addresses(number);
    let mut files = vec![
        ("etc/lab/node", format!("NODE={name}\nNODE_IPS={v4},{v6}\n")),
        ("etc/lab/network", network(number, common)),
        ("etc/resolv.conf", format!("nameserver {CONTROL_PLANE}\n")),
        ("etc/kubernetes/ca.crt", common.authority.clone()),
        ("etc/kubernetes/kubelet.conf", kubeconfig(&name, common)),
        ("etc/kubernetes/kubelet.yaml", kubelet().to_string()),
        ("etc/containerd/config.toml", runtime(common.pause)),
        (
            "etc/lab/network-plugins",
            network_plugins(number).to_string(),
        ),
    ];
    if common.network == Pods::Flannel {
        files.push(("etc/kubernetes/flannel.conf", kubeconfig("flannel", common)));
        files.push(("etc/lab/flannel", flannel().to_string()));
    }
    if let Some(mode) = common.proxy.mode() {
        files.push((
            "etc/kubernetes/kube-proxy.conf",
            kubeconfig("kube-proxy", common),
        ));
        files.push(("etc/lab/kube-proxy", kube_proxy(&name, mode)));
    }
    Ok(files)
}

/// Commands for a shell: addresses of the node, and routes to the pods of others.
fn network(number: u8, common: &Common<'_>) -> String {
    let [v4, v6] = addresses(number);
    let mut text = format!(
        "ip address add {v4}/24 dev eth0\nip address add {v6}/64 dev eth0 nodad\nip link set eth0 up\n\
         ip route add default via {CONTROL_PLANE}\nip route add default via fd00:50::1\n"
    );
    let others = match common.network {
        Pods::Bridge => common.nodes,
        Pods::Flannel => 0,
    };
    for other in (1..=others).filter(|other| *other != number) {
        let [v4, v6] = addresses(other);
        let [pods_v4, pods_v6] = pods(other);
        text += &format!("ip route add {pods_v4} via {v4}\nip route add {pods_v6} via {v6}\n");
    }
    text
}

fn kubeconfig(user: &str, common: &Common<'_>) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {
            "server": common.server, "certificate-authority": "/etc/kubernetes/ca.crt",
        }}],
        "users": [{"name": user, "user": {"token": token(user)}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
    })
    .to_string()
}

fn kubelet() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        // An emulated machine is slow enough without quotas.
        "cpuCFSQuota": false,
        "failSwapOn": false,
        "resolvConf": "/etc/resolv.conf",
        "runtimeRequestTimeout": "4m",
        "nodeLeaseDurationSeconds": 120,
        // There is nowhere to fetch an image from again.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "evictionHard": {"memory.available": "50Mi"},
    })
}

fn runtime(pause: &str) -> String {
    format!(
        "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{pause}'\n"
    )
}

fn network_plugins(number: u8) -> Value {
    let [v4, v6] = pods(number);
    json!({
        "cniVersion": "1.0.0", "name": "lab",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "mtu": 1500,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": v4}], [{"subnet": v6}]],
                    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// flannel's network, as its documentation writes it.
fn flannel() -> Value {
    let [v4, v6] = PODS.split_once(',').map_or([PODS; 2], <[&str; 2]>::from);
    json!({
        "EnableIPv4": true, "Network": v4, "EnableIPv6": true, "IPv6Network": v6,
        "Backend": {"Type": "vxlan"},
    })
}

/// Arguments, as a shell splits them.
fn kube_proxy(node: &str, mode: &str) -> String {
    [
        "--kubeconfig=/etc/kubernetes/kube-proxy.conf",
        &format!("--hostname-override={node}"),
        &format!("--proxy-mode={mode}"),
        &format!("--cluster-cidr={PODS}"),
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]
    .join(" ")
}
