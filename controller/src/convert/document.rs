//! Finds the configuration in a file: by itself, in a ConfigMap, or in a list.

use serde_json::{Map, Value};

use super::ConvertError;
use crate::manifests::Place;
use crate::manifests::documents;

/// The supported kind and version.
const KIND: &str = "KubeProxyConfiguration";
const VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";

/// The configuration of a file.
pub(super) struct Located {
    /// File, document, object and key.
    pub(super) place: String,
    pub(super) fields: Map<String, Value>,
}

/// The contents of a file.
#[derive(Default)]
struct Contents {
    configurations: Vec<Located>,
    /// Unreadable parts.
    broken: Vec<ConvertError>,
    /// All other objects, like `Service shop/cart`.
    others: Vec<String>,
}

/// The only configuration in a file.
pub(super) fn locate(name: &str, text: &str) -> Result<Located, ConvertError> {
    let mut contents = Contents::default();
    for document in documents::split(text) {
        let place = Place::document(name, document.number, document.line);
        match documents::tree(&document) {
            Ok(tree) => match tree.twice() {
                None => contents.add(place.to_string(), tree.value),
                Some(problem) => {
                    let place = place.to_string();
                    return Err(ConvertError { place, problem });
                }
            },
            Err(error) => {
                let problem = error.into_problem(place);
                return Err(ConvertError {
                    place: problem.place.to_string(),
                    problem: problem.message,
                });
            }
        }
    }
    if let Some(broken) = contents.broken.into_iter().next() {
        return Err(broken);
    }
    let error = |problem| ConvertError {
        place: name.into(),
        problem,
    };
    let mut found = contents.configurations;
    match (found.pop(), found.len()) {
        (Some(located), 0) => Ok(located),
        (Some(last), more) => {
            let places = found.iter().chain([&last]).map(|located| &*located.place);
            let places: Vec<_> = places.collect();
            Err(error(format!(
                "it contains {} configurations ({}); give one of them",
                more + 1,
                places.join("; ")
            )))
        }
        (None, _) => {
            let others = match contents.others.len() {
                0 => "nothing".to_owned(),
                1..=5 => contents.others.join(", "),
                more => format!("{}, … ({more} objects)", contents.others[..5].join(", ")),
            };
            Err(error(format!(
                "it contains no {KIND}, but {others}; give the output of `kubectl -n kube-system get \
                 configmap kube-proxy -o yaml`, or the file of kube-proxy's --config. If kube-proxy has flags \
                 and no file (k3s, RKE2, kops, GKE), `kube-proxy FLAGS --write-config-to FILE` creates one"
            )))
        }
    }
}

fn wrong_version(version: &str) -> String {
    match version {
        "" => format!("apiVersion: missing; write `apiVersion: {VERSION}` above the fields"),
        version => format!(
            "apiVersion: {version:?} is not {VERSION}, the only version so far; check the spelling, or \
             convert the file with the kube-proxy that reads it: `kube-proxy --config FILE --write-config-to \
             FILE2`"
        ),
    }
}

impl Contents {
    fn add(&mut self, place: String, value: Value) {
        let Value::Object(mut fields) = value else {
            self.others.push("a value that is not an object".into());
            return;
        };
        let text = |fields: &Map<String, Value>, name: &str| {
            let text = fields.get(name).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let kind = text(&fields, "kind");
        match (kind.as_str(), fields.get_mut("items")) {
            (KIND, _) => match text(&fields, "apiVersion") {
                version if version == VERSION => {
                    fields.retain(|name, _| name != "kind" && name != "apiVersion");
                    self.configurations.push(Located { place, fields });
                }
                version => {
                    let problem = wrong_version(&version);
                    self.broken.push(ConvertError { place, problem });
                }
            },
            ("List" | "ConfigMapList", Some(Value::Array(items))) => {
                for (index, mut item) in std::mem::take(items).into_iter().enumerate() {
                    if let (Value::Object(item), "ConfigMapList") = (&mut item, &*kind) {
                        item.entry("kind").or_insert_with(|| "ConfigMap".into());
                    }
                    self.add(format!("{place}: item {}", index + 1), item);
                }
            }
            ("ConfigMap", _) => self.add_config_map(&place, &fields),
            _ => self.others.push(described(&kind, &fields)),
        }
    }

    /// The key is `config.conf` with kubeadm and differs elsewhere, so the content decides.
    fn add_config_map(&mut self, place: &str, fields: &Map<String, Value>) {
        let object = described("ConfigMap", fields);
        let data = fields.get("data").and_then(Value::as_object);
        let mut found = false;
        for (key, value) in data.into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            if !text.contains(KIND) {
                continue;
            }
            let place = format!("{place}: {object}, {key}");
            for document in documents::split(text) {
                match documents::tree(&document) {
                    Ok(tree) if tree.value.get("kind").is_some_and(|kind| kind == KIND) => {
                        found = true;
                        match tree.twice() {
                            None => self.add(place.clone(), tree.value),
                            Some(problem) => {
                                let place = place.clone();
                                self.broken.push(ConvertError { place, problem });
                            }
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        found = true;
                        let problem = error.into_problem(Place::file(&place));
                        self.broken.push(ConvertError {
                            place: place.clone(),
                            problem: format!("{} (of the lines of that key)", problem.message),
                        });
                    }
                }
            }
        }
        if !found {
            self.others.push(object);
        }
    }
}

/// An object's kind and name, as shown in messages. Names may be anything.
fn described(kind: &str, fields: &Map<String, Value>) -> String {
    let metadata = |name: &str| {
        let value = fields
            .get("metadata")
            .and_then(|metadata| metadata.get(name));
        value.map(super::fields::shown)
    };
    let kind = match kind {
        "" => "an object without a kind".to_owned(),
        kind => super::fields::shown(&kind.into()),
    };
    match (metadata("namespace"), metadata("name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind,
    }
}
