//! The spans of changes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::Note;
use super::super::track::tests::{at, cause, delivered, published};
use super::super::track::{Track, Waiting};
use super::*;
use crate::store::cause::Cause;

fn step(name: &str, after: u64, took: u64) -> wire::Step {
    wire::Step {
        name: name.into(),
        after_microseconds: after,
        microseconds: took,
        operations: 2,
        failed: 0,
    }
}

/// A part of planning, as the layer sends it.
fn part(of: &Cause, start: u64, end: u64) -> Note {
    let time = Frame {
        start: at(start),
        end: at(end),
    };
    let mut span = Place::below(of.trace, [0xbb; 8]).span("plan", time);
    span.parent_span_is_remote = true;
    Note::SpanEnded(Box::new(span))
}

fn ended(notes: Vec<Note>) -> Vec<Ended> {
    let mut track = Track::default();
    for note in notes {
        track.take(note, at(0));
    }
    let complete = track.complete(at(60_000), None, |_| Waiting::default());
    track.end(complete)
}

fn drawn(ended: &Ended) -> Vec<SpanData> {
    let mut next = 0_u64;
    let mut new_span = || {
        next += 1;
        (next | 1 << 60).to_be_bytes()
    };
    let Drawn { controller, agents } = draw(ended, &mut new_span);
    let agents = agents.into_iter().flat_map(|(_, spans)| spans);
    controller.into_iter().chain(agents).collect()
}

/// The spans as a tree, each with its start and end in milliseconds since 1970.
fn shown(spans: &[SpanData]) -> String {
    let mut below: BTreeMap<[u8; 8], Vec<&SpanData>> = BTreeMap::new();
    for span in spans {
        let parent = span.parent_span_id.to_bytes();
        below.entry(parent).or_default().push(span);
    }
    let mut text = String::new();
    let mut open: Vec<(usize, &SpanData)> = below[&[0; 8]].iter().map(|s| (0, *s)).collect();
    while let Some((depth, span)) = open.pop() {
        let since = |time: SystemTime| {
            let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            time.as_micros() as f64 / 1000.0
        };
        let (start, end) = (since(span.start_time), since(span.end_time));
        let links = span.links.len();
        text += &format!(
            "{}{} {start} to {end}{}\n",
            "  ".repeat(depth),
            span.name,
            if links > 0 {
                format!(", {links} linked")
            } else {
                String::new()
            }
        );
        let own = span.span_context.span_id().to_bytes();
        let children = below.get(&own).into_iter().flatten().rev();
        open.extend(children.map(|span| (depth + 1, *span)));
    }
    text
}

