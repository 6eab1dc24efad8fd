//! Scenarios that run separately because of special requirements.

use anyhow::{Result, bail};

use super::RUN;

/// A special requirement of a scenario, which therefore runs separately.
#[derive(Debug, Clone, Copy)]
pub(super) enum Apart {
    /// A kernel with this boot option.
    Kernel(&'static str),
    /// A real API server besides the kernel.
    ApiServer,
}

const APART: [(&str, Apart); 2] = [
    ("bare", Apart::Kernel("ipv6.disable=1")),
    ("bootstrap", Apart::ApiServer),
];

/// Whether a scenario needs a separate kernel or control plane.
#[must_use]
pub fn runs_alone(scenario: &str) -> bool {
    APART.iter().any(|(name, _)| *name == scenario)
}

/// The special requirements of these scenarios.
pub(super) fn apart(words: &[&str]) -> Result<Option<Apart>> {
    let [RUN, names @ ..] = words else {
        return Ok(None);
    };
    let found = APART.iter().find(|(name, _)| names.contains(name));
    let is_other = |word: &&str, name: &str| !word.starts_with("--") && *word != name;
    if let Some((name, needs)) = found
        && without_values(names).any(|word| is_other(&word, name))
    {
        let needs = match needs {
            Apart::Kernel(with) => format!("is for a kernel that is started with {with}"),
            Apart::ApiServer => "needs an API server".into(),
        };
        bail!("{name} {needs}: run it by itself");
    }
    Ok(found.map(|(_, needs)| *needs))
}

/// The words that are neither options nor their values.
fn without_values<'a>(words: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let mut is_value = false;
    words.iter().copied().filter(move |word| {
        let was_value = std::mem::replace(&mut is_value, *word == "--seed");
        !was_value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_needs_what_no_other_has_runs_by_itself() {
        let bare = apart(&["run", "bare"]).unwrap();
        assert!(matches!(bare, Some(Apart::Kernel("ipv6.disable=1"))));
        let bootstrap = apart(&["run", "bootstrap"]).unwrap();
        assert!(matches!(bootstrap, Some(Apart::ApiServer)));
        for usual in [["run", "--all"], ["demo", "bare"]] {
            assert!(apart(&usual).unwrap().is_none(), "{usual:?}");
        }
        assert!(
            apart(&["run", "bare", "--seed", "7", "--long"])
                .unwrap()
                .is_some()
        );
        assert!(apart(&["run", "udp", "bare"]).is_err());
        assert!(apart(&["run", "bootstrap", "udp"]).is_err());
    }
}
