//! An agent that moves to another controller may have a newer plan than this controller has read. The agent never
//! goes back to an older plan: this controller lists the objects again before it sends anything.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_planner::model::Kind;
use portolan_proto::wire;
use tonic::Status;
use tracing::info;

use super::session::End;
use crate::store::Store;
use crate::watch::Mark;

/// Timeout for listing again. After it, the agent is asked to try another controller.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(15);

/// Waits until this controller has read at least the agent's watermark, or has just listed everything again: a
/// restored store is older, but authoritative.
pub(super) async fn catch_up(store: &Store, hello: &wire::Hello) -> Result<(), End> {
    let Some(watermark) = hello.watermark.as_ref() else {
        return Ok(());
    };
    let mut marks = store.planned();
    let behind = behind(watermark, &marks.borrow_and_update());
    if behind.is_empty() {
        return Ok(());
    }
    for kind in behind.keys() {
        let kind_name = kind.name();
        info!(
            node = hello.node,
            kind = kind_name,
            "the agent has a newer plan; listing again"
        );
        store.ask_for_list(*kind);
    }
    let caught_up = marks.wait_for(|marks| {
        let reached =
            |(kind, lists): (&Kind, &u64)| marks.get(kind).is_some_and(|mark| mark.lists > *lists);
        self::behind(watermark, marks).is_empty() || behind.iter().all(reached)
    });
    match tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => {
            let names: Vec<_> = behind.keys().map(|kind| kind.name()).collect();
            Err(End::Refused(Status::unavailable(format!(
                "this controller has not yet read the objects of your plan ({}), and its API server does \
                 not answer; try another controller",
                names.join(", ")
            ))))
        }
    }
}

/// The kinds for which the agent's watermark is newer than this controller's, with the number of lists so far.
/// Unknown kinds are ignored.
fn behind(watermark: &wire::Watermark, marks: &BTreeMap<Kind, Mark>) -> BTreeMap<Kind, u64> {
    let knows_more = |(kind, mark): (&Kind, &Mark)| {
        let reported = watermark
            .kinds
            .iter()
            .find(|reported| reported.kind == kind.name())?;
        (reported.sum != mark.sum && reported.newest > mark.newest).then_some((*kind, mark.lists))
    };
    marks.iter().filter_map(knows_more).collect()
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
            lists: 1,
        };
        [(Kind::Service, mark)].into()
    }

    fn watermark(newest: u64, sum: u64) -> wire::Watermark {
        news(&mut BTreeMap::new(), &mark(newest, sum)).unwrap()
    }

    #[test]
    fn only_a_controller_that_has_read_less_and_holds_other_objects_is_behind() {
        for (newest, sum, is_behind) in [
            (7, 1, false), // the same
            (6, 1, false), // the same objects; unchanged since
            (8, 2, false), // read more
            (6, 2, true),
        ] {
            let behind = behind(&watermark(7, 1), &mark(newest, sum));
            assert_eq!(!behind.is_empty(), is_behind, "{newest} {sum}");
        }
        assert!(behind(&watermark(7, 1), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn a_kind_is_sent_again_once_its_mark_changed() {
        let mut known = BTreeMap::new();
        assert!(news(&mut known, &mark(7, 1)).is_some());
        assert!(news(&mut known, &mark(7, 1)).is_none());
        assert!(news(&mut known, &mark(8, 1)).is_some());
    }
}
