//! Every message about bad input, with its exit code: 0 for warnings only, 1 if something was left out and the rest
//! is planned, 2 if there is no plan.

use insta::assert_snapshot;

use crate::program::{NODE, SERVICE, folder, planned, transcript};

/// A Service in a second document, with this `spec`.
fn service(spec: &str) -> String {
    format!(
        "{NODE}---\n{SERVICE}---\napiVersion: v1\nkind: Service\nmetadata: {{name: broken, namespace: shop}}\nspec:\n{spec}"
    )
}

#[test]
fn broken_yaml_costs_only_its_document() {
    let text = format!("{NODE}---\nkind: Service\nmetadata: {{name: [}}\n---\n{SERVICE}");
    assert_snapshot!(planned(&[("cluster.yaml", &text)]));
}

#[test]
fn an_unknown_kind_is_left_out() {
    let text = format!(
        "{NODE}---\n{SERVICE}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: cart, namespace: shop}}\n---\n\
         apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {{name: cart-1, namespace: shop}}\n---\n\
         metadata: {{name: nothing}}\n---\njust words\n"
    );
    assert_snapshot!(planned(&[("cluster.yaml", &text)]));
}

#[test]
fn an_unknown_field_of_kubernetes_is_a_warning() {
    let spec = "  clusterIP: 10.96.0.11\n  quantumEntanglement: true\n  ports: [{name: http, port: 80, prot: TCP}]\n";
    assert_snapshot!(planned(&[("cluster.yaml", &service(spec))]));
}

#[test]
fn an_unknown_field_of_ours_is_an_error() {
    let text = format!(
        "{NODE}---\n{SERVICE}---\napiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec: {{settings: {{schedular: lc}}}}\n"
    );
    assert_snapshot!(planned(&[("cluster.yaml", &text)]));
}

#[test]
fn a_setting_out_of_range_is_an_error() {
    let text = format!(
        "{NODE}---\n{SERVICE}---\napiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec: {{settings: {{masquerade: {{bit: 32}}}}}}\n"
    );
    assert_snapshot!(planned(&[("cluster.yaml", &text)]));
}

#[test]
fn an_invalid_address_is_an_error() {
    let text = service("  clusterIP: 10.96.0.300\n  ports: [{name: http, port: 80}]\n");
    let slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}\n\
                 addressType: IPv4\nports: [{name: http, port: 8080}]\n\
                 endpoints: [{addresses: [10.244.1.2]}, {addresses: [web-7]}]\n";
    assert_snapshot!(planned(&[("cluster.yaml", &(text + slice))]));
}

#[test]
fn port_0_is_an_error() {
    assert_snapshot!(planned(&[(
        "cluster.yaml",
        &service("  clusterIP: 10.96.0.11\n  ports: [{name: http, port: 0}]\n")
    )]));
}

#[test]
fn port_0_beside_a_real_port_is_left_out_alone() {
    let spec =
        "  clusterIP: 10.96.0.11\n  ports: [{name: http, port: 0}, {name: https, port: 443}]\n";
    assert_snapshot!(planned(&[("cluster.yaml", &service(spec))]));
}

#[test]
fn a_port_out_of_range_is_an_error() {
    assert_snapshot!(planned(&[(
        "cluster.yaml",
        &service("  clusterIP: 10.96.0.11\n  ports: [{port: 70000}]\n")
    )]));
}

#[test]
fn a_value_of_the_wrong_type_is_an_error() {
    assert_snapshot!(planned(&[(
        "cluster.yaml",
        &service("  clusterIP: 10.96.0.11\n  ports: [{port: http}]\n")
    )]));
}

#[test]
fn a_service_without_ports_is_an_error() {
    assert_snapshot!(planned(&[(
        "cluster.yaml",
        &service("  clusterIP: 10.96.0.11\n")
    )]));
}

#[test]
fn an_object_that_is_there_twice_is_a_warning() {
    let later = SERVICE.replace("10.96.0.10", "10.96.0.12");
    let files = [("1.yaml", NODE), ("2.yaml", SERVICE), ("3.yaml", &later)];
    assert_snapshot!(planned(&files));
}

