//! The task that collects the notes of changes, updates metrics and exports traces.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use super::export::Exporter;
use super::track::{Ended, Track, Waiting};
use super::{Endpoint, Figures, Note, NoteReceiver, Sampling, new_span, spans};
use crate::agent_registry::AgentRegistry;
use crate::store::Store;

/// Interval between two checks for changes that have ended. It does not affect the measured time, which ends with an
/// answer.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Collects notes until all their senders are dropped.
#[derive(Debug)]
pub struct Task {
    notes: NoteReceiver,
    registry: Arc<AgentRegistry>,
    store: Arc<Store>,
    figures: Arc<Figures>,
    sampling: Sampling,
    exporter: Option<Exporter>,
    track: Track,
}

impl Task {
    /// A task that updates metrics only. The versions in force come from the registry, the set of nodes from the store.
    pub fn new(
        notes: NoteReceiver,
        registry: Arc<AgentRegistry>,
        store: Arc<Store>,
        figures: Arc<Figures>,
    ) -> Self {
        Self {
            notes,
            registry,
            store,
            figures,
            sampling: Sampling::new(0.0, Duration::MAX),
            exporter: None,
            track: Track::only_counting(),
        }
    }

    /// Also exports traces of changes, with `own_name` as the name of this controller. Requires a Tokio runtime.
    #[must_use]
    pub fn tracing(self, to: Endpoint, sampling: Sampling, own_name: &str) -> Self {
        let exporter = Exporter::start(to, own_name, self.figures.clone());
        Self {
            sampling,
            exporter: Some(exporter),
            track: Track::default(),
            ..self
        }
    }

    /// Runs until all senders of notes are dropped.
    pub async fn run(mut self) {
        let mut look = interval(CHECK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                note = self.notes.0.recv() => match note {
                    Some(note) => self.take(note),
                    None => return,
                },
                _ = look.tick(), if !self.track.is_empty() => self.look(),
            }
        }
    }

    fn take(&mut self, note: Note) {
        if let Note::Delivered(delivered) = &note
            && delivered.answered.is_sound()
            && let Some(oldest) = delivered.causes.causes.first()
        {
            let took = delivered.at.duration_since(oldest.began());
            self.figures.node(took.unwrap_or_default());
        }
        if !self.track.take(note, SystemTime::now()) {
            self.figures.left_out();
        }
    }

    fn look(&mut self) {
        let is_node = |node: &str| self.store.has_node(node);
        let waiting = |version| {
            let (count, first) = self.registry.waited_for(version, is_node);
            Waiting { count, first }
        };
        let lowest = self.registry.lowest_in_force(is_node);
        let complete = self.track.complete(SystemTime::now(), lowest, waiting);
        // The nodes that have the version in force sent their notes before the registry changed.
        while let Ok(note) = self.notes.0.try_recv() {
            self.take(note);
        }
        for ended in self.track.end(complete) {
            self.end(&ended);
        }
    }

    fn end(&mut self, ended: &Ended) {
        let kept = self.exporter.is_some() && self.sampling.keeps(ended.into(), Instant::now());
        self.figures.ended(ended, kept);
        let Some(exporter) = &self.exporter else {
            return;
        };
        self.figures.trace(kept);
        if kept {
            exporter.take(spans::draw(ended, &mut new_span));
        }
    }
}

impl From<&Ended> for super::sampling::End {
    fn from(ended: &Ended) -> Self {
        Self {
            trace: ended.cause.trace.trace,
            took: ended.took(),
            failed: ended.has_failed(),
        }
    }
}
