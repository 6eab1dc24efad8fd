//! What is remembered of controllers from one stream to the next.

use portolan_proto::{OLDEST_WIRE_VERSION, WIRE_VERSION, wire};
use tonic::{Code, Status};

/// A controller watches five kinds; more than this is no watermark but an attack on memory.
const MOST_KINDS: usize = 16;

/// What controllers told.
#[derive(Debug)]
pub(super) struct Heard {
    /// The version of the wire to begin the next stream with.
    pub(super) wire_version: u32,
    /// How far they had read the objects that the plan was made from. Whoever serves next and has read
    /// less reads again before it sends anything.
    pub(super) watermark: wire::Watermark,
}

impl Default for Heard {
    fn default() -> Self {
        Self {
            wire_version: WIRE_VERSION,
            watermark: wire::Watermark::default(),
        }
    }
}

impl Heard {
    /// Takes the part of a watermark that is new.
    pub(super) fn note(&mut self, news: wire::Watermark) {
        let kinds = &mut self.watermark.kinds;
        for of_kind in news.kinds.into_iter().take(MOST_KINDS) {
            if let Some(known) = kinds.iter_mut().find(|known| known.kind == of_kind.kind) {
                *known = of_kind;
            } else if kinds.len() < MOST_KINDS {
                kinds.push(of_kind);
            }
        }
    }

    /// A controller of the release before refuses the newest version, and one of the release after
    /// the oldest: the next stream tries the other one.
    pub(super) fn refused(&mut self, status: &Status) {
        if status.code() == Code::FailedPrecondition {
            self.wire_version = if self.wire_version == WIRE_VERSION {
                OLDEST_WIRE_VERSION
            } else {
                WIRE_VERSION
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, newest: u64) -> wire::Watermark {
        let kinds = vec![wire::KindWatermark {
            kind: kind.into(),
            newest,
            sum: newest,
        }];
        wire::Watermark { kinds }
    }

    #[test]
    fn news_of_a_kind_replace_what_was_known_of_it_alone() {
        let mut heard = Heard::default();
        heard.note(of("services", 7));
        heard.note(of("nodes", 8));
        heard.note(of("services", 9));
        let newest: Vec<_> = heard.watermark.kinds.iter().map(|k| k.newest).collect();
        assert_eq!(newest, [9, 8]);
    }

    #[test]
    fn a_controller_that_names_ever_new_kinds_is_not_listened_to_for_ever() {
        let mut heard = Heard::default();
        for number in 0..1000 {
            heard.note(of(&number.to_string(), number));
        }
        assert_eq!(heard.watermark.kinds.len(), MOST_KINDS);
    }

    #[test]
    fn a_refused_version_is_tried_in_the_other_one_next() {
        let mut heard = Heard::default();
        heard.refused(&Status::unavailable("ending"));
        assert_eq!(heard.wire_version, WIRE_VERSION);
        heard.refused(&Status::failed_precondition("version"));
        assert_eq!(heard.wire_version, OLDEST_WIRE_VERSION);
        heard.refused(&Status::failed_precondition("version"));
        assert_eq!(heard.wire_version, WIRE_VERSION);
    }
}
