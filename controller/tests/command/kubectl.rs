//! Output of kubectl, and folders, can be planned from without changes (S-241).

use std::fs;

use insta::assert_snapshot;

use crate::program::{NODE, SERVICE, folder, planned, transcript};

/// One of the objects, as an item of a list.
fn item(object: &str) -> String {
    let lines: Vec<_> = object.lines().collect();
    format!("- {}\n", lines.join("\n  "))
}

#[test]
fn lists_in_lists_and_other_kinds_are_read_in_one_go() {
    let deployment =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: cart, namespace: shop}\n";
    let knative = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: cart, namespace: shop}\n";
    let endpoints = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: cart, namespace: shop}\n";
    let inner = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}",
        item(SERVICE),
        item(deployment)
    );
    let typed = "apiVersion: apps/v1\nkind: DeploymentList\nitems: [{metadata: {name: web}}]\n";
    let all = [NODE, &inner, knative, endpoints, typed].map(item).concat();
    let text = format!("apiVersion: v1\nkind: List\nitems:\n{all}");
    assert_snapshot!(planned(&[("all.yaml", &text)]));
}

#[test]
fn a_bad_item_of_a_list_in_a_list_is_named_by_both_numbers() {
    let bad = "apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: shop}\nspec: {clusterIP: 10.96.0.3}\n";
    let inner = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}",
        item(SERVICE),
        item(bad)
    );
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}",
        item(NODE),
        item(&inner)
    );
    assert_snapshot!(planned(&[("all.yaml", &text)]));
}

#[test]
fn folders_in_folders_are_read_and_several_sources_too() {
    let folder = folder(&[("node.yaml", NODE)]);
    let manifests = folder.path().join("manifests");
    for (path, text) in [
        ("apps/web/cart.yaml", SERVICE),
        (".git/old.yaml", "not: read\n"),
    ] {
        let path = manifests.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    // A link to a parent folder does not loop.
    std::os::unix::fs::symlink(&manifests, manifests.join("apps/again")).unwrap();
    let more = SERVICE
        .replace("cart", "web")
        .replace("10.96.0.10", "10.96.0.11");
    let arguments = [
        "plan",
        "--manifests",
        "manifests",
        "--manifests",
        "-",
        "--node",
        "node-a",
    ];
    assert_snapshot!(transcript(folder.path(), &arguments, &more));
}

#[test]
fn standard_input_is_read_once() {
    let arguments = [
        "plan",
        "--manifests",
        "-",
        "--manifests",
        "-",
        "--node",
        "node-a",
    ];
    assert_snapshot!(transcript(folder(&[]).path(), &arguments, NODE));
}

#[test]
fn services_that_no_api_server_has_seen_are_named() {
    let written = "apiVersion: v1\nkind: Service\nmetadata: {name: NAME, namespace: shop}\nspec: {ports: [{port: 80}]}\n";
    let services = ["web", "cart"].map(|name| written.replace("NAME", name));
    let headless = SERVICE.replace("10.96.0.10", "None").replace("cart", "db");
    let text = [NODE, &services[0], &services[1], &headless].join("---\n");
    assert_snapshot!(planned(&[("guestbook.yaml", &text)]));
}

/// kubectl writes YAML 1.1, in which U+2028 ends a line and only some spellings are booleans.
#[test]
fn yaml_as_kubectl_writes_it_is_read() {
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  annotations:\n    description: |-\n      first line\n\u{2028}        second line\n\
                   \x20 labels: {canary: oN, spot: nO, commit: 12e4567}\n  name: pasted\n  namespace: shop\n\
                   spec:\n  clusterIP: 10.96.0.6\n  ports:\n  - port: 80\n";
    let text = format!("{NODE}---\n{service}");
    let seen = planned(&[("pasted.yaml", &text)]);
    assert!(seen.starts_with("exit code 0\n--- messages\n\n"), "{seen}");
    assert!(seen.contains("10.96.0.6:80"), "{seen}");
    // Line numbers are those of the file.
    let broken = text.replace("  name: pasted", "  name: [pasted");
    let seen = planned(&[("pasted.yaml", &broken)]);
    let line = 1 + broken
        .lines()
        .position(|line| line == "  namespace: shop")
        .unwrap();
    assert!(seen.contains(&format!("line {line}: ")), "{line}: {seen}");
}

#[test]
fn a_duplicate_key_drops_its_object_in_any_format() {
    let text = SERVICE.replace("  ports:", "  clusterIP: 10.96.0.11\n  ports:");
    assert_snapshot!(
        "a_key_twice_in_yaml",
        planned(&[("cluster.yaml", &format!("{NODE}---\n{text}"))])
    );
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}",
        item(NODE),
        item(&text)
    );
    assert_snapshot!("a_key_twice_in_a_list", planned(&[("cluster.yaml", &list)]));
    let json = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.10", "clusterIP": "10.96.0.11", "ports": [{"port": 80}]}}"#;
    let files = [("1.yaml", NODE), ("2.json", json)];
    assert_snapshot!("a_key_twice_in_json", planned(&files));
}

#[test]
fn no_name_reaches_a_terminal_as_it_is() {
    let names = [
        "\\e[31mred\\e[0m",
        "x\\ny: error: forged line",
        "\\u202Egnp",
        "a\\u2028b",
        "\\x9b31m",
    ];
    let mut text = NODE.to_owned();
    for name in names {
        for kind in [
            "v1\nkind: Service",
            "v1\nkind: Node",
            "discovery.k8s.io/v1\nkind: EndpointSlice",
        ] {
            text += &format!(
                "---\napiVersion: {kind}\nmetadata: {{name: \"{name}\", namespace: \"{name}\"}}\n"
            );
        }
        text += &format!("---\napiVersion: v1\nkind: \"{name}\"\nmetadata: {{name: a}}\n");
        text += &format!("---\napiVersion: \"{name}\"\nkind: Node\nmetadata: {{name: a}}\n");
        text += &format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{\"{name}\": 1, ports: [{{port: \"{name}\"}}]}}\n"
        );
    }
    let seen = planned(&[("names.yaml", &text)]);
    let is_odd = |letter: &char| {
        letter.is_control() && *letter != '\n' || "\u{202e}\u{2028}".contains(*letter)
    };
    assert_eq!(seen.chars().find(is_odd), None, "{seen}");
    let forged = seen.lines().find(|line| line.starts_with("y: error"));
    assert_eq!(forged, None, "{seen}");
    assert!(seen.contains(r"\u{1b}[31mred"), "{seen}");
}
