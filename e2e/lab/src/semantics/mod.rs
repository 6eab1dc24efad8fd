//! Checks `e2e/semantics.yaml`: every row of the behaviour table exists once, in order, and is either proved by tests
//! that ran and passed, or states what is missing.

mod rows;

use std::collections::{BTreeMap, BTreeSet};

use crate::seen::Seen;
use crate::tiers::{TIERS, Tier, Work};
use rows::Row;

/// The file of the rows, relative to the workspace.
pub const FILE: &str = "e2e/semantics.yaml";
/// Number of rows in the table.
const ROWS: u32 = 252;
/// Tiers whose tests use a kernel or an API server.
const WITH_KERNEL: [&str; 6] = ["namespaces", "images", "cluster", "guest", "real", "demo"];

/// Problems, each with its place and remedy.
pub type Complaint = String;

/// The results by tier. Tiers that were not selected have no entry.
pub type Ran = BTreeMap<&'static str, Seen>;

/// The verdict.
#[derive(Debug)]
pub struct Verdict {
    /// The complaints; empty if all is well.
    pub complaints: Vec<Complaint>,
    /// A summary in one line.
    pub summary: String,
}

/// Checks the text of the file against the results.
#[must_use]
pub fn judge(text: &str, ran: &Ran, long: bool) -> Verdict {
    let (rows, mut complaints) = match rows::read(text) {
        Ok(rows) => {
            let complaints = order(&rows);
            (rows, complaints)
        }
        Err(error) => (Vec::new(), vec![format!("it cannot be read: {error}")]),
    };
    for row in &rows {
        let wrong = form(row).into_iter().chain(proofs(row, ran, long));
        complaints.extend(wrong.map(|wrong| format!("row {}: {wrong}", row.number)));
    }
    let summary = summary(&rows, ran, complaints.len());
    Verdict {
        complaints,
        summary,
    }
}

/// Checks that every row exists once, in order.
fn order(rows: &[Row]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut numbers = BTreeSet::new();
    let mut highest = 0;
    for Row { number, .. } in rows {
        let wrong = if !(1..=ROWS).contains(number) {
            Some(format!("the table has rows 1 to {ROWS}; remove it"))
        } else if !numbers.insert(*number) {
            Some("it is there twice; remove one".to_owned())
        } else if *number < highest {
            Some(format!("it comes after row {highest}; put it in its place"))
        } else {
            None
        };
        complaints.extend(wrong.map(|wrong| format!("row {number}: {wrong}")));
        highest = highest.max(*number);
    }
    let missing = (1..=ROWS).filter(|number| !numbers.contains(number));
    complaints.extend(missing.map(|number| {
        format!("row {number}: it is missing; add it, with `says` and with `proof` or `later`")
    }));
    complaints
}

/// Checks a row independently of results.
fn form(row: &Row) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    if empty(&row.says) {
        complaints.push("`says` is empty; write in one sentence what Portolan does".to_owned());
    }
    let proved_by_long = row.proof.as_ref().or(row.long.as_ref());
    match (&proved_by_long, &row.later) {
        (None, None) => complaints.push(
            "neither `proof` nor `later`; name a test that shows it, or say what is missing".into(),
        ),
        (Some(_), Some(_)) => complaints.push(
            "both `proof` and `later`; remove one: a row that is not shown as a whole is for later"
                .into(),
        ),
        (Some(names), None) if names.is_empty() => complaints
            .push("`proof` is empty; name a test that shows it, or write `later`".to_owned()),
        (None, Some(_)) if empty(&row.later) => {
            complaints
                .push("`later` is empty; describe in one sentence what is missing".to_owned());
        }
        _ => {}
    }
    let mut once = BTreeSet::new();
    for name in row.proof.iter().chain(&row.long).flatten() {
        if !once.insert(name) {
            complaints.push(format!("`{name}` is there twice; remove one"));
        }
    }
    complaints
}

/// Checks that its tests ran and passed.
fn proofs(row: &Row, ran: &Ran, long: bool) -> Vec<Complaint> {
    let of_long_run = row.long.iter().flatten().filter(|_| long);
    let names = row.proof.iter().flatten().chain(of_long_run);
    names.filter_map(|name| proof(name, ran, long)).collect()
}

