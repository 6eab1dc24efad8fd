//! What is remembered of controllers from one stream to the next.

use portolan_proto::wire;

/// A controller watches five kinds; more than this is no watermark but an attack on memory.
const MOST_KINDS: usize = 16;

/// What controllers told.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// How far they had read the objects that the plan was made from. Whoever serves next and has read
    /// less reads again before it sends anything.
    pub(super) watermark: wire::Watermark,
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
}
