//! The DaemonSet that is made of a template. Pure.
//!
//! There is one, *stable*, for all nodes of the template but those that bear the label [`TRACK`] with the
//! value [`NEXT`]: a second one can take those over without a change, and so a restart, of the first.

use serde_json::{Value, json};

use super::template::Template;
use crate::trust::Named;

/// Whose it is.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Who we are to the API server.
pub(super) const MANAGER: &str = "portolan-controller";
/// On DaemonSets and their pods: which one it is. On Nodes: which one they belong to.
const TRACK: &str = "proxy.portolan.dev/track";
const STABLE: &str = "stable";
const NEXT: &str = "next";

/// The ConfigMap that a template was read from. What is made of it goes when it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Where it is.
    pub map: Named,
    /// Its UID.
    pub uid: String,
}

/// The DaemonSet of all nodes that no other one has.
#[must_use]
pub fn stable(template: &Template, owner: &Owner) -> Value {
    let mut set = Value::Object(template.object.clone());
    let metadata = &mut set["metadata"];
    metadata["namespace"] = owner.map.namespace.as_str().into();
    put(
        &mut metadata["labels"],
        [(MANAGED_BY, MANAGER), (TRACK, STABLE)],
    );
    metadata["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.map.name, "uid": owner.uid,
    }]);
    let spec = &mut set["spec"];
    put(&mut spec["selector"]["matchLabels"], [(TRACK, STABLE)]);
    let pod = &mut spec["template"];
    put(&mut pod["metadata"]["labels"], [(TRACK, STABLE)]);
    let pod = &mut pod["spec"];
    // Written even if empty, so that nobody keeps agents away from nodes by adding to it.
    object(&mut pod["nodeSelector"]);
    leave_next(&mut pod["affinity"]);
    set
}

/// Adds to each choice of nodes that it is not for those of the other DaemonSet.
fn leave_next(affinity: &mut Value) {
    let of_nodes = &mut object(affinity)["nodeAffinity"];
    let required = &mut object(of_nodes)["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = &mut object(required)["nodeSelectorTerms"];
    if terms.as_array().is_none_or(Vec::is_empty) {
        *terms = json!([{}]);
    }
    // Any one term is enough for a node, so it has to be in all of them.
    for term in terms.as_array_mut().into_iter().flatten() {
        let expression = json!({"key": TRACK, "operator": "NotIn", "values": [NEXT]});
        match &mut object(term)["matchExpressions"] {
            Value::Array(expressions) => expressions.push(expression),
            other => *other = json!([expression]),
        }
    }
}

fn put<const N: usize>(labels: &mut Value, new: [(&str, &str); N]) {
    let labels = object(labels);
    for (key, value) in new {
        labels[key] = value.into();
    }
}

/// What is there, if it is an object; else an empty one in its place.
fn object(value: &mut Value) -> &mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::template::tests::TEXT;
    use super::*;

    fn owner() -> Owner {
        Owner {
            map: "proxy/portolan-agents".parse().unwrap(),
            uid: "u-1".into(),
        }
    }

    #[test]
    fn the_stable_one_is_marked_and_leaves_nodes_of_the_next_one_alone() {
        let set = stable(&Template::read(TEXT).unwrap(), &owner());
        let labels = json!({"app": "agent", TRACK: STABLE});
        let not_next = json!({"key": TRACK, "operator": "NotIn", "values": [NEXT]});
        let wanted = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {
                "name": "portolan-agent", "namespace": "proxy",
                "labels": {"app": "agent", TRACK: STABLE, MANAGED_BY: MANAGER},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "portolan-agents", "uid": "u-1",
                }],
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "containers": [{"name": "agent", "image": "r/portolan-agent:1"}],
                        "nodeSelector": {},
                        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [not_next]}],
                        }}},
                    },
                },
            },
        });
        assert_eq!(set, wanted);
    }

    #[test]
    fn terms_of_the_template_stay_and_each_is_narrowed() {
        let affinity = "
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: pool, operator: In, values: [edge]}]
            - matchFields: [{key: metadata.name, operator: In, values: [node-a]}]
";
        let template = Template::read(&(TEXT.to_owned() + affinity)).unwrap();
        let set = stable(&template, &owner());
        let terms = &set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        let not_next = json!({"key": TRACK, "operator": "NotIn", "values": [NEXT]});
        assert_eq!(terms[0]["matchExpressions"][0]["key"], "pool");
        assert_eq!(terms[0]["matchExpressions"][1], not_next);
        assert_eq!(terms[1]["matchExpressions"], json!([not_next]));
        assert_eq!(terms[1]["matchFields"][0]["key"], "metadata.name");
    }
}