#[test]
fn a_change_is_one_tree_from_the_trigger_to_the_kernel() {
    let mut one = Cause::clone(&cause(1, 1000));
    one.triggered = vec![at(400)];
    let one = Arc::new(one);
    let mut delivered = delivered("node-a", &[&one], 1050);
    delivered.answered.timing = Some(wire::Timing {
        waited_microseconds: 500,
        total_microseconds: 7000,
        steps: vec![step("diff", 100, 900), step("servers", 1000, 4000)],
    });
    let ended = ended(vec![
        Note::Begun(one.clone()),
        part(&one, 1010, 1020),
        published(1, 7, 1030),
        Note::Delivered(Box::new(delivered)),
    ]);
    insta::assert_snapshot!(shown(&drawn(&ended[0])), @"
    change 400 to 1050
      watch 400 to 1000
      queue 1000 to 1010
      plan 1010 to 1020
      deliver 1030 to 1050
        turn 1030 to 1040
        send 1040 to 1041
        apply 1042 to 1049
          wait 1042 to 1042.5
          diff 1042.6 to 1043.5
          servers 1043.5 to 1047.5
    ");
}

#[test]
fn a_change_that_went_with_another_is_linked_and_that_one_has_the_nodes_work() {
    let (one, two) = (cause(1, 1000), cause(2, 1010));
    let mut both = delivered("node-a", &[&one, &two], 1050);
    both.answered.timing = Some(wire::Timing::default());
    let ended = ended(vec![
        Note::Begun(one),
        published(1, 7, 1001),
        Note::Begun(two),
        published(2, 8, 1011),
        Note::Delivered(Box::new(both)),
    ]);
    let (first, second) = (drawn(&ended[0]), drawn(&ended[1]));
    let deliver = |spans: &[SpanData]| {
        let found = spans.iter().find(|span| span.name == "deliver");
        found.cloned().unwrap()
    };
    let (holder, other) = (deliver(&first), deliver(&second));
    assert_eq!(other.links[0].span_context, context([1; 16], [0xaa; 8]));
    assert_eq!(holder.span_context, context([1; 16], [0xaa; 8]));
    assert_eq!(holder.links[0].span_context, context([2; 16], [2; 8]));
    assert!(first.iter().any(|span| span.name == "apply"));
    assert!(!second.iter().any(|span| span.name == "apply"));
}

#[test]
fn the_root_span_names_failures_and_missing_nodes() {
    let one = cause(1, 1000);
    let mut failed = delivered("node-a", &[&one], 1050);
    failed.answered.failed = 2;
    failed.answered.failure = Some("add a virtual server: no memory".into());
    let mut ended = ended(vec![
        Note::Begun(one),
        published(1, 7, 1001),
        Note::Delivered(Box::new(failed)),
    ]);
    ended[0].missing = Waiting {
        count: 1,
        first: vec!["node-b".into()],
    };
    let spans = drawn(&ended[0]);
    let words = "not in force on 1 of 1 nodes; no answer in time from node-b";
    assert_eq!(spans[0].status, Status::error(words));
    let deliver = spans.iter().find(|span| span.name == "deliver").unwrap();
    assert_eq!(
        deliver.status,
        Status::error("add a virtual server: no memory")
    );
}

prop_compose! {
    fn timing()(
        waited in any::<u64>(), total in any::<u64>(),
        steps in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5),
        small in any::<bool>(),
    ) -> wire::Timing {
        // Half of the timings are realistic, the other half are arbitrary.
        let limit = |value: u64| if small { value % 100_000 } else { value };
        wire::Timing {
            waited_microseconds: limit(waited),
            total_microseconds: limit(total),
            steps: steps.iter().map(|(after, took)| step("x", limit(*after), limit(*took))).collect(),
        }
    }
}

proptest! {
    /// For all clocks and agent timings there is one root, every parent exists, and every child lies within its parent.
    #[test]
    fn children_lie_within_their_parents(
        triggered in prop::option::of(0..3000_u64),
        seen in 500..2000_u64,
        published_at in 0..3000_u64,
        planned in (0..3000_u64, 0..3000_u64),
        times in prop::collection::vec((0..3000_u64, 0..3000_u64, 10..3000_u64, timing()), 0..4),
    ) {
        let mut one = Cause::clone(&cause(1, seen));
        one.triggered = triggered.map(at).into_iter().collect();
        let one = Arc::new(one);
        let mut notes = vec![
            Note::Begun(one.clone()),
            part(&one, planned.0, planned.1),
            published(1, 7, published_at),
        ];
        for (number, (made, handed, answered, timing)) in (1_u64..).zip(times) {
            let mut delivered = delivered("node-a", &[&one], answered);
            delivered.span = number.to_be_bytes();
            (delivered.made, delivered.handed) = (at(made), at(handed));
            delivered.answered.timing = Some(timing);
            notes.push(Note::Delivered(Box::new(delivered)));
        }
        let spans = drawn(&ended(notes)[0]);
        let by_id: BTreeMap<_, _> = spans
            .iter()
            .map(|span| (span.span_context.span_id().to_bytes(), span))
            .collect();
        let mut roots = 0;
        for span in &spans {
            prop_assert!(span.start_time <= span.end_time, "{}", span.name);
            let parent = span.parent_span_id.to_bytes();
            if parent == [0; 8] {
                roots += 1;
                continue;
            }
            let parent = by_id.get(&parent).copied();
            prop_assert!(parent.is_some(), "{} has no parent", span.name);
            let parent = parent.unwrap();
            prop_assert!(
                parent.start_time <= span.start_time && span.end_time <= parent.end_time,
                "{} leaves {}", span.name, parent.name
            );
        }
        prop_assert_eq!(roots, 1);
    }
}
