//! Dispatches objects by kind.

use std::sync::Arc;

use portolan_planner::Reason;
use portolan_planner::model::{Kind, Object, ObjectId};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::FileContents;
use super::problem::{Place, Problem, Severity};
use super::tree::{Step, Tree, twice as twice_message};
use super::typed::{Typed, typed};
use crate::from_kube::{self, FieldError};
use crate::watch::Collection;

/// Reads a document: an object, or a list of objects and lists.
pub(super) fn read_document(tree: Tree, place: &Place, contents: &mut FileContents) {
    let mut documents = Documents {
        twice: &tree.twice,
        contents,
    };
    documents.read(tree.value, None, place);
}

struct Documents<'a> {
    twice: &'a [Vec<Step>],
    contents: &'a mut FileContents,
}

impl Documents<'_> {
    /// Reads an object or a list. Items of a typed list may omit their type.
    fn read(&mut self, mut value: Value, item_type: Option<(&str, &str)>, place: &Place) {
        let Some(fields) = value.as_object_mut() else {
            let message = "not an object; expected apiVersion, kind and metadata";
            return self.report(Severity::LeftOut, place, message);
        };
        if let Some((version, kind)) = item_type {
            fields.entry("apiVersion").or_insert_with(|| version.into());
            fields.entry("kind").or_insert_with(|| kind.into());
        }
        let text = |field: &str| {
            fields
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (version, kind) = (text("apiVersion"), text("kind"));
        match kind.strip_suffix("List") {
            Some("") if version == "v1" => self.list(value, None, place),
            Some(name) if fields.contains_key("items") => {
                self.list(value, Some((&version, name)), place);
            }
            _ => self.object(value, &version, &kind, place),
        }
    }

    fn list(&mut self, mut list: Value, item_type: Option<(&str, &str)>, place: &Place) {
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => {
                for (index, item) in items.into_iter().enumerate() {
                    self.read(item, item_type, &place.item(index + 1));
                }
            }
            None | Some(Value::Null) => {}
            Some(_) => {
                let message = "items: not a list; check how the file was written";
                self.report(Severity::Unreadable, place, message);
            }
        }
    }

    fn object(&mut self, value: Value, version: &str, kind: &str, place: &Place) {
        let text = |path: &str| {
            value
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let known = Kind::ALL
            .into_iter()
            .find(|known| known.name() == kind && known.api_version() == version);
        let Some(known) = known else {
            if is_other(version, kind) {
                *self.contents.others.entry(kind.to_owned()).or_default() += 1;
                return;
            }
            let problem = Problem {
                severity: Severity::LeftOut,
                place: place.clone(),
                object: shown(kind, namespace, name),
                message: unknown_kind(version, kind),
            };
            self.contents.problems.push(problem);
            return;
        };
        let id = object_id(known, namespace, name);
        let own = place.way();
        let twice = self.twice.iter().find_map(|way| way.strip_prefix(&own[..]));
        let mut reader = Reader {
            place,
            id: &id,
            contents: self.contents,
        };
        match twice {
            Some(way) => reader.leave_out(twice_message(way)),
            None => reader.read(known, value),
        }
    }

    fn report(&mut self, severity: Severity, place: &Place, message: &str) {
        let problem = Problem::at(severity, place.clone(), message);
        self.contents.problems.push(problem);
    }
}

/// Whether the kind is not used for plans. Another version of a used kind does not count.
fn is_other(version: &str, kind: &str) -> bool {
    let group = |version: &str| {
        version
            .split_once('/')
            .map_or("", |(group, _)| group)
            .to_owned()
    };
    let is_known =
        |known: Kind| known.name() == kind && group(&known.api_version()) == group(version);
    !kind.is_empty() && !version.is_empty() && !Kind::ALL.into_iter().any(is_known)
}

