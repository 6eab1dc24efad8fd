//! Drift reported by an agent. The report is untrusted: bounded, and never more than text.

use std::sync::Arc;

use portolan_proto::wire;

use crate::board::Drift;

/// Maximum number of kinds; agents have about half as many.
const MOST_KINDS: usize = 16;
/// Maximum length of the name of a kind, characters.
const LONGEST_KIND: usize = 32;

/// The drift in a status.
pub(super) fn read(status: &wire::Status) -> Vec<Drift> {
    let kind = |text: &str| -> Arc<str> {
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(LONGEST_KIND).collect::<String>().into()
    };
    let drifts = status.drift.iter().take(MOST_KINDS);
    drifts
        .map(|drift| Drift {
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
        let drifts = read(&status);
        assert_eq!(drifts.len(), MOST_KINDS);
        assert_eq!(&*drifts[0].kind, format!("ab{}", "x".repeat(30)));
        assert_eq!((drifts[0].found, drifts[0].repaired), (u64::MAX, 1));
    }
}
