//! An agent that moves to another controller may have a newer plan than this controller has read. The agent never
//! goes back to an older plan: this controller reads what the agent has before it sends anything, by its watch or by a
//! new list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portolan_planner::model::Kind;
use portolan_proto::wire;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tracing::info;

use super::received::{Hello, Reached};
use super::session::End;
use crate::bucket::Shares;
use crate::store::Store;
use crate::watch::Mark;

/// Time for the watch to deliver what the agent has, before a list is requested. Usually it takes milliseconds.
const WATCH_GRACE: Duration = Duration::from_secs(3);
/// Timeout for listing again. After it, the agent is asked to try another controller.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(15);
/// New lists that the agent of one node may cause in a minute. Whatever it reports, the API server is asked for few.
const RELISTS_PER_NODE: u32 = 1;

/// The rate of lists that the agent of each node may cause.
#[derive(Debug, Clone)]
pub(super) struct Relists(Arc<Mutex<Shares<Arc<str>>>>);

impl Default for Relists {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Shares::a_minute(RELISTS_PER_NODE))))
    }
}

impl Relists {
    fn may_ask(&self, node: &Arc<str>) -> bool {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.take(node, Instant::now().into_std()).is_some()
    }
}

/// Waits until this controller has read at least the agent's watermark, or has listed everything since the agent came: a
/// restored store is older, but authoritative. An agent beyond its rate of lists waits for those that others cause.
pub(super) async fn catch_up(store: &Store, hello: &Hello, relists: &Relists) -> Result<(), End> {
    let came = Instant::now();
    let mut marks = store.planned();
    let has_read = |marks: &BTreeMap<Kind, Mark>| behind(&hello.watermark, marks, came).is_empty();
    if let Ok(read) = timeout(WATCH_GRACE, marks.wait_for(has_read)).await {
        return read.map(drop).map_err(|_| End::Gone);
    }
    let kinds = behind(&hello.watermark, &marks.borrow_and_update(), came);
    if relists.may_ask(&hello.node) {
        for kind in &kinds {
            let (node, kind_name) = (&*hello.node, kind.name());
            info!(
                node,
                kind = kind_name,
                "the agent has a newer plan; listing again"
            );
            store.ask_for_list(*kind);
        }
    }
    if let Ok(read) = timeout(CATCH_UP_TIMEOUT, marks.wait_for(has_read)).await {
        return read.map(drop).map_err(|_| End::Gone);
    }
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    Err(End::Refused(Status::unavailable(format!(
        "this controller has not yet read the objects of your plan ({}), and a new list of them has not come in time; \
         try another controller",
        names.join(", ")
    ))))
}

/// The kinds for which the agent's watermark is newer than this controller's, and which were not listed since the agent
/// came.
fn behind(
    watermark: &BTreeMap<Kind, Reached>,
    marks: &BTreeMap<Kind, Mark>,
    came: Instant,
) -> Vec<Kind> {
    let is_behind = |(kind, mark): &(&Kind, &Mark)| {
        let knows_more = watermark
            .get(*kind)
            .is_some_and(|reached| reached.sum != mark.sum && reached.newest > mark.newest);
        knows_more && mark.began.is_none_or(|began| began < came)
    };
    let behind = marks.iter().filter(is_behind);
    behind.map(|(kind, _)| *kind).collect()
}

/// The watermarks to send to an agent that has received `sent` so far.
pub(super) fn news(
    sent: &mut BTreeMap<Kind, Mark>,
    marks: &BTreeMap<Kind, Mark>,
) -> Option<wire::Watermark> {
    let mut kinds = Vec::new();
    for (kind, mark) in marks {
        let before = sent.insert(*kind, *mark);
        if before.is_none_or(|before| (before.newest, before.sum) != (mark.newest, mark.sum)) {
            kinds.push(wire::KindWatermark {
                kind: kind.name().into(),
                newest: mark.newest,
                sum: mark.sum,
            });
        }
    }
    (!kinds.is_empty()).then_some(wire::Watermark { kinds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(newest: u64, sum: u64) -> BTreeMap<Kind, Mark> {
        let mark = Mark {
            newest,
            sum,
            ..Mark::default()
        };
        [(Kind::Service, mark)].into()
    }

    fn watermark(newest: u64, sum: u64) -> BTreeMap<Kind, Reached> {
        [(Kind::Service, Reached { newest, sum })].into()
    }

    #[test]
    fn only_a_controller_that_has_read_less_and_holds_other_objects_is_behind() {
        let came = Instant::now();
        for (newest, sum, is_behind) in [
            (7, 1, false), // the same
            (6, 1, false), // the same objects; unchanged since
            (8, 2, false), // read more
            (6, 2, true),
        ] {
            let behind = behind(&watermark(7, 1), &mark(newest, sum), came);
            assert_eq!(!behind.is_empty(), is_behind, "{newest} {sum}");
        }
        assert!(behind(&watermark(7, 1), &BTreeMap::new(), came).is_empty());
        assert!(behind(&BTreeMap::new(), &mark(6, 2), came).is_empty());
    }

    /// A list that had begun before the agent came may lack what its plan has.
    #[test]
    fn only_a_list_that_began_after_the_agent_came_counts_whatever_its_version() {
        let came = Instant::now();
        let second = Duration::from_secs(1);
        for (began, is_behind) in [
            (None, true),
            (Some(came - second), true),
            (Some(came), false),
        ] {
            let mut marks = mark(6, 2);
            marks.insert(
                Kind::Service,
                Mark {
                    began,
                    ..marks[&Kind::Service]
                },
            );
            let behind = behind(&watermark(7, 1), &marks, came);
            assert_eq!(!behind.is_empty(), is_behind, "{began:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_causes_one_list_a_minute() {
        let relists = Relists::default();
        let (node, other) = ("node-a".into(), "node-b".into());
        assert!(relists.may_ask(&node) && !relists.may_ask(&node));
        assert!(relists.may_ask(&other));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(relists.may_ask(&node));
    }

    #[test]
    fn a_kind_is_sent_again_once_its_mark_changed() {
        let mut known = BTreeMap::new();
        assert!(news(&mut known, &mark(7, 1)).is_some());
        assert!(news(&mut known, &mark(7, 1)).is_none());
        assert!(news(&mut known, &mark(8, 1)).is_some());
    }
}
