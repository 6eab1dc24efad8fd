//! What an agent reports about Services. The report is untrusted: bounded, and never more than text.

use portolan_plan::{Failing, ServiceId};
use portolan_proto::wire;

use crate::troubled::{MAX_SHOWN, ServiceTrouble, TroubleReason, Troubled};

/// Maximum length of a message, in characters: that of a status.
const MAX_MESSAGE_CHARS: usize = portolan_crds::limit::MESSAGE_CHARS;
/// Maximum length of a namespace or a name, in characters: that of Kubernetes.
const MAX_NAME_CHARS: usize = portolan_crds::limit::LABEL_CHARS;

/// The Services in a report.
pub(super) fn read(troubles: &wire::Troubles) -> Troubled {
    let shown = troubles.shown.iter().take(MAX_SHOWN);
    Troubled {
        failing: Failing::from_hashes(troubles.failing.clone()),
        failing_services: troubles.failing_services,
        shown: shown.filter_map(trouble).collect(),
    }
}

/// `None` if it does not name a Service.
fn trouble(trouble: &wire::ServiceTrouble) -> Option<ServiceTrouble> {
    let (namespace, name) = trouble.service.split_once('/')?;
    let (namespace, name) = (
        words(namespace, MAX_NAME_CHARS),
        words(name, MAX_NAME_CHARS),
    );
    if namespace.is_empty() || name.is_empty() {
        return None;
    }
    Some(ServiceTrouble {
        service: ServiceId::new(namespace, name),
        reason: TroubleReason::from_peer(&trouble.reason),
        message: words(&trouble.message, MAX_MESSAGE_CHARS),
        in_force: trouble.in_force,
    })
}

fn words(text: &str, most: usize) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    plain.take(most).collect()
}

#[cfg(test)]
mod tests {
    use portolan_plan::MAX_FAILING;

    use super::*;

    #[test]
    fn reports_of_agents_are_bounded() {
        let long = wire::ServiceTrouble {
            service: format!("sh\nop/{}", "x".repeat(1000)),
            reason: "Unheard\u{1b}Of".into(),
            message: "y".repeat(100_000),
            in_force: false,
        };
        let nameless = wire::ServiceTrouble {
            service: "shop/".into(),
            ..long.clone()
        };
        let mut shown = vec![nameless];
        shown.extend(vec![long; 1000]);
        let report = read(&wire::Troubles {
            shown,
            failing: (0..1_000_000).collect(),
            failing_services: u32::MAX,
        });
        assert_eq!(report.shown.len(), MAX_SHOWN - 1);
        let first = &report.shown[0];
        assert_eq!(
            first.service.to_string(),
            format!("shop/{}", "x".repeat(63))
        );
        assert_eq!(first.reason, TroubleReason::Other);
        assert_eq!(first.message.len(), MAX_MESSAGE_CHARS);
        assert!(report.failing.hashes().len() <= MAX_FAILING);
        assert!(
            report.failing.is_everything(),
            "none of them may count as in force"
        );
    }

    #[test]
    fn a_reason_is_read_as_it_was_written() {
        for text in [
            "SchedulerMissing",
            "SchedulerUnsupported",
            "TooManyEndpoints",
            "EndpointRefused",
            "ElementRefused",
            "EntryUnreadable",
            "HealthPortClosed",
        ] {
            assert_eq!(TroubleReason::from_peer(text).as_str(), text);
        }
    }
}
