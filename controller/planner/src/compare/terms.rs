//! The terms of a Service: policies, affinity, scheduler and similar settings.

use std::collections::BTreeMap;
use std::fmt;

use portolan_plan::{Head, HeadPort};

use super::ends::{PortName, View};
use crate::PlannedService;

/// A term of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// Whether it is programmed first at start.
    BootCritical,
    /// How long connections to removed backends are kept, in seconds.
    DrainSeconds,
    /// Its scheduler.
    Scheduler,
    /// The health check port.
    HealthPort,
    /// Session affinity timeout, in seconds.
    AffinitySeconds,
    /// The source ranges of load balancer addresses.
    SourceRanges,
    /// The policy for cluster IPs.
    InternalPolicy,
    /// The policy for all other frontends.
    ExternalPolicy,
}

impl Term {
    /// Its name in the plan document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BootCritical => "bootCritical",
            Self::DrainSeconds => "drainSeconds",
            Self::Scheduler => "scheduler",
            Self::HealthPort => "healthPort",
            Self::AffinitySeconds => "affinitySeconds",
            Self::SourceRanges => "sourceRanges",
            Self::InternalPolicy => "internalPolicy",
            Self::ExternalPolicy => "externalPolicy",
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A changed term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TermChange {
    /// Its port; `None` for the whole Service.
    pub port: Option<PortName>,
    /// The term.
    pub term: Term,
    /// The value before, as Kubernetes spells it; `None` if it was not set.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}

type Terms = BTreeMap<(Option<PortName>, Term), String>;

/// The changed terms; those of ports only for ports that exist before and after.
pub(super) fn terms(
    (before, before_view): (&PlannedService, &View<'_>),
    (after, after_view): (&PlannedService, &View<'_>),
) -> Vec<TermChange> {
    let (Some(old), Some(new)) = (before_view.head(), after_view.head()) else {
        return Vec::new();
    };
    let stays = |port: &Option<PortName>| {
        let is_in = |head: &Head| head.ports.iter().any(|p| port.as_ref() == Some(&name(p)));
        port.is_none() || (is_in(old) && is_in(new))
    };
    let (mut old, mut new) = (of(before, before_view, old), of(after, after_view, new));
    let mut changes = Vec::new();
    let keys: Vec<_> = old.keys().chain(new.keys()).cloned().collect();
    for key in keys.into_iter().filter(|(port, _)| stays(port)) {
        let (before, after) = (old.remove(&key), new.remove(&key));
        if before != after {
            let (port, term) = key;
            changes.push(TermChange {
                port,
                term,
                before,
                after,
            });
        }
    }
    changes.sort_unstable();
    changes
}

fn name(port: &HeadPort) -> PortName {
    PortName {
        name: port.name.clone(),
        protocol: port.protocol,
    }
}

fn of(planned: &PlannedService, view: &View<'_>, head: &Head) -> Terms {
    let mut terms = Terms::new();
    let mut say = |port: Option<&HeadPort>, term, value: Option<String>| {
        if let Some(value) = value {
            terms.insert((port.map(name), term), value);
        }
    };
    let mut locals = planned.locals.values().chain(&planned.elsewhere);
    let health = locals.find_map(|local| local.health);
    let drain = head.drain_seconds;
    let scheduler = head.scheduler.as_ref();
    say(
        None,
        Term::BootCritical,
        Some(head.boot_critical.to_string()),
    );
    say(None, Term::DrainSeconds, drain.map(|s| s.to_string()));
    say(None, Term::Scheduler, scheduler.map(ToString::to_string));
    say(None, Term::HealthPort, health.map(|h| h.port.to_string()));
    for port in &head.ports {
        let affinity = port.affinity_seconds;
        let ranges = head.source_ranges_of(port).iter();
        let ranges: Vec<_> = ranges.map(ToString::to_string).collect();
        let ranges = (!ranges.is_empty()).then(|| ranges.join(", "));
        let external = view.external(&port.name);
        let policy = |list: &portolan_plan::ListUse| format!("{:?}", list.policy);
        say(
            Some(port),
            Term::AffinitySeconds,
            affinity.map(|s| s.to_string()),
        );
        say(Some(port), Term::SourceRanges, ranges);
        say(
            Some(port),
            Term::InternalPolicy,
            Some(policy(&port.internal)),
        );
        say(Some(port), Term::ExternalPolicy, external.map(policy));
    }
    terms
}
