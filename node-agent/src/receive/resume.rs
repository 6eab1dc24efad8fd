//! State that is kept from one stream to the next.

use portolan_proto::wire;

/// Maximum number of kinds in a watermark. A controller watches five; the limit protects memory.
const MAX_KINDS: usize = 16;

/// The state to resume with on the next stream.
#[derive(Debug, Default)]
pub(super) struct ResumeState {
    /// The versions of the objects that the plan was made from. The next controller, if its own are older, lists
    /// again before it sends anything.
    pub(super) watermark: wire::Watermark,
}

impl ResumeState {
    /// Updates the watermark with its changed part.
    pub(super) fn note(&mut self, update: wire::Watermark) {
        let kinds = &mut self.watermark.kinds;
        for of_kind in update.kinds.into_iter().take(MAX_KINDS) {
            if let Some(known) = kinds.iter_mut().find(|known| known.kind == of_kind.kind) {
                *known = of_kind;
            } else if kinds.len() < MAX_KINDS {
                kinds.push(of_kind);
            }
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
    fn an_update_of_a_kind_replaces_only_that_kind() {
        let mut state = ResumeState::default();
        state.note(of("services", 7));
        state.note(of("nodes", 8));
        state.note(of("services", 9));
        let newest: Vec<_> = state.watermark.kinds.iter().map(|k| k.newest).collect();
        assert_eq!(newest, [9, 8]);
    }

    #[test]
    fn the_number_of_kinds_is_limited() {
        let mut state = ResumeState::default();
        for number in 0..1000 {
            state.note(of(&number.to_string(), number));
        }
        assert_eq!(state.watermark.kinds.len(), MAX_KINDS);
    }
}
