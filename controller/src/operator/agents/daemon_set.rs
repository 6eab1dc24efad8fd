//! The DaemonSets that are derived from a template. Pure.

use kube::api::PatchParams;
use serde_json::{Value, json};

use super::template::Template;
use super::track::{Held, Takes, Track};
use crate::auth::Named;

/// The label key of the managing controller.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The field manager, and the value of the label.
pub(super) const MANAGER: &str = "portolan-controller";
/// The label key, on pods and on the pod template of DaemonSets, of the hash of the template that they are derived
/// from.
pub(super) const AGENTS: &str = "proxy.portolan.dev/agents";

/// The ConfigMap that a template was read from. It owns the DaemonSets, which are garbage collected with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// Its namespace and name.
    pub(super) map: Named,
    /// Its UID.
    pub(super) uid: String,
}

/// Parameters of a server-side apply. It forces ownership of our fields, and rejects unknown ones.
pub(super) fn apply_params() -> PatchParams {
    PatchParams::apply(MANAGER).force().validation_strict()
}

/// The name of the DaemonSet of a track.
#[must_use]
pub(super) fn set_name(template: &Template, track: Track) -> String {
    format!("{}-{}", template.name, track.name())
}

/// The DaemonSet of a track, with its node selection.
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
            // Written even if empty, so that adding to it is reverted and cannot keep agents away from nodes.
            object(&mut pod["nodeSelector"]);
            leave(&mut pod["affinity"], track.other());
        }
    }
    set
}

/// The template and node selection of a DaemonSet, if it was created by this controller.
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

/// Excludes the nodes of the other DaemonSet from each node selector term.
fn leave(affinity: &mut Value, other: Track) {
    let of_nodes = &mut object(affinity)["nodeAffinity"];
    let required = &mut object(of_nodes)["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = &mut object(required)["nodeSelectorTerms"];
    if terms.as_array().is_none_or(Vec::is_empty) {
        *terms = json!([{}]);
    }
    // A node has to match only one of the terms, so the exclusion has to be in each.
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

/// The value if it is an object; otherwise it is replaced by an empty object.
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
    fn the_daemon_set_for_the_rest_excludes_the_nodes_of_the_other() {
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
    fn the_second_daemon_set_selects_labelled_nodes_only_and_has_its_own_name() {
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
