//! The age of the objects, reported to agents. An agent whose controller is outdated looks for one whose objects are
//! younger, and names the age in its Hello.

use std::time::Duration;

use portolan_proto::wire;
use portolan_proto::wire::plan_message::Message;
use tonic::Status;

use super::Plans;
use super::outgoing::Outgoing;
use super::session::End;
use crate::freshness::Freshness;

/// Reports the present age.
pub(super) async fn report(freshness: &Freshness, outgoing: &mut Outgoing) -> Result<(), End> {
    let age_milliseconds = u64::try_from(freshness.age().as_millis()).unwrap_or(u64::MAX);
    let freshness = wire::Freshness { age_milliseconds };
    outgoing.put(Message::Freshness(freshness)).await
}

/// Refuses an agent that requires younger objects. It stays with its controller, so it must not be registered here: its
/// end would look like the loss of an agent.
pub(super) fn refusal(plans: &Plans, hello: &wire::Hello) -> Option<Status> {
    let required = Duration::from_millis(hello.younger_than_milliseconds);
    let age = plans.freshness.age();
    if required.is_zero() {
        None
    } else if age >= required {
        Some(Status::failed_precondition(format!(
            "the objects of this controller are {} s old, and the agent requires less than {} s",
            age.as_secs(),
            required.as_secs()
        )))
    } else if *plans.store.changes().borrow() == 0 {
        let none = "this controller has no plans yet";
        Some(Status::failed_precondition(none))
    } else {
        None
    }
}
