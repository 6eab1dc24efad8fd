//! Every error in the file is reported, with the row and the remedy.

use super::*;
use crate::nested;

/// A correct row.
fn good(number: u32) -> String {
    format!("- row: {number}\n  says: It does.\n  later: It does not yet.\n")
}

/// All rows, with another text in place of row 7.
fn file(seventh: &str) -> String {
    let mut text = String::from("# Head.\n");
    for number in 1..=ROWS {
        if number == 7 {
            text += seventh;
        } else {
            text += &good(number);
        }
    }
    text
}

fn proved(name: &str) -> String {
    file(&format!(
        "- row: 7\n  says: It does.\n  proof:\n  - {name}\n"
    ))
}

/// Every tier ran; in `pure` these tests passed and failed.
fn ran(passed: &[&str], failed: &[&str]) -> Ran {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let mut all: Ran = TIERS
        .iter()
        .map(|tier| (tier.name, Seen::default()))
        .collect();
    let pure = all.get_mut("pure").unwrap();
    pure.passed = names(passed);
    pure.failed = names(failed);
    all
}

/// The only complaint.
fn complaint(text: &str, ran: &Ran) -> String {
    let mut complaints = judge(text, ran, false).complaints;
    assert_eq!(complaints.len(), 1, "{complaints:#?}");
    complaints.remove(0)
}

#[test]
fn a_correct_file_is_reported_in_one_line() {
    let two = "- row: 7\n  says: It does.\n  proof:\n  - pure/a::b::c\n  - pure/a::b::d\n";
    let verdict = judge(&file(two), &ran(&["a::b::c", "a::b::d"], &[]), false);
    assert_eq!(verdict.complaints, [] as [&str; 0]);
    assert_eq!(
        verdict.summary,
        "semantics: 252 rows, 1 proved by 2 tests, 251 for later"
    );
}

#[test]
fn a_missing_row_is_named() {
    let missing = complaint(&file(""), &ran(&[], &[]));
    assert!(
        missing.starts_with("row 7: it is missing; add it"),
        "{missing}"
    );
    let verdict = judge("[]", &ran(&[], &[]), false);
    assert_eq!(verdict.complaints.len(), 252);
    let summary = verdict.summary;
    assert!(summary.ends_with("252 WRONG, see above"), "{summary}");
}

#[test]
fn rows_that_are_there_twice_out_of_order_or_not_in_the_table_are_named() {
    for (text, expected) in [
        (
            file(&good(7).repeat(2)),
            "row 7: it is there twice; remove one",
        ),
        (
            file("") + &good(7),
            "row 7: it comes after row 252; put it in its place",
        ),
        (
            file(&good(7)) + &good(0),
            "row 0: the table has rows 1 to 252; remove it",
        ),
        (
            file(&good(7)) + &good(253),
            "row 253: the table has rows 1 to 252; remove it",
        ),
    ] {
        assert_eq!(complaint(&text, &ran(&[], &[])), expected);
    }
}

