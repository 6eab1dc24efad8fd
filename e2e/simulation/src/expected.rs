//! The plans that a new controller makes from the objects in the store.

use std::sync::Arc;
use std::time::Instant;

use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{ClusterSource, Engine};
use portolan_controller::manifests::FileContents;
use portolan_controller::store::Store;
use portolan_controller::watch::{Answer, Mark, ObjectUpdate};
use portolan_plan::PlanHash;
use portolan_planner::model::{Kind, Object};
use tokio::sync::mpsc;

use crate::api::ApiServer;
use crate::controller::hash;
use crate::objects::NODES;

/// The hash of the plan of each node. The objects are read as manifests, not by a watch.
///
/// # Errors
/// An object cannot be read.
pub(crate) fn hashes(api: &ApiServer) -> Result<Vec<PlanHash>, String> {
    let store = Arc::new(Store::default());
    let engine = Engine::new(Shared::default(), store.clone(), None);
    let mut source = ClusterSource::new(engine, mpsc::channel(1).1);
    let mut answers = Vec::new();
    for kind in Kind::ALL {
        let objects = api.texts(kind);
        let objects = objects.iter().map(|text| object(text));
        let update = ObjectUpdate::All {
            objects: objects.collect::<Result<_, _>>()?,
            unreadable: Vec::new(),
        };
        answers.push(Answer {
            kind,
            update: Some(update),
            mark: Mark::default(),
            arrival: None,
        });
    }
    source.take_in(answers, Instant::now());
    let hashes = (0..NODES).map(|of| hash(&store, of));
    let hashes: Option<Vec<PlanHash>> = hashes.collect();
    hashes.ok_or_else(|| "a node has no plan".into())
}

fn object(text: &str) -> Result<Object, String> {
    let contents = FileContents::read("the store", text);
    match contents.objects.first() {
        Some((_, object)) => Ok(Object::clone(object)),
        None => Err(format!("cannot read {text}: {:?}", contents.problems)),
    }
}
