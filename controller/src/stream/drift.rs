//! Drift reported by an agent. The report is untrusted: bounded, and never more than text.

use std::sync::Arc;

use portolan_proto::wire;

use crate::agent_registry::Drift;

/// Maximum number of kinds of drift kept for a node. Agents have about half as many.
const MAX_KINDS: usize = 16;
/// Maximum length of the name of a kind, in characters.
const MAX_KIND_CHARS: usize = 32;

/// The drift in a status.
pub(super) fn read(status: &wire::Status) -> Vec<Drift> {
    let kind = |text: &str| -> Arc<str> {
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(MAX_KIND_CHARS).collect::<String>().into()
    };
    let drifts = status.drift.iter().take(MAX_KINDS);
    drifts
        .map(|drift| Drift {
            kind: kind(&drift.kind),
            found: drift.found,
            repaired: drift.repaired,
            unrepaired: drift.unrepaired,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_agents_are_bounded() {
        let drift = wire::Drift {
            kind: format!("a\nb\u{1b}{}", "x".repeat(1000)),
            found: u64::MAX,
            repaired: 1,
            unrepaired: u64::MAX,
        };
        let status = wire::Status {
            drift: vec![drift; 1000],
            ..wire::Status::default()
        };
        let drifts = read(&status);
        assert_eq!(drifts.len(), MAX_KINDS);
        assert_eq!(&*drifts[0].kind, format!("ab{}", "x".repeat(30)));
        assert_eq!((drifts[0].found, drifts[0].repaired), (u64::MAX, 1));
    }
}
