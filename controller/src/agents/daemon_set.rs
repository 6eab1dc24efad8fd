//! The DaemonSets that are made of a template. Pure.

use serde_json::{Value, json};

use super::template::Template;
use super::track::{Held, Takes, Track};
use crate::trust::Named;

/// Whose it is.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Who we are to the API server.
pub(super) const MANAGER: &str = "portolan-controller";
/// On pods, and on the pod template of DaemonSets: the hash of the template that they are made of.
pub(super) const AGENTS: &str = "proxy.portolan.dev/agents";

/// The ConfigMap that a template was read from. What is made of it goes when it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// Where it is.
    pub(super) map: Named,
    /// Its UID.
    pub(super) uid: String,
}

/// The name of one of the two.
#[must_use]
pub(super) fn set_name(template: &Template, track: Track) -> String {
    format!("{}-{}", template.name, track.name())
}

/// One of the two, with the nodes that it takes.
#[must_use]
pub(super) fn daemon_set(template: &Template, owner: &Owner, track: Track, takes: Takes) -> Value {
    let mut set = Value::Object(template.object.clone());
    let metadata = &mut set["metadata"];
    metadata["namespace"] = owner.map.namespace.as_str().into();
    metadata["name"] = set_name(template, track).into();
    let marked = (Track::LABEL, track.name());
    put(&mut metadata["labels"], [(MANAGED_BY, MANAGER), marked]);
    metadata["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.map.name, "uid": owner.uid,
    }]);
    let spec = &mut set["spec"];
    put(&mut spec["selector"]["matchLabels"], [marked]);
    let pod = &mut spec["template"];
    put(&mut pod["metadata"]["labels"], [marked]);
    put(
        &mut pod["metadata"]["annotations"],
        [(AGENTS, &template.hash())],
    );
    let pod = &mut pod["spec"];
    match takes {
        Takes::Labelled => put(&mut pod["nodeSelector"], [marked]),
        Takes::Rest => {
            // Written even if empty, so that nobody keeps agents away from nodes by adding to it.
            object(&mut pod["nodeSelector"]);
            leave(&mut pod["affinity"], track.other());
        }
    }
    set
}

/// What a DaemonSet is made of and which nodes it takes, if one of these made it.
#[must_use]
pub(super) fn held(set: &Value) -> Option<Held> {
    let pod = &set["spec"]["template"];
    let agents = pod["metadata"]["annotations"][AGENTS].as_str()?;
    let selector = &pod["spec"]["nodeSelector"][Track::LABEL];
    Some(Held {
        agents: agents.into(),
        takes: if selector.is_string() {
            Takes::Labelled
        } else {
            Takes::Rest
        },
    })
}

/// Adds to each choice of nodes that it is not for those of the other DaemonSet.
fn leave(affinity: &mut Value, other: Track) {
    let of_nodes = &mut object(affinity)["nodeAffinity"];
    let required = &mut object(of_nodes)["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = &mut object(required)["nodeSelectorTerms"];
    if terms.as_array().is_none_or(Vec::is_empty) {
        *terms = json!([{}]);
    }
    // Any one term is enough for a node, so it has to be in all of them.
    for term in terms.as_array_mut().into_iter().flatten() {
        let expression =
            json!({"key": Track::LABEL, "operator": "NotIn", "values": [other.name()]});
        match &mut object(term)["matchExpressions"] {
            Value::Array(expressions) => expressions.push(expression),
            empty => *empty = json!([expression]),
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

    fn template() -> Template {
        Template::read(TEXT).unwrap()
    }

    #[test]
    fn the_one_that_takes_the_rest_leaves_the_nodes_of_the_other_alone() {
        let set = daemon_set(&template(), &owner(), Track::Blue, Takes::Rest);
        let labels = json!({"app": "agent", Track::LABEL: "blue"});
        let not_green = json!({"key": Track::LABEL, "operator": "NotIn", "values": ["green"]});
        let wanted = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {
                "name": "portolan-agent-blue", "namespace": "proxy",
                "labels": {"app": "agent", Track::LABEL: "blue", MANAGED_BY: MANAGER},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "portolan-agents", "uid": "u-1",
                }],
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {AGENTS: template().hash()}},
                    "spec": {
                        "containers": [{"name": "agent", "image": "r/portolan-agent:1"}],
                        "nodeSelector": {},
                        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [not_green]}],
                        }}},
                    },
                },
            },
        });
        assert_eq!(set, wanted);
    }

    #[test]
    fn the_other_takes_labelled_nodes_only_and_both_can_be_told_apart() {
        let set = daemon_set(&template(), &owner(), Track::Green, Takes::Labelled);
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], json!({Track::LABEL: "green"}));
        assert!(pod["affinity"].is_null());
        for takes in [Takes::Labelled, Takes::Rest] {
            let set = daemon_set(&template(), &owner(), Track::Green, takes);
            let agents = template().hash().into();
            assert_eq!(held(&set), Some(Held { agents, takes }));
        }
        assert_eq!(held(&json!({"kind": "DaemonSet"})), None);
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
        let set = daemon_set(&template, &owner(), Track::Green, Takes::Rest);
        let terms = &set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        let not_blue = json!({"key": Track::LABEL, "operator": "NotIn", "values": ["blue"]});
        assert_eq!(terms[0]["matchExpressions"][0]["key"], "pool");
        assert_eq!(terms[0]["matchExpressions"][1], not_blue);
        assert_eq!(terms[1]["matchExpressions"], json!([not_blue]));
        assert_eq!(terms[1]["matchFields"][0]["key"], "metadata.name");
    }
}
