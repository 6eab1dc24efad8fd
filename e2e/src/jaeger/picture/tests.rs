use super::super::fixture::{self, Line};
use super::*;

/// Places and widths of all bars.
fn bars(svg: &str) -> Vec<(f64, f64)> {
    let number = |line: &str, name: &str| -> f64 {
        let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let lines = svg.lines().filter(|line| line.contains("class=\"bar\""));
    lines
        .map(|line| (number(line, "x"), number(line, "width")))
        .collect()
}

#[test]
fn every_span_has_one_bar_within_the_frame_and_its_name() {
    let trace = fixture::change();
    let svg = picture(&trace).unwrap();
    let bars = bars(&svg);
    assert_eq!(bars.len(), trace.spans.len());
    for (x, width) in bars {
        // Written with one digit behind the point.
        assert!(x >= LEFT && x + width <= RIGHT + 0.1, "{x} {width}");
        assert!(width >= 2.0, "{width}");
    }
    for span in &trace.spans {
        let name = format!(">{}<", span.name);
        assert!(svg.contains(&name), "{name}");
    }
    assert!(!svg.contains("<script"), "{svg}");
}

#[test]
fn what_is_short_beside_the_whole_has_an_axis_of_its_own() {
    let trace = fixture::change();
    let owners = Owners::of(&trace);
    let panels = panels(&trace, trace.root().unwrap(), &owners);
    let names = |panel: &Panel<'_>| -> Vec<String> {
        let rows = panel.rows.iter();
        rows.map(|row| row.span.name.clone()).collect()
    };
    assert_eq!(panels.len(), 2);
    assert_eq!(names(&panels[0]), ["change", "watch"]);
    assert_eq!(names(&panels[1])[..3], ["queue", "plan", "encode"]);
    let heading = "Enlarged: from when the controller saw it, 34.2 ms";
    assert_eq!(panels[1].heading, heading);
    assert_eq!(owners.0, ["controller", "node-a", "node-b"]);
}

#[test]
fn a_change_without_a_trigger_is_one_panel() {
    let trace = fixture::trace(&[
        ("1", "", "change", 0, 9_000, "c"),
        ("2", "1", "queue", 0, 1_000, "c"),
        ("3", "1", "plan", 1_000, 7_000, "c"),
    ]);
    let svg = picture(&trace).unwrap();
    assert!(!svg.contains("Enlarged"), "{svg}");
    assert_eq!(bars(&svg).len(), 3);
}

#[test]
fn names_are_text_whatever_they_are_and_nothing_takes_more_room_than_there_is() {
    let long = "<b>".repeat(40);
    let lines: Vec<Line<'_>> = vec![
        ("1", "", "change", 0, 0, "c"),
        ("2", "1", &long, 0, 0, "unnamed"),
    ];
    let svg = picture(&fixture::trace(&lines)).unwrap();
    assert!(!svg.contains("<b>"), "{svg}");
    assert!(
        svg.contains(&format!("<title>{}", "&lt;b&gt;".repeat(40))),
        "{svg}"
    );
    assert_eq!(bars(&svg).len(), 2);
}

#[test]
fn without_a_root_there_is_no_picture() {
    let error = picture(&fixture::trace(&[])).unwrap_err().to_string();
    assert_eq!(error, "0 spans have no parent");
}

#[test]
fn more_nodes_than_colours_have_some_again_but_never_the_controllers() {
    let names = (0..20).map(|number| format!("node-{number}")).collect();
    let colours = Owners(names).colours();
    assert_eq!(colours.len(), 20);
    assert!(!colours[1..].contains(&COLOURS[0]), "{colours:?}");
}

#[test]
fn the_picture_of_a_change() {
    insta::assert_snapshot!(picture(&fixture::change()).unwrap());
}
