//! What an agent tells of drift. Its words are untrusted: bounded, and never more than text.

use std::sync::Arc;

use portolan_proto::wire;

use crate::board::Drift;

/// So many kinds are remembered; agents know about half of it.
const MOST_KINDS: usize = 16;
/// So long may the name of one be.
const LONGEST_KIND: usize = 32;

/// What a status says of drift.
pub(super) fn told(status: &wire::Status) -> Vec<Drift> {
    let kind = |text: &str| -> Arc<str> {
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(LONGEST_KIND).collect::<String>().into()
    };
    let told = status.drift.iter().take(MOST_KINDS);
    told.map(|drift| Drift {
        kind: kind(&drift.kind),
        found: drift.found,
        repaired: drift.repaired,
        standing: drift.standing,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_an_agent_says_is_bounded() {
        let drift = wire::Drift {
            kind: format!("a\nb\u{1b}{}", "x".repeat(1000)),
            found: u64::MAX,
            repaired: 1,
            standing: u64::MAX,
        };
        let status = wire::Status {
            drift: vec![drift; 1000],
            ..wire::Status::default()
        };
        let told = told(&status);
        assert_eq!(told.len(), MOST_KINDS);
        assert_eq!(&*told[0].kind, format!("ab{}", "x".repeat(30)));
        assert_eq!((told[0].found, told[0].repaired), (u64::MAX, 1));
    }
}