/// The name of an object before its kind is known.
fn shown(kind: &str, namespace: &str, name: &str) -> Option<String> {
    let short = |text: &str| text.chars().take(80).collect::<String>();
    match (kind.is_empty() || name.is_empty(), namespace) {
        (true, _) => None,
        (false, "") => Some(format!("{} {}", short(kind), short(name))),
        (false, _) => Some(format!(
            "{} {}/{}",
            short(kind),
            short(namespace),
            short(name)
        )),
    }
}

fn object_id(kind: Kind, namespace: &str, name: &str) -> ObjectId {
    let namespace = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    kind.id(namespace, name)
}

fn unknown_kind(version: &str, kind: &str) -> String {
    if kind.is_empty() || version.is_empty() {
        let field = if kind.is_empty() {
            "kind"
        } else {
            "apiVersion"
        };
        return format!("{field}: missing; every Kubernetes object has apiVersion and kind");
    }
    let same = Kind::ALL.into_iter().find(|known| known.name() == kind);
    let expected = same.map_or("another".into(), Collection::api_version);
    format!("apiVersion: {version:?} of {kind} is not read; write {expected}")
}

/// How to report fields that a type does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// As warnings: a newer Kubernetes may have added them.
    Warn,
    /// As errors: the type is Portolan's own, so they are mistakes.
    Refuse,
}

/// Maximum number of unknown fields reported for one object.
const MAX_UNKNOWN_FIELDS: usize = 8;

struct Reader<'a> {
    place: &'a Place,
    id: &'a ObjectId,
    contents: &'a mut FileContents,
}

impl Reader<'_> {
    fn read(&mut self, kind: Kind, value: Value) {
        use Unknown::{Refuse, Warn};
        match kind {
            Kind::Node => self.object(value, Warn, from_kube::node),
            Kind::Service => self.object(value, Warn, from_kube::service),
            Kind::EndpointSlice => self.object(value, Warn, from_kube::endpoint_slice),
            Kind::ServiceCidr => self.object(value, Warn, from_kube::service_cidr),
            // Without a controller there is no rollout: a change applies to all nodes at once.
            Kind::ProxyConfig => self.object(value, Refuse, from_kube::proxy_config_at_once),
        }
    }

    fn object<K: DeserializeOwned, M: Into<Object>>(
        &mut self,
        value: Value,
        policy: Unknown,
        read: impl Fn(&K) -> Result<M, FieldError>,
    ) {
        let Typed {
            object,
            mut unknown,
        } = match typed::<K>(value) {
            Ok(typed) => typed,
            Err(problem) => return self.leave_out(problem),
        };
        // Already checked before the type was known.
        unknown.retain(|field| field != "apiVersion" && field != "kind");
        unknown.truncate(MAX_UNKNOWN_FIELDS);
        if policy == Unknown::Refuse && !unknown.is_empty() {
            let fields = unknown.join(", ");
            return self.leave_out(format!(
                "{fields}: no such field; check the spelling and the version"
            ));
        }
        let mut found: Object = match read(&object) {
            Ok(object) => object.into(),
            Err(error) => return self.leave_out(error.to_string()),
        };
        let problem = "not known to this version: a newer Kubernetes may have added it, or it is misspelled; \
            it has no effect";
        let unknown = unknown.into_iter();
        let unknown = unknown.map(|field| Reason::Ignored {
            field,
            problem: problem.into(),
        });
        if let Some(ignored) = found.ignored_mut() {
            ignored.extend(unknown);
            for reason in ignored.iter() {
                self.warn(reason.to_string());
            }
        } else {
            unknown.for_each(|reason| self.warn(reason.to_string()));
        }
        self.contents
            .objects
            .push((self.place.clone(), Arc::new(found)));
    }

    fn warn(&mut self, message: String) {
        let problem = Problem::of(Severity::Warning, self.place.clone(), self.id, message);
        self.contents.problems.push(problem);
    }

    fn leave_out(&mut self, message: String) {
        let problem = Problem::of(Severity::LeftOut, self.place.clone(), self.id, message);
        self.contents.problems.push(problem);
        self.contents.left_out.push(self.id.clone());
    }
}
