//! The version of the plans since which a node has its whole plan in force, derived from what was sent to it and what
//! it reported.

use portolan_plan::PlanHash;

use crate::agent_registry::InForce;

#[derive(Debug)]
pub(super) struct Confirmed {
    in_force: InForce,
    /// The last version sent to it, and its plan at that version.
    held: Option<(u64, PlanHash)>,
    /// The plan in its kernel.
    applied: Option<PlanHash>,
}

impl Confirmed {
    pub(super) fn new(in_force: InForce) -> Self {
        Self {
            in_force,
            held: None,
            applied: None,
        }
    }

    /// The node holds its plan of this version. Also called if nothing had to be sent for it.
    pub(super) fn holds(&mut self, version: u64, plan: PlanHash) {
        self.held = Some((version, plan));
        self.record();
    }

    /// This plan is in its kernel. Returns true if that resolves an earlier failure.
    pub(super) fn applied(&mut self, applied: Option<PlanHash>) -> bool {
        let before = self.is_whole();
        self.applied = applied;
        self.record();
        !before && self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.held
            .is_some_and(|(_, plan)| self.applied == Some(plan))
    }

    fn record(&self) {
        if let Some((version, _)) = self.held.filter(|_| self.is_whole()) {
            self.in_force.reached(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_in_force_once_all_of_its_plan_is() {
        let in_force = InForce::default();
        let mut confirmed = Confirmed::new(in_force.clone());
        let (one, two) = (PlanHash(1), PlanHash(2));
        confirmed.holds(3, one);
        assert_eq!(in_force.version(), 0);
        confirmed.applied(Some(one));
        assert_eq!(in_force.version(), 3);
        confirmed.holds(5, one);
        assert_eq!(in_force.version(), 5, "nothing was new for this node");
        confirmed.holds(6, two);
        assert_eq!(in_force.version(), 5);
        assert!(!confirmed.applied(None), "something failed");
        confirmed.holds(7, two);
        assert_eq!(in_force.version(), 5);
        assert!(confirmed.applied(Some(two)), "it worked later");
        assert_eq!(in_force.version(), 7);
        assert!(!confirmed.applied(Some(two)), "that is no news");
    }
}
