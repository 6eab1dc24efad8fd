//! The health check node ports of the current plan, with their Services and endpoint counts (S-134, S-136).

use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::{LocalHealth, NodePlan, ServiceId};

/// All health check ports. The API server assigns each to one Service. While a port moves to another Service, both
/// may have it; then the first Service by name answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    checks: BTreeMap<(u16, ServiceId), LocalHealth>,
}

impl Checks {
    /// The ports of a plan or a part of one.
    pub fn of(plan: &NodePlan) -> Self {
        let check = |(service, health): (&ServiceId, LocalHealth)| {
            let place = (health.port, service.clone());
            (place, health)
        };
        let locals = plan.locals();
        let checks = locals.filter_map(|(service, local)| Some((service, local.health?)));
        Self {
            checks: checks.map(check).collect(),
        }
    }

    /// Replaces the ports of some Services. Returns whether the set of ports changed.
    pub fn replace(&mut self, before: &Self, after: Self) -> bool {
        let touched = &before.ports() | &after.ports();
        let open = |checks: &Self| touched.iter().filter(|port| checks.has(**port)).count();
        let (was, all) = (open(self), touched.len());
        for place in before.checks.keys() {
            self.checks.remove(place);
        }
        self.checks.extend(after.checks);
        // Unchanged only if all of these ports were in use before and still are.
        was != all || open(self) != all
    }

    /// Replaces all ports by those of another plan. Returns whether the set of ports changed.
    pub fn replace_all(&mut self, all: Self) -> bool {
        let moved = self.ports() != all.ports();
        *self = all;
        moved
    }

    /// The ports.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.checks.keys().map(|(port, _)| *port).collect()
    }

    /// The Service and counts of a port; `None` if it is not a health check port.
    pub fn get(&self, port: u16) -> Option<(&ServiceId, &LocalHealth)> {
        let first = (port, ServiceId::new("", ""));
        let ((found, service), health) = self.checks.range(first..).next()?;
        (*found == port).then_some((service, health))
    }

    fn has(&self, port: u16) -> bool {
        self.get(port).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(all: &[(&str, u16, u32)]) -> Checks {
        let check = |(name, port, count): &(&str, u16, u32)| {
            let health = LocalHealth {
                port: *port,
                ipv4: *count,
                ipv6: 0,
            };
            ((*port, ServiceId::new("shop", *name)), health)
        };
        Checks {
            checks: all.iter().map(check).collect(),
        }
    }

    #[test]
    fn counts_change_without_a_change_of_ports_and_others_stay() {
        let mut held = checks(&[("cart", 30_001, 1), ("web", 30_002, 1)]);
        let moved = held.replace(
            &checks(&[("web", 30_002, 1)]),
            checks(&[("web", 30_002, 5)]),
        );
        assert!(!moved, "S-141");
        assert_eq!(held, checks(&[("cart", 30_001, 1), ("web", 30_002, 5)]));
    }

    #[test]
    fn added_moved_and_removed_ports_are_reported_as_a_change() {
        let mut held = checks(&[("cart", 30_001, 1)]);
        assert!(held.replace(&Checks::default(), checks(&[("web", 30_002, 1)])));
        assert!(held.replace(
            &checks(&[("web", 30_002, 1)]),
            checks(&[("web", 30_003, 1)])
        ));
        assert_eq!(held.ports(), [30_001, 30_003].into());
        assert!(held.replace(&checks(&[("web", 30_003, 1)]), Checks::default()));
        assert!(held.replace_all(Checks::default()));
        assert!(!held.replace_all(Checks::default()));
    }

    #[test]
    fn a_port_that_changes_hands_stays_open_and_the_first_by_name_answers() {
        let mut held = checks(&[("web", 30_001, 1)]);
        assert!(!held.replace(&Checks::default(), checks(&[("cart", 30_001, 2)])));
        assert_eq!(held.get(30_001).unwrap().0.to_string(), "shop/cart");
        assert!(!held.replace(&checks(&[("cart", 30_001, 2)]), Checks::default()));
        assert_eq!(held.get(30_001).unwrap().0.to_string(), "shop/web");
        assert_eq!(held.get(30_000), None);
    }
}
