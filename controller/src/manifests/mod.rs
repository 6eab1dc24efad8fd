//! Manifests: YAML or JSON with Nodes, Services, EndpointSlices, ServiceCIDRs and the ProxyConfig; several documents
//! per file, `kind: List` too. Other kinds are counted.
//!
//! Touches: reads files and standard input. A broken document or object does not affect the others; everything
//! skipped becomes a [`Problem`] with its place.

pub(crate) mod documents;
mod kinds;
mod problem;
mod source;
mod tree;
mod typed;

pub use problem::{Place, Problem, Severity, shown};
pub use source::{Source, SourceError, list_folder, read_file};

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_planner::model::{Object, ObjectId};

use crate::watch::Everything;

/// The contents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileContents {
    /// The objects in order.
    pub objects: Vec<(Place, Arc<Object>)>,
    /// Objects that exist but are unreadable.
    pub left_out: Vec<ObjectId>,
    /// Everything that was skipped.
    pub problems: Vec<Problem>,
    /// Number of objects of each kind that plans do not use.
    pub others: BTreeMap<String, usize>,
}

impl FileContents {
    /// Parses the text of a file; `name` is shown in messages.
    pub fn read(name: &str, text: &str) -> Self {
        let mut contents = Self::default();
        for document in documents::split(text) {
            let place = Place::document(name, document.number, document.line);
            match documents::tree(&document) {
                Ok(tree) => kinds::read_document(tree, &place, &mut contents),
                Err(error) => contents.problems.push(error.into_problem(place)),
            }
        }
        contents
    }

    /// Whether part of the file is unreadable, so that objects may be missing.
    pub fn is_incomplete(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == Severity::Unreadable)
    }
}

/// All objects, without duplicates: the later one wins, as with `kubectl apply`.
#[derive(Debug, Clone, Default)]
pub struct Manifests {
    /// The objects.
    pub objects: BTreeMap<ObjectId, Arc<Object>>,
    /// Everything that was skipped, in the order of the files.
    pub problems: Vec<Problem>,
    /// Number of objects of each kind that plans do not use.
    pub others: BTreeMap<String, usize>,
    /// The source of the objects.
    pub origin: Origin,
    places: BTreeMap<ObjectId, Place>,
}

/// The source of objects, as shown in messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// Files.
    #[default]
    Manifests,
    /// An API server.
    Cluster,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Manifests => "the manifests",
            Self::Cluster => "the cluster",
        })
    }
}

impl Manifests {
    /// All objects of an API server.
    pub fn of_cluster(everything: Everything) -> Self {
        let mut of_cluster = Self {
            origin: Origin::Cluster,
            ..Self::default()
        };
        let place = Place::file("the API server");
        for (id, problem) in everything.unreadable {
            let problem = Problem::of(Severity::LeftOut, place.clone(), &id, problem);
            of_cluster.problems.push(problem);
        }
        let found = everything.objects.into_iter().map(Arc::new);
        of_cluster
            .objects
            .extend(found.map(|found| (found.id(), found)));
        of_cluster
    }

    /// Adds the contents of one more file.
    pub fn add(&mut self, contents: FileContents) {
        self.problems.extend(contents.problems);
        for (kind, count) in contents.others {
            *self.others.entry(kind).or_default() += count;
        }
        for (place, found) in contents.objects {
            let id = found.id();
            if let Some(earlier) = self.places.insert(id.clone(), place.clone()) {
                let message = format!("also in {earlier}; the later one is used; remove one");
                self.problems
                    .push(Problem::of(Severity::Warning, place, &id, message));
            }
            self.objects.insert(id, found);
        }
    }

    /// The number of problems of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    }
}
