//! Limits the number of whole plans that are sent at the same time. A whole plan costs as much as thousands of changes,
//! and after a restart of all controllers every agent may need one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::outgoing::Outgoing;
use super::session::End;
use crate::store::{Begin, Held, Store, Walk};
use crate::telemetry::load::WholePlanCause;
use crate::telemetry::metrics::Counters;

/// Maximum number of whole plans that are sent at the same time; further agents wait, in order.
const MAX_WHOLE_PLANS: usize = 64;
/// Time after which a whole plan does not count any more, so that agents that read slowly do not delay others.
const MAX_SLOT_TIME: Duration = Duration::from_secs(5);

/// The slots for whole plans of a controller.
#[derive(Debug, Clone)]
pub(super) struct WholePlans {
    free: Arc<Semaphore>,
    counters: Arc<Counters>,
}

/// The right to send a whole plan; `None` for other batches.
#[derive(Debug)]
pub(super) struct Slot(Option<OwnedSemaphorePermit>);

impl WholePlans {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(MAX_WHOLE_PLANS)),
            counters,
        }
    }

    /// Begins a batch for a node that holds a plan; a whole plan waits for a slot first. `None` if there is no such
    /// node.
    pub(super) async fn begin(
        &self,
        store: &Store,
        node: &str,
        held: &Held,
        outgoing: &Outgoing,
    ) -> Result<Option<(Walk, Slot)>, End> {
        let Some(mut walk) = store.begin(node, held.clone()) else {
            return Ok(None);
        };
        let mut slot = Slot(None);
        if is_whole(&walk) {
            // It keeps all Services, so it is dropped during the wait.
            drop(walk);
            slot = self.slot(outgoing).await?;
            let Some(fresh) = store.begin(node, held.clone()) else {
                return Ok(None);
            };
            walk = fresh;
        }
        let load = self.counters.load();
        if is_whole(&walk) {
            load.whole_plan(match held {
                Held::Nothing => WholePlanCause::first,
                Held::Unknown => WholePlanCause::rejected,
                Held::Reported(..) => WholePlanCause::different,
                Held::Sent(_) => WholePlanCause::outdated,
            });
        } else if walk.is_repeated() {
            load.repeated();
        }
        Ok(Some((walk, slot)))
    }

    /// Waits for a slot, as long as the agent is connected.
    async fn slot(&self, outgoing: &Outgoing) -> Result<Slot, End> {
        let _waiting = self.counters.load().whole_plan_waits();
        tokio::select! {
            // In this order, so that a simulation can repeat a stream.
            biased;
            permit = self.free.clone().acquire_owned() => match permit {
                Ok(permit) => Ok(Slot(Some(permit))),
                Err(_) => Err(End::Gone),
            },
            () = outgoing.closed() => Err(End::Gone),
        }
    }
}

impl Slot {
    /// Runs `sending`. The slot is free again at its end, or after [`MAX_SLOT_TIME`].
    pub(super) async fn during<T>(self, sending: impl Future<Output = T>) -> T {
        let Some(permit) = self.0 else {
            return sending.await;
        };
        let mut sending = pin!(sending);
        if let Ok(sent) = timeout(MAX_SLOT_TIME, &mut sending).await {
            return sent;
        }
        drop(permit);
        sending.await
    }
}

fn is_whole(walk: &Walk) -> bool {
    matches!(walk.begin(), Begin::Nothing)
}

#[cfg(test)]
mod tests {
    use portolan_proto::wire;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, sleep};
    use tonic::Status;

    use super::*;

    type Messages = mpsc::Receiver<Result<Box<wire::PlanMessage>, Status>>;

    fn outgoing() -> (Outgoing, Messages) {
        let (queue, messages) = mpsc::channel(1);
        let (written, counters) = (Arc::default(), Arc::default());
        (Outgoing::new(queue, written, counters), messages)
    }

    #[tokio::test(start_paused = true)]
    async fn agents_beyond_the_limit_wait_until_others_have_their_plan_or_read_too_slowly() {
        let plans = WholePlans::new(Arc::default());
        let start = Instant::now();
        let seconds = |seconds| sleep(Duration::from_secs(seconds));
        // One reads within two seconds, all others take an hour.
        for number in 0..MAX_WHOLE_PLANS as u64 {
            let (outgoing, _messages) = outgoing();
            let slot = plans.slot(&outgoing).await.ok().unwrap();
            tokio::spawn(slot.during(seconds(if number == 0 { 2 } else { 3600 })));
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        let mut waited = Vec::new();
        for _ in 0..2 {
            let (outgoing, _messages) = outgoing();
            let slot = plans.slot(&outgoing).await.ok().unwrap();
            waited.push(start.elapsed().as_secs());
            tokio::spawn(slot.during(seconds(3600)));
        }
        assert_eq!(waited, [2, MAX_SLOT_TIME.as_secs()]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_goes_away_does_not_wait() {
        let plans = WholePlans::new(Arc::default());
        let all = u32::try_from(MAX_WHOLE_PLANS).unwrap();
        let _all = plans.free.acquire_many(all).await.unwrap();
        let (outgoing, messages) = outgoing();
        let slot = plans.slot(&outgoing);
        drop(messages);
        assert!(matches!(slot.await, Err(End::Gone)));
    }
}
