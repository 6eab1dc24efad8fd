//! `portolan-controller plan`: the same small cluster in all three formats, from all three sources.

use insta::assert_snapshot;
use portolan_plan::PlanDocument;

use crate::program::{folder, transcript};

const CLUSTER: &str = include_str!("../example/cluster.yaml");

fn plan(format: &str) -> String {
    let folder = folder(&[("cluster.yaml", CLUSTER)]);
    let arguments = [
        "plan",
        "--manifests",
        "manifests",
        "--node",
        "node-a",
        "-o",
        format,
    ];
    transcript(folder.path(), &arguments, "")
}

fn output(transcript: &str) -> &str {
    transcript.split_once("--- output\n").unwrap().1
}

#[test]
fn a_plan_as_a_table() {
    assert_snapshot!(plan("table"));
}

#[test]
fn a_plan_as_json() {
    assert_snapshot!(plan("json"));
}

#[test]
fn a_plan_as_yaml() {
    assert_snapshot!(plan("yaml"));
}

#[test]
fn yaml_and_json_say_the_same_and_are_read_back() {
    let json: PlanDocument = serde_json::from_str(output(&plan("json"))).unwrap();
    let yaml: PlanDocument = serde_saphyr::from_str(output(&plan("yaml"))).unwrap();
    assert_eq!(json, yaml);
    let hash = json.hash.clone();
    assert_eq!(hash.len(), 32);
    let plan = json.into_plan().unwrap();
    assert_eq!(plan.heads().count(), 5);
}

#[test]
fn a_node_to_be_deleted_is_marked() {
    let folder = folder(&[("cluster.yaml", CLUSTER)]);
    let arguments = ["plan", "--manifests", "manifests", "--node", "node-b"];
    let text = transcript(folder.path(), &arguments, "");
    let first = output(&text).lines().next().unwrap();
    assert_eq!(
        first,
        "Node node-b without a zone, about to be deleted: load balancers should not send traffic to it"
    );
}

#[test]
fn folder_file_and_standard_input_give_the_same_plan() {
    let folder = folder(&[("cluster.yaml", CLUSTER)]);
    let from = |manifests| {
        let arguments = [
            "plan",
            "--manifests",
            manifests,
            "--node",
            "node-a",
            "-o",
            "json",
        ];
        transcript(folder.path(), &arguments, CLUSTER)
    };
    let expected = from("manifests");
    assert_eq!(output(&from("manifests/cluster.yaml")), output(&expected));
    assert_eq!(output(&from("-")), output(&expected));
}

/// `kubectl get … -o json` prints one List.
#[test]
fn json_and_lists_are_read_like_yaml_documents() {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(CLUSTER).unwrap();
    let list =
        serde_json::json!({"apiVersion": "v1", "kind": "List", "items": flattened(documents)});
    let folder = folder(&[(
        "cluster.json",
        &serde_json::to_string_pretty(&list).unwrap(),
    )]);
    let arguments = [
        "plan",
        "--manifests",
        "manifests",
        "--node",
        "node-a",
        "-o",
        "json",
    ];
    let text = transcript(folder.path(), &arguments, "");
    assert_eq!(output(&text), output(&plan("json")));
}

fn flattened(documents: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    let items = documents
        .into_iter()
        .flat_map(|document| match document.get("items") {
            Some(serde_json::Value::Array(items)) => items.clone(),
            _ => vec![document],
        });
    items.collect()
}
