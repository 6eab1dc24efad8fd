//! An agent that moves from one controller to another may know more than its new one has read yet. It
//! never goes back to an older plan: the new one reads again before it sends anything.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_proto::wire;
use tonic::Status;
use tracing::info;

use super::session::End;
use crate::store::Store;
use crate::watch::{Kind, Mark};

/// So long may reading again take. An agent that waits longer does better elsewhere.
const LIMIT: Duration = Duration::from_secs(15);

/// Waits until this controller has read at least what the agent was told of before, or has just read
/// everything anew: a store that was restored is older, and still the truth.
pub(super) async fn catch_up(store: &Store, hello: &wire::Hello) -> Result<(), End> {
    let Some(told) = hello.watermark.as_ref() else {
        return Ok(());
    };
    let mut marks = store.planned();
    let behind = behind(told, &marks.borrow_and_update());
    if behind.is_empty() {
        return Ok(());
    }
    for kind in behind.keys() {
        let kind_name = kind.name();
        info!(
            node = hello.node,
            kind = kind_name,
            "the agent knows more; listing again"
        );
        store.ask_for_list(*kind);
    }
    let caught_up = marks.wait_for(|marks| {
        let reached =
            |(kind, lists): (&Kind, &u64)| marks.get(kind).is_some_and(|mark| mark.lists > *lists);
        self::behind(told, marks).is_empty() || behind.iter().all(reached)
    });
    match tokio::time::timeout(LIMIT, caught_up).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => {
            let names: Vec<_> = behind.keys().map(|kind| kind.name()).collect();
            Err(End::Refused(Status::unavailable(format!(
                "this controller has not read yet what made your plan ({}), and its API server does \
                 not answer; try another controller",
                names.join(", ")
            ))))
        }
    }
}

/// The kinds of which the agent was told more than this controller has read, and how often it listed
/// them. A kind that this controller does not know is none.
fn behind(told: &wire::Watermark, marks: &BTreeMap<Kind, Mark>) -> BTreeMap<Kind, u64> {
    let knows_more = |(kind, mark): (&Kind, &Mark)| {
        let told = told.kinds.iter().find(|told| told.kind == kind.name())?;
        (told.sum != mark.sum && told.newest > mark.newest).then_some((*kind, mark.lists))
    };
    marks.iter().filter_map(knows_more).collect()
}

/// What is to be told of these marks to an agent that was told of those.
pub(super) fn news(
    told: &mut BTreeMap<Kind, Mark>,
    marks: &BTreeMap<Kind, Mark>,
) -> Option<wire::Watermark> {
    let mut kinds = Vec::new();
    for (kind, mark) in marks {
        let before = told.insert(*kind, *mark);
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

    fn told(newest: u64, sum: u64) -> wire::Watermark {
        news(&mut BTreeMap::new(), &mark(newest, sum)).unwrap()
    }

    #[test]
    fn only_who_has_read_less_and_holds_something_else_is_behind() {
        for (newest, sum, is_behind) in [
            (7, 1, false), // the same
            (6, 1, false), // the same objects; nothing happened to them since
            (8, 2, false), // read more
            (6, 2, true),
        ] {
            let behind = behind(&told(7, 1), &mark(newest, sum));
            assert_eq!(!behind.is_empty(), is_behind, "{newest} {sum}");
        }
        assert!(behind(&told(7, 1), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn a_kind_is_told_of_again_once_it_moved() {
        let mut known = BTreeMap::new();
        assert!(news(&mut known, &mark(7, 1)).is_some());
        assert!(news(&mut known, &mark(7, 1)).is_none());
        assert!(news(&mut known, &mark(8, 1)).is_some());
    }
}
