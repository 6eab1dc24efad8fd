//! How notes add up to changes, and how changes end.

use portolan_proto::TraceContext;

use super::super::Answered;
use super::*;
use crate::store::BatchCauses;

pub(in crate::telemetry::changes) fn at(milliseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
}

pub(in crate::telemetry::changes) fn cause(number: u8, seen: u64) -> Arc<Cause> {
    Arc::new(Cause {
        trace: TraceContext {
            trace: [number; 16],
            span: [number; 8],
        },
        triggered: Vec::new(),
        seen: at(seen),
        changed: format!("Service shop/s{number}"),
    })
}

pub(in crate::telemetry::changes) fn published(
    number: u8,
    version: u64,
    milliseconds: u64,
) -> Note {
    Note::Published(Box::new(Published {
        trace: cause(number, 0).trace,
        version,
        services: 1,
        nodes: 0,
        at: at(milliseconds),
    }))
}

pub(in crate::telemetry::changes) fn delivered(
    node: &str,
    causes: &[&Arc<Cause>],
    milliseconds: u64,
) -> Delivered {
    Delivered {
        node: node.into(),
        agent_version: "0.1.0".into(),
        causes: Arc::new(BatchCauses::new(causes.iter().copied().cloned().collect())),
        span: [0xaa; 8],
        batch: 1,
        made: at(milliseconds - 10),
        handed: at(milliseconds - 9),
        at: at(milliseconds),
        answered: Answered::default(),
    }
}

fn none_waiting(_: u64) -> Waiting {
    unreachable!("no node is waited for")
}

fn with(notes: Vec<Note>) -> Track {
    let mut track = Track::default();
    for note in notes {
        track.take(note, at(0));
    }
    track
}

fn note(delivered: Delivered) -> Note {
    Note::Delivered(Box::new(delivered))
}

/// Ends changes while no node is waited for.
fn end_all(track: &mut Track, now: u64) -> Vec<Ended> {
    let complete = track.complete(at(now), None, none_waiting);
    track.end(complete)
}

#[test]
fn a_change_ends_with_the_last_answer() {
    let one = cause(1, 0);
    let mut track = with(vec![
        Note::Begun(one.clone()),
        published(1, 7, 20),
        note(delivered("b", &[&one], 60)),
        note(delivered("a", &[&one], 50)),
    ]);
    let ended = end_all(&mut track, 900);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].took(), Duration::from_millis(60));
    assert_eq!(ended[0].handed, at(51));
    assert_eq!((ended[0].answered, ended[0].has_failed()), (2, false));
    let shown: Vec<_> = ended[0].shown.iter().map(|d| &*d.node).collect();
    assert_eq!(shown, ["a", "b"]);
    assert!(track.is_empty());
}

#[test]
fn a_node_that_lacks_a_version_delays_later_changes_for_a_limited_time() {
    let mut track = with(vec![
        Note::Begun(cause(1, 0)),
        published(1, 7, 20),
        Note::Begun(cause(2, 0)),
        published(2, 8, 30),
    ]);
    let end = |track: &mut Track, now| {
        let behind = |version| {
            assert_eq!(version, 8);
            Waiting {
                count: 1,
                first: vec!["slow".into()],
            }
        };
        let complete = track.complete(at(now), Some(7), behind);
        track.end(complete)
    };
    assert_eq!(end(&mut track, 100).len(), 1, "all nodes have 7");
    assert!(end(&mut track, 200).is_empty());
    let over = end(&mut track, 30 + 30_000);
    assert_eq!(over[0].missing.first, ["slow".into()]);
    assert!(over[0].has_failed() && track.is_empty());
}

#[test]
fn a_change_without_a_plan_is_dropped_and_delays_no_other() {
    let (one, two) = (cause(1, 0), cause(2, 0));
    let mut track = with(vec![
        Note::Begun(one.clone()),
        Note::Begun(two),
        published(2, 8, 30),
    ]);
    assert!(end_all(&mut track, 40).is_empty(), "1 is being planned");
    track.take(Note::NotPublished(one.trace), at(40));
    assert_eq!(end_all(&mut track, 50).len(), 1);
    assert!(track.is_empty());
}

#[test]
fn a_lost_note_delays_no_change_for_long() {
    let mut track = with(vec![
        Note::Begun(cause(1, 0)),
        Note::Begun(cause(2, 0)),
        published(2, 8, 30),
    ]);
    let ended = end_all(&mut track, 30_000);
    assert_eq!(
        ended.len(),
        1,
        "the change that was never published is not reported"
    );
    assert!(track.is_empty());
}

#[test]
fn few_nodes_are_shown_of_many_where_something_failed_first_then_the_slowest() {
    let one = cause(1, 0);
    let mut track = with(vec![Note::Begun(one.clone()), published(1, 7, 20)]);
    for number in 0..100_u64 {
        let mut delivered = delivered(&format!("n{number:03}"), &[&one], 100 + number);
        delivered.answered.failed = u64::from(number == 3);
        track.take(note(delivered), at(0));
    }
    let ended = end_all(&mut track, 900);
    assert_eq!((ended[0].answered, ended[0].failed), (100, 1));
    let shown: Vec<_> = ended[0].shown.iter().map(|d| &*d.node).collect();
    assert_eq!(shown.len(), MAX_NODES_PER_CHANGE);
    assert_eq!(
        (shown[0], shown[1], shown[MAX_NODES_PER_CHANGE - 1]),
        ("n003", "n085", "n099")
    );
}

#[test]
fn memory_is_bounded_for_any_notes() {
    let mut track = Track::default();
    for number in 0..3 * MAX_OPEN_CHANGES as u64 {
        let mut cause = Cause::clone(&cause(1, 0));
        cause.trace.trace[..8].copy_from_slice(&number.to_be_bytes());
        track.take(Note::Begun(Arc::new(cause)), at(0));
    }
    assert_eq!(
        (track.open.len(), track.order.len()),
        (MAX_OPEN_CHANGES, MAX_OPEN_CHANGES)
    );
    track.take(note(delivered("a", &[&cause(9, 0)], 50)), at(0));
    assert_eq!(
        track.open.len(),
        MAX_OPEN_CHANGES,
        "an unknown change is not opened"
    );
}

/// Nodes share the causes of their batches, or have others.
#[test]
fn answers_are_added_to_each_change_of_their_batch() {
    let (one, two) = (cause(1, 0), cause(2, 0));
    let mut track = Track::only_counting();
    for note in [
        Note::Begun(one.clone()),
        published(1, 7, 20),
        Note::Begun(two.clone()),
        published(2, 8, 30),
    ] {
        track.take(note, at(0));
    }
    let both = delivered("a", &[&one, &two], 50);
    for milliseconds in (100..).take(3 * MAX_TALLIES) {
        let of_first = delivered("c", &[&one], milliseconds);
        for delivered in [both.clone(), of_first] {
            track.take(note(delivered), at(0));
        }
        assert!(track.tallies.len() <= MAX_TALLIES);
    }
    let ended = end_all(&mut track, 900);
    let counts: Vec<_> = ended.iter().map(|ended| ended.answered).collect();
    assert_eq!(counts, [6 * MAX_TALLIES, 3 * MAX_TALLIES]);
    assert_eq!(ended[1].took(), Duration::from_millis(50));
}
