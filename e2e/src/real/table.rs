//! The selection of Kubernetes' tests, and the reasons for those left out: `e2e/real/tests.yaml`.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::stage::Stage;

/// The file.
const TESTS: &str = "real/tests.yaml";

/// The whole table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// A regular expression for the names of all that concern a service proxy.
    all: String,
    /// Ten of them that cover the most.
    short: Vec<String>,
    /// Those that cannot run here.
    left_out: Vec<LeftOut>,
}

/// Tests that cannot run here.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOut {
    /// A part of their names.
    pub(super) part: String,
    /// Why.
    pub(super) why: String,
}

/// Those that are to be run.
#[derive(Debug)]
pub(super) struct Chosen {
    /// As the program of tests takes it.
    pub(super) focus: String,
    /// Not these of them.
    pub(super) left_out: Vec<LeftOut>,
    /// Names, all of which have to be found.
    pub(super) required: Vec<String>,
}

impl Table {
    pub(super) fn read(stage: &Stage) -> Result<Self> {
        serde_saphyr::from_str(&stage.files.text(TESTS)?).with_context(|| format!("read {TESTS}"))
    }

    pub(super) fn all(self) -> Chosen {
        Chosen {
            focus: self.all,
            left_out: self.left_out,
            required: Vec::new(),
        }
    }

    pub(super) fn short(self) -> Chosen {
        // Labels may follow, other words may not.
        let whole = |name: &String| format!("{}( \\[|$)", quoted(name));
        let parts: Vec<String> = self.short.iter().map(whole).collect();
        Chosen {
            focus: parts.join("|"),
            left_out: Vec::new(),
            required: self.short,
        }
    }
}

impl Chosen {
    /// All that match this.
    pub(super) fn matching(focus: &str) -> Self {
        Self {
            focus: focus.to_owned(),
            left_out: Vec::new(),
            required: Vec::new(),
        }
    }

    /// Why a test is left out, if it is.
    pub(super) fn why_left_out(&self, name: &str) -> Option<&str> {
        let found = self.left_out.iter().find(|one| name.contains(&one.part));
        found.map(|one| one.why.as_str())
    }
}

/// A text as a regular expression that matches it and nothing else.
pub(super) fn quoted(text: &str) -> String {
    let special = r"\.+*?()|[]{}^$";
    text.chars().fold(String::new(), |mut quoted, sign| {
        if special.contains(sign) {
            quoted.push('\\');
        }
        quoted.push(sign);
        quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_signs_of_regular_expressions_are_quoted() {
        assert_eq!(quoted("[sig] a.b (c)"), r"\[sig\] a\.b \(c\)");
    }

    #[test]
    fn the_table_names_ten_tests_and_a_reason_for_each_that_is_left_out() {
        let text = include_str!("../../real/tests.yaml");
        let table: Table = serde_saphyr::from_str(text).unwrap();
        assert_eq!(table.short.len(), 10);
        assert!(table.left_out.iter().all(|one| one.why.len() > 10));
    }

    #[test]
    fn tests_that_ask_the_internet_are_left_out_and_its_names_are_not() {
        let text = include_str!("../../real/tests.yaml");
        let all = serde_saphyr::from_str::<Table>(text).unwrap().all();
        for left_out in [
            "should provide Internet connection for containers [Feature:Networking-IPv4]",
            "should provide Internet connection for containers [Feature:Networking-IPv6]",
            "should provider Internet connection for containers using DNS [Feature:Networking-DNS]",
        ] {
            let name = format!("[sig-network] Networking {left_out}");
            assert!(all.why_left_out(&name).is_some(), "{name}");
        }
        for run in [
            "Networking should check kube-proxy urls",
            "DNS configMap nameserver Forward PTR lookup",
        ] {
            assert_eq!(all.why_left_out(&format!("[sig-network] {run}")), None);
        }
    }
}
