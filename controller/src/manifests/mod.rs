//! Manifests: ordinary YAML or JSON with Nodes, Services, EndpointSlices, ServiceCIDRs and the
//! ProxyConfig; many documents a file, `kind: List` too. Other kinds are counted.
//!
//! Touches: files and standard input, for reading. One broken document or object never stands in
//! the way of the others; everything that is passed over becomes a [`Problem`] that says where.

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

pub use crate::object::{Found, ObjectId};
use crate::watch::Everything;

/// What one file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileContents {
    /// The objects in their order.
    pub objects: Vec<(Place, Arc<Found>)>,
    /// Objects that are there and could not be read.
    pub left_out: Vec<ObjectId>,
    /// Everything that was passed over.
    pub problems: Vec<Problem>,
    /// How many objects of kinds there are that plans have no use for.
    pub others: BTreeMap<String, usize>,
}

impl FileContents {
    /// Reads the text of a file; `name` is how people call it.
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

    /// Whether some of the file could not be read at all, so that nobody knows what is missing.
    pub fn is_incomplete(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == Severity::Unreadable)
    }
}

/// Everything found, each object once: the later one wins, as with `kubectl apply`.
#[derive(Debug, Clone, Default)]
pub struct Manifests {
    /// The objects.
    pub objects: BTreeMap<ObjectId, Arc<Found>>,
    /// Everything that was passed over, in the order of the files.
    pub problems: Vec<Problem>,
    /// How many objects of kinds there are that plans have no use for.
    pub others: BTreeMap<String, usize>,
    /// Where they are from.
    pub origin: Origin,
    places: BTreeMap<ObjectId, Place>,
}

/// Where objects are from, in words to people.
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
    /// Everything that an API server holds.
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
        let found = everything.found.into_iter().map(Arc::new);
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
                let message =
                    format!("there already in {earlier}; the later one is used, take one out");
                self.problems
                    .push(Problem::of(Severity::Warning, place, &id, message));
            }
            self.objects.insert(id, found);
        }
    }

    /// How many problems are of this kind.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    }
}