fn proof(name: &str, ran: &Ran, long: bool) -> Option<Complaint> {
    let Some((tier, test)) = split(name) else {
        let all: Vec<&str> = TIERS
            .iter()
            .filter(|t| t.has_tests())
            .map(|t| t.name)
            .collect();
        return Some(format!(
            "`{name}` begins with no tier that has tests; write one of {} and `/`",
            all.join(", ")
        ));
    };
    let seen = ran.get(tier.name)?;
    if !is_of_form(tier, test, long) {
        None
    } else if seen.has_failed(test) {
        Some(format!("`{name}` failed; fix the cause"))
    } else if seen.passed.contains(test) {
        None
    } else {
        Some(format!(
            "`{name}` did not run; {}",
            nearest(test, seen).map_or_else(
                || "name a test that exists, or say with `later` what is missing".to_owned(),
                |near| format!("is it `{}/{near}`?", tier.name)
            )
        ))
    }
}

/// A tier with tests, and the name of one.
fn split(name: &str) -> Option<(&'static Tier, &str)> {
    let (tier, test) = name.split_once('/')?;
    let tier = TIERS.iter().find(|own| own.name == tier)?;
    (tier.has_tests() && !test.is_empty()).then_some((tier, test))
}

/// Whether the unit of a test runs in this form. A unit that does not exist is missing in both.
fn is_of_form(tier: &Tier, test: &str, long: bool) -> bool {
    let runs = |unit: Work| unit.runs(test);
    !tier.all().any(runs) || tier.selected(long).any(runs)
}

/// The number of rows with a proof on a kernel or an API server, and how many of them have one in the gate, which is
/// `cargo verify` without `--long`.
fn of_the_gate(rows: &[Row]) -> (usize, usize) {
    let on_a_kernel =
        |name: &str| split(name).is_some_and(|(tier, _)| WITH_KERNEL.contains(&tier.name));
    let is_kept =
        |(tier, test): (&Tier, &str)| !tier.work.is_empty() && is_of_form(tier, test, false);
    let in_gate = |name: &str| split(name).is_some_and(is_kept);
    let mut counts = (0, 0);
    for row in rows {
        let mut proofs = row.proof.iter().flatten().filter(|name| on_a_kernel(name));
        let mut long = row.long.iter().flatten().filter(|name| on_a_kernel(name));
        let kept = proofs.clone().any(|name| in_gate(name));
        counts.0 += usize::from(proofs.next().or(long.next()).is_some());
        counts.1 += usize::from(kept);
    }
    counts
}

/// A test that ran and ends with the same word: usually it was moved.
fn nearest<'a>(test: &str, seen: &'a Seen) -> Option<&'a str> {
    let last = |name: &str| name.rsplit("::").next().map(str::to_owned);
    let mut found = seen.passed.iter().filter(|name| last(name) == last(test));
    found.next().map(String::as_str)
}

fn summary(rows: &[Row], ran: &Ran, complaints: usize) -> String {
    let all: BTreeSet<&String> = rows
        .iter()
        .flat_map(|row| row.proof.iter().chain(&row.long))
        .flatten()
        .collect();
    let proved = rows
        .iter()
        .filter(|row| row.proof.is_some() || row.long.is_some())
        .count();
    let later = rows.iter().filter(|row| row.later.is_some()).count();
    let mut text = format!(
        "semantics: {} rows, {proved} proved by {} tests, {later} for later",
        rows.len(),
        all.len()
    );
    let with_tests = || TIERS.iter().filter(|tier| tier.has_tests());
    if !with_tests().all(|tier| ran.contains_key(tier.name)) {
        let looked =
            |name: &&&String| split(name).is_some_and(|(tier, _)| ran.contains_key(tier.name));
        let tiers = with_tests().map(|tier| tier.name);
        let tiers: Vec<&str> = tiers.filter(|name| ran.contains_key(name)).collect();
        text += &match tiers.len() {
            0 => "; no tier with tests was run, so none was looked for".to_owned(),
            _ => format!(
                "; only the {} tests of {} were looked for",
                all.iter().filter(looked).count(),
                tiers.join(", ")
            ),
        };
    }
    let (all, kept) = of_the_gate(rows);
    if all > 0 {
        text += &format!(
            "; {kept} of {all} rows with a proof on a kernel or an API server keep one in the gate"
        );
    }
    if complaints > 0 {
        text += &format!("; {complaints} WRONG, see above");
    }
    text
}

#[cfg(test)]
mod tests;