#[test]
fn items_of_a_list_are_named_by_number() {
    let text = format!(
        "{NODE}---\napiVersion: v1\nkind: ServiceList\nitems:\n\
         - {{metadata: {{name: good, namespace: shop}}, spec: {{clusterIP: 10.96.0.2, ports: [{{port: 80}}]}}}}\n\
         - {{metadata: {{name: bad, namespace: shop}}, spec: {{clusterIP: 10.96.0.3, ports: [{{port: 80, protocol: QUIC}}]}}}}\n"
    );
    assert_snapshot!(planned(&[("list.yml", &text)]));
}

#[test]
fn a_file_that_is_no_text_is_an_error() {
    let folder = folder(&[("cluster.yaml", &format!("{NODE}---\n{SERVICE}"))]);
    std::fs::write(
        folder.path().join("manifests/noise.yaml"),
        b"a: 1\nb: \xff\xfe\n",
    )
    .unwrap();
    let arguments = ["plan", "--manifests", "manifests", "--node", "node-a"];
    assert_snapshot!(transcript(folder.path(), &arguments, ""));
}

#[test]
fn an_unknown_node_has_no_plan() {
    let folder = folder(&[("cluster.yaml", &format!("{NODE}---\n{SERVICE}"))]);
    let arguments = ["plan", "--manifests", "manifests", "--node", "node-x"];
    assert_snapshot!(transcript(folder.path(), &arguments, ""));
}

#[test]
fn nothing_but_broken_documents_is_no_plan() {
    assert_snapshot!(planned(&[("cluster.yaml", "a: [\n---\nb: }\n")]));
}

#[test]
fn empty_input_is_no_plan() {
    let folder = folder(&[]);
    let run = |manifests| {
        transcript(
            folder.path(),
            &["plan", "--manifests", manifests, "--node", "node-a"],
            "",
        )
    };
    assert_snapshot!("empty_standard_input", run("-"));
    assert_snapshot!("empty_folder", run("manifests"));
    assert_snapshot!("no_such_folder", run("nowhere"));
}

#[test]
fn an_empty_file_is_no_plan() {
    assert_snapshot!(planned(&[("cluster.yaml", "# nothing yet\n")]));
}

#[test]
fn a_file_where_a_folder_is_expected_is_read_as_a_file() {
    let folder = folder(&[("notes.txt", "not a manifest\n")]);
    let arguments = [
        "plan",
        "--manifests",
        "manifests/notes.txt",
        "--node",
        "node-a",
    ];
    assert_snapshot!("text_file", transcript(folder.path(), &arguments, ""));
    let arguments = [
        "plan",
        "--manifests",
        "manifests/notes.txt/more",
        "--node",
        "node-a",
    ];
    assert_snapshot!("file_as_folder", transcript(folder.path(), &arguments, ""));
}

#[test]
fn wrong_usage_is_reported() {
    let folder = folder(&[]);
    let run = |arguments: &[&str]| transcript(folder.path(), arguments, "");
    assert_snapshot!("no_node", run(&["plan", "--manifests", "manifests"]));
    assert_snapshot!(
        "unknown_format",
        run(&["plan", "--manifests", "m", "--node", "n", "-o", "xml"])
    );
    let listen = |listen| {
        [
            "run",
            "--manifests",
            "manifests",
            "--listen",
            listen,
            "--insecure",
        ]
    };
    assert_snapshot!("exposed", run(&listen("0.0.0.0:7000")));
    assert_snapshot!("no_address", run(&listen("localhost")));
    assert_snapshot!(
        "no_tls",
        run(&["run", "--manifests", "manifests", "--listen", "127.0.0.1:0"])
    );
    assert_snapshot!(
        "run_from_standard_input",
        run(&[
            "run",
            "--manifests",
            "-",
            "--listen",
            "127.0.0.1:0",
            "--insecure"
        ])
    );
}
