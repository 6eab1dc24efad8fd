//! Cluster DNS: CoreDNS as pods behind the Service `kube-dns` (`e2e/real/coredns.yaml`), and a nameserver outside of
//! the cluster, which they and the nodes ask for other names.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cluster::Cluster;
use crate::program::{Program, Running};
use crate::stage::Stage;

/// The file with the objects.
const OBJECTS: &str = "real/coredns.yaml";
/// The pods start, and reach the API server by its Service; measured: nothing yet.
const SERVED: Duration = Duration::from_secs(240);

/// All names outside of the cluster. Kubernetes' tests ask for the name of one public address; other names do not
/// exist. No address here is reachable.
const OUTSIDE: &str = "\
$ORIGIN .
$TTL 60
@ IN SOA outside. lab. 1 3600 3600 3600 60
@ IN NS outside.
outside. IN A 192.168.50.1
dns.google. IN A 8.8.8.8
8.8.8.8.in-addr.arpa. IN PTR dns.google.
";

/// Starts the nameserver outside of the cluster, with its files in this folder.
pub(super) fn serve_outside(folder: &Path) -> Result<Running> {
    let (zone, config) = (folder.join("outside.zone"), folder.join("Corefile"));
    let text = corefile(&zone);
    for (path, text) in [(&zone, OUTSIDE), (&config, text.as_str())] {
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let log = folder.join("outside-dns.log");
    let log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    Program::CoreDns.start(&["-conf", &config.display().to_string()], &log)
}

fn corefile(zone: &Path) -> String {
    let zone = zone.display();
    format!(".:53 {{\n    errors\n    file {zone} .\n}}\n")
}

/// Starts the cluster's DNS, and waits until it serves. Its pods reach the API server only by a Service, so a service
/// proxy comes first: else they would retry at growing intervals.
pub(super) fn start(stage: &Stage, cluster: &Cluster) -> Result<()> {
    cluster.plane.apply(&stage.files.text(OBJECTS)?)?;
    let limit = format!("--timeout={}s", stage.waits.limit(SERVED).as_secs());
    let words = [
        "rollout",
        "status",
        "deployment/coredns",
        "-n",
        "kube-system",
        &limit,
    ];
    let served = cluster.plane.kubectl(&words).map(drop);
    served.with_context(|| {
        let words = [
            "describe",
            "pods",
            "-n",
            "kube-system",
            "-l",
            "k8s-app=kube-dns",
        ];
        let pods = cluster.plane.kubectl(&words).unwrap_or_default();
        format!("the pods of the cluster's DNS are not ready:\n{pods}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::network::CONTROL_PLANE;
    use super::super::node_files::DNS;
    use super::*;

    const TEXT: &str = include_str!("../../real/coredns.yaml");

    fn objects() -> Vec<Value> {
        let parsed = TEXT.split("\n---\n").map(serde_saphyr::from_str);
        parsed.collect::<Result<_, _>>().unwrap()
    }

    fn object(kind: &str) -> Value {
        let mut found = objects().into_iter().filter(|one| one["kind"] == kind);
        found.next().unwrap()
    }

    #[test]
    fn the_service_has_the_address_that_kubelets_give_to_pods_and_selects_the_pods() {
        let (service, pods) = (object("Service"), object("Deployment"));
        assert_eq!(service["spec"]["clusterIP"], DNS);
        let labels = &pods["spec"]["template"]["metadata"]["labels"];
        assert_eq!(service["spec"]["selector"], *labels);
        assert_eq!(pods["spec"]["selector"]["matchLabels"], *labels);
        assert_eq!(labels["k8s-app"], "kube-dns");
    }

    #[test]
    fn tests_of_kubernetes_find_the_pods_and_their_configuration() {
        let (config, pods) = (object("ConfigMap"), object("Deployment"));
        assert_eq!(config["metadata"]["name"], "coredns");
        assert_eq!(pods["metadata"]["name"], "coredns");
        let spec = &pods["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["configMap"]["name"], "coredns");
        // The nameserver of the nodes, and not the pods themselves.
        assert_eq!(spec["dnsPolicy"], "Default");
    }

    #[test]
    fn outside_names_are_served_where_nodes_ask() {
        assert!(OUTSIDE.contains(&format!("outside. IN A {CONTROL_PLANE}\n")));
        let text = corefile(Path::new("/zone"));
        assert_eq!(text, ".:53 {\n    errors\n    file /zone .\n}\n");
    }
}