#[test]
fn a_row_needs_a_proof_or_a_reason_and_not_both() {
    for (rest, expected) in [
        (
            "  says: It does.\n",
            "neither `proof` nor `later`; name a test",
        ),
        (
            "  says: It does.\n  proof:\n  - pure/a::b::c\n  later: Not yet.\n",
            "both `proof` and `later`; remove one",
        ),
        ("  says: It does.\n  proof: []\n", "`proof` is empty"),
        ("  says: It does.\n  later: ''\n", "`later` is empty"),
        ("  says:\n  later: Not yet.\n", "`says` is empty"),
        ("  later: Not yet.\n", "`says` is empty"),
        (
            "  says: It does.\n  proof:\n  - pure/a::b::c\n  - pure/a::b::c\n",
            "`pure/a::b::c` is there twice",
        ),
    ] {
        let text = file(&format!("- row: 7\n{rest}"));
        let wrong = complaint(&text, &ran(&["a::b::c"], &[]));
        assert!(wrong.starts_with("row 7: "), "{wrong}");
        assert!(wrong.contains(expected), "{wrong}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_one_complaint_with_the_line() {
    let text = file(
        "- row: 7
  says: It does.
  later: Not yet.
  prof: x
",
    );
    let verdict = judge(&text, &ran(&[], &[]), false);
    let [wrong] = &verdict.complaints[..] else {
        panic!("{:#?}", verdict.complaints)
    };
    assert!(wrong.starts_with("it cannot be read: "), "{wrong}");
    assert!(
        wrong.contains("prof") && wrong.contains("line 23"),
        "{wrong}"
    );
}

#[test]
fn a_test_that_does_not_exist_or_did_not_run_is_named_with_one_that_did() {
    let gone = complaint(&proved("pure/a::b::c"), &ran(&["a::b::other"], &[]));
    assert!(
        gone.contains("`pure/a::b::c` did not run; name a test that exists"),
        "{gone}"
    );
    let moved = complaint(&proved("pure/a::b::c"), &ran(&["a::new::c"], &[]));
    assert!(
        moved.ends_with("did not run; is it `pure/a::new::c`?"),
        "{moved}"
    );
    let elsewhere = complaint(&proved("unit/a::b::c"), &ran(&["a::b::c"], &[]));
    assert!(
        elsewhere.contains("`unit/a::b::c` did not run"),
        "{elsewhere}"
    );
}

#[test]
fn a_test_that_failed_proves_nothing_though_it_passed_too() {
    let failed = ran(&["a::b::c"], &["a::b::c"]);
    let wrong = complaint(&proved("pure/a::b::c"), &failed);
    assert!(wrong.contains("`pure/a::b::c` failed"), "{wrong}");
}

#[test]
fn a_proof_needs_a_tier_that_has_tests() {
    for name in ["a::b::c", "fast/a::b::c", "lint/a::b::c", "pure/"] {
        let wrong = complaint(&proved(name), &ran(&["a::b::c"], &[]));
        let tiers = "pure, unit, namespaces, nftables, images";
        let expected = format!("no tier that has tests; write one of {tiers}");
        assert!(wrong.contains(&expected), "{wrong}");
    }
}

#[test]
fn of_some_tiers_only_their_tests_are_looked_for_and_the_line_says_so() {
    let text = proved("guest/packet-path");
    let some = |names: &[&'static str]| -> Ran {
        names.iter().map(|name| (*name, Seen::default())).collect()
    };
    let verdict = judge(&text, &some(&["format", "pure", "unit"]), false);
    assert_eq!(verdict.complaints, [] as [&str; 0]);
    assert_eq!(
        verdict.summary,
        "semantics: 252 rows, 1 proved by 1 tests, 251 for later; \
         only the 0 tests of pure, unit were looked for; \
         1 of 1 rows with a proof on a kernel or an API server keep one in the gate"
    );
    let verdict = judge(&text, &some(&["format"]), false);
    let summary = verdict.summary;
    assert!(summary.contains("none was looked for; "), "{summary}");
    let wrong = complaint(&text, &some(&["guest"]));
    assert!(wrong.contains("`guest/packet-path` did not run"), "{wrong}");
    // The format is checked regardless of results.
    assert_eq!(judge("[]", &Ran::default(), false).complaints.len(), 252);
}

#[test]
fn a_proof_by_a_unit_of_long_runs_is_looked_for_only_there() {
    for (name, is_long) in [
        ("guest/coexistence::S-1, a check", true),
        ("cluster/churn", true),
        ("guest/packet-path::S-1, a check", false),
        ("guest/unknown", false),
    ] {
        let text = proved(name);
        let complaints = judge(&text, &ran(&[], &[]), false).complaints;
        assert_eq!(complaints.is_empty(), is_long, "{complaints:?}");
        assert_eq!(judge(&text, &ran(&[], &[]), true).complaints.len(), 1);
    }
}

/// A change of the gate's units must not remove proofs unnoticed.
#[test]
fn the_gate_keeps_a_proof_of_most_rows_on_a_kernel_or_an_api_server() {
    let text = std::fs::read_to_string(nested::root().join(FILE)).unwrap();
    let (all, kept) = of_the_gate(&rows::read(&text).unwrap());
    assert!(all >= 177 && kept >= 150, "{kept} of {all}");
}

#[test]
fn the_file_of_this_project_has_the_right_form() {
    let text = std::fs::read_to_string(nested::root().join(FILE)).unwrap();
    let verdict = judge(&text, &Ran::default(), false);
    assert!(verdict.complaints.is_empty(), "{:#?}", verdict.complaints);
}

#[test]
fn a_proof_of_the_long_run_is_looked_for_only_there() {
    let text =
        file("- row: 7\n  says: It does.\n  proof: [pure/a::b::c]\n  long: [pure/a::b::soak]\n");
    let short = ran(&["a::b::c"], &[]);
    assert_eq!(judge(&text, &short, false).complaints, [] as [&str; 0]);
    let complaints = judge(&text, &short, true).complaints;
    assert!(
        complaints[0].contains("`pure/a::b::soak` did not run"),
        "{complaints:?}"
    );
    let only_long = file("- row: 7\n  says: It does.\n  long: [pure/a::b::soak]\n");
    assert_eq!(judge(&only_long, &short, false).complaints, [] as [&str; 0]);
}
