//! Checks that an image matches its recipe, fits the chart, and has programs that start. All checks use its archive,
//! not its sources.
//!
//! Touches: a container that buildah creates from the archive. Its programs only print help or versions, or read
//! (`doctor`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::buildah::Store;
use super::chart::Container;
use super::contents::{crates_path, place_of};
use super::debian;
use super::oci::{Image, Kind, look};
use super::recipe::VERSION;
use super::recipe::{IPTABLES, PACKAGES_LABEL, PATH, Recipe};
use crate::{nested, process, progress};

/// The rules that the agent loads, in all forms in tests.
const RULES: &str = "node-agent/reconcile/tests/snapshots";
/// Words in rules that are not extensions.
const OF_ALL_TABLES: &[&str] = &["ACCEPT", "DROP", "RETURN"];
/// Prefix of Portolan's own chains.
const OUR_CHAINS: &str = "PORTOLAN-";
/// The tools that the agent starts, without their subcommands.
const TOOLS: &[&str] = &[
    "iptables-nft",
    "iptables-legacy",
    "ip6tables-nft",
    "ip6tables-legacy",
];
/// The agent's other tools, each with an argument without effect.
const BESIDES: &[(&str, &str)] = &[("modprobe", "--version"), ("nft", "--version")];
/// Parts of paths of what only the IPVS dataplane needs. A library of nft has xtables in its name.
const OF_IPVS: &[&str] = &[
    "bin/iptables",
    "bin/ip6tables",
    "bin/xtables",
    "/xtables/",
    "bin/ipset",
];
/// The agent's message about a missing tool.
const NOT_FOUND: &str = "install the package";
/// Number of starts of a program that succeeds and prints nothing. Every program started by the checks prints
/// something; once, on a busy machine, `buildah run` lost the output.
const ATTEMPTS: usize = 3;

/// Counts checks and prints each result.
pub(super) struct Checks<'a> {
    sink: &'a mut dyn Write,
    pub(super) passed: usize,
    pub(super) failed: usize,
}

impl<'a> Checks<'a> {
    pub(super) fn new(sink: &'a mut dyn Write) -> Self {
        Self {
            sink,
            passed: 0,
            failed: 0,
        }
    }

    /// # Errors
    /// The output is closed.
    pub(super) fn check(&mut self, what: &str, result: Result<()>) -> Result<()> {
        let line = match result {
            Ok(()) => {
                self.passed += 1;
                format!("ok     {what}")
            }
            Err(error) => {
                self.failed += 1;
                format!("FAILED {what}: {error:#}")
            }
        };
        self.line(&line)
    }

    /// # Errors
    /// The output is closed.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.sink, "{line}").context("writing what was checked")
    }
}

/// An image whose archive is in the store.
pub(super) struct Made {
    pub(super) recipe: &'static Recipe,
    pub(super) image: Image,
    /// The expected configuration and annotations.
    pub(super) labels: Vec<(&'static str, String)>,
}

/// An image under test.
pub(super) struct Subject<'a> {
    pub(super) made: &'a Made,
    /// The chart's containers, including those of other images.
    pub(super) containers: &'a [Container],
    /// The container for running its programs, under the recipe's name.
    pub(super) store: &'a Store,
}

impl Subject<'_> {
    /// Runs all checks.
    ///
    /// # Errors
    /// This machine cannot start containers, or the output is closed.
    pub(super) fn check(&self, checks: &mut Checks<'_>) -> Result<()> {
        let name = self.made.recipe.name;
        // Whether this machine can start containers does not depend on the image.
        let asked = [self.made.recipe.program, "--version"].map(str::to_owned);
        self.store.run_in(name, &[], &asked)?;
        let mut check = |what: &str, result| checks.check(&format!("{name}: {what}"), result);
        check("declares user and entrypoint", self.configuration())?;
        check("lists its packages", self.said())?;
        check(
            "has no owner but root and no time",
            none(&self.made.image.odd),
        )?;
        check("has the licence of every package", self.licences())?;
        let own = |container: &&Container| container.program() == self.made.recipe.program;
        for container in self.containers.iter().filter(own) {
            let missing = container.missing(&self.made.image.places, PATH, self.made.recipe.user);
            let of = &container.name;
            let what = format!("has a place for all that the chart names: {of}");
            check(&what, none(&missing))?;
            let what = format!("takes the chart's arguments: {of}");
            check(&what, self.takes(container))?;
        }
        check("prints its version", self.version())?;
        if self.made.recipe.packages.is_empty() {
            return Ok(());
        }
        for (program, word) in BESIDES {
            let ran = self.run(&[], &[program, word]).map(drop);
            check(&format!("{program} starts"), ran)?;
        }
        if !self.made.recipe.packages.contains(&IPTABLES) {
            return check("has nothing of iptables and ipset", none(&self.of_ipvs()));
        }
        let what = "has the extensions that the agent's rules need";
        check(what, self.extensions())?;
        for tool in TOOLS {
            check(&format!("{tool} starts"), self.tool(tool))?;
        }
        check("doctor misses no tool", self.doctor())
    }

    /// Paths of programs and files that only the IPVS dataplane needs.
    fn of_ipvs(&self) -> Vec<&String> {
        let places = self.made.image.places.keys();
        places
            .filter(|place| OF_IPVS.iter().any(|word| place.contains(word)))
            .collect()
    }

    fn configuration(&self) -> Result<()> {
        let config = &self.made.image.config;
        let wanted = json!({
            "User": self.made.recipe.user,
            "Entrypoint": [place_of(self.made.recipe)],
            "WorkingDir": "/",
            "Env": [format!("PATH={PATH}")],
        });
        for (key, wanted) in wanted.as_object().into_iter().flatten() {
            let found = &config[key];
            ensure!(found == wanted, "{key} is {found} instead of {wanted}");
        }
        Ok(())
    }

    fn said(&self) -> Result<()> {
        for (place, said) in [
            ("labels", &self.made.image.config["Labels"]),
            ("annotations", &self.made.image.annotations),
        ] {
            for (key, wanted) in &self.made.labels {
                let found = &said[*key];
                ensure!(
                    found.as_str() == Some(wanted),
                    "{key} is {found} in {place}, instead of {wanted}"
                );
            }
        }
        Ok(())
    }

    fn licences(&self) -> Result<()> {
        let packages = self.made.image.config["Labels"][PACKAGES_LABEL].as_str();
        let packages = packages.context("it does not say which packages are in it")?;
        let names = packages
            .split_whitespace()
            .filter_map(|one| one.split_once('='));
        let names: Vec<&str> = names
            .map(|(name, _)| name)
            .chain([self.made.recipe.program])
            .collect();
        ensure!(names.len() > 1, "there is not even a C library: {packages}");
        let paths = names.iter().map(|name| debian::copyright_path(name));
        let paths = paths.chain([crates_path(self.made.recipe)]);
        let lacking = paths.filter(|path| look(&self.made.image.places, path).is_none());
        none(&lacking.collect::<Vec<_>>())
    }

    /// Arguments before --help are parsed too, so an unknown one is rejected.
    fn takes(&self, container: &Container) -> Result<()> {
        let words = container.command.iter().map(String::as_str);
        let words: Vec<&str> = words.chain(["--help"]).collect();
        let said = self.run(&container.capabilities, &words)?;
        ensure!(said.contains("Usage: "), "it printed no help: {said}");
        Ok(())
    }

    fn version(&self) -> Result<()> {
        let said = self.run(&[], &[self.made.recipe.program, "--version"])?;
        let wanted = format!("{} {VERSION}", self.made.recipe.program);
        ensure!(
            said.trim() == wanted,
            "it says `{}`, not `{wanted}`",
            said.trim()
        );
        Ok(())
    }

    /// Each of them is a file that the tools open by name.
    fn extensions(&self) -> Result<()> {
        let mut lacking = Vec::new();
        for (family, names) in rules()? {
            ensure!(names.len() > 4, "rules name few extensions: {names:?}");
            for name in names {
                let ends = ["libxt", family].map(|begin| format!("/xtables/{begin}_{name}.so"));
                let there = |place: &String| {
                    let named = ends.iter().any(|end| place.ends_with(end));
                    named
                        && matches!(
                            look(&self.made.image.places, place),
                            Some((_, Kind::File(_)))
                        )
                };
                if !self.made.image.places.keys().any(there) {
                    lacking.push(format!("{} ({family})", name));
                }
            }
        }
        none(&lacking)
    }

    /// The help has a section for each loadable extension.
    fn tool(&self, tool: &str) -> Result<()> {
        for act in ["save", "restore"] {
            self.run(&[], &[&format!("{tool}-{act}"), "--version"])?;
        }
        let asked = ["-m", "conntrack", "-m", "set", "-j", "MASQUERADE", "--help"];
        let said = self.run(&[], &[&[tool][..], &asked].concat())?;
        for part in [
            "conntrack match options",
            "set match options",
            "MASQUERADE target options",
        ] {
            ensure!(said.contains(part), "its help has no part `{part}`");
        }
        Ok(())
    }

    /// It may fail on this machine for good reasons, but not because of the image.
    fn doctor(&self) -> Result<()> {
        let agent = self.containers.iter().find(|container| {
            container.program() == self.made.recipe.program && !container.capabilities.is_empty()
        });
        let capabilities = agent.map_or(&[][..], |agent| &agent.capabilities);
        let words = [self.made.recipe.program, "doctor", "--all", "-o", "json"].map(str::to_owned);
        let ended = self
            .store
            .run_in(self.made.recipe.name, capabilities, &words)?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let errors = process::last_lines(&ended.stderr, 6);
        let report: Value = serde_json::from_str(&said)
            .with_context(|| format!("its report is no JSON: {said}{errors}"))?;
        let findings = report["findings"].as_array().context("it found nothing")?;
        ensure!(findings.len() > 4, "it looked at little: {said}");
        let missing = findings
            .iter()
            .filter_map(|finding| finding["message"].as_str());
        none(
            &missing
                .filter(|text| text.contains(NOT_FOUND))
                .collect::<Vec<_>>(),
        )
    }

    fn run(&self, capabilities: &[String], words: &[&str]) -> Result<String> {
        let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let run = || {
            self.store
                .run_in(self.made.recipe.name, capabilities, &command)
        };
        let mut ended = run()?;
        for _ in 1..ATTEMPTS {
            if !(ended.status.success() && ended.stdout.is_empty()) {
                break;
            }
            progress::say(&format!("`{}` printed nothing; once more", words.join(" ")));
            ended = run()?;
        }
        if !ended.status.success() {
            let said = [ended.stdout, ended.stderr].concat();
            bail!(
                "`{}` ended with {} in a container that `buildah run` made: {}",
                words.join(" "),
                ended.status,
                process::last_lines(&said, 6)
            );
        }
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }
}

/// Extensions named by the agent's rules, for each family by the prefix of their files.
fn rules() -> Result<[(&'static str, BTreeSet<String>); 2]> {
    let folder = nested::root().join(RULES);
    let reading = || format!("reading {}", folder.display());
    let mut all = String::new();
    for entry in fs::read_dir(&folder).with_context(reading)? {
        all += &fs::read_to_string(entry.with_context(reading)?.path()).with_context(reading)?;
    }
    Ok(["libipt", "libip6t"].map(|family| {
        let is_others = |name: &str| {
            OF_ONE_FAMILY
                .iter()
                .any(|(own, of)| *own == name && *of != family)
        };
        let mut names = extensions(&all);
        names.retain(|name| !is_others(name));
        (family, names)
    }))
}

/// Matches that exist for one family only.
const OF_ONE_FAMILY: [(&str, &str); 2] = [("icmp", "libipt"), ("icmp6", "libip6t")];

fn extensions(rules: &str) -> BTreeSet<String> {
    let lines = rules.lines().filter(|line| line.starts_with("-A "));
    let mut names = BTreeSet::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = words
            .windows(2)
            .filter(|pair| matches!(pair[0], "-m" | "-j"));
        let named = named.map(|pair| pair[1]);
        let extensions =
            named.filter(|name| !name.starts_with(OUR_CHAINS) && !OF_ALL_TABLES.contains(name));
        names.extend(extensions.map(str::to_owned));
    }
    names
}

fn none<T: std::fmt::Display>(found: &[T]) -> Result<()> {
    let found: Vec<String> = found.iter().map(T::to_string).collect();
    ensure!(found.is_empty(), "{}", found.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_what_rules_match_and_jump_to_but_for_chains() {
        let rules = ":PORTOLAN-INPUT - [0:0]\n\
            -A PORTOLAN-INPUT -m set ! --match-set A dst -m tcp --dport 1 -j REJECT --reject-with x\n\
            -A PORTOLAN-INPUT -m conntrack -j DROP\n-A INPUT -j PORTOLAN-INPUT\n# -m nothing\n";
        let names: Vec<String> = extensions(rules).into_iter().collect();
        assert_eq!(names, ["REJECT", "conntrack", "set", "tcp"]);
    }

    #[test]
    fn the_agents_rules_need_what_the_tools_are_asked_for() {
        for (_, names) in rules().unwrap() {
            for name in ["conntrack", "set", "MASQUERADE", "MARK", "REJECT"] {
                assert!(names.contains(name), "{names:?}");
            }
        }
    }

    #[test]
    fn verdicts_are_counted_and_printed_as_the_lab_reads_them() {
        let mut said = Vec::new();
        let mut checks = Checks::new(&mut said);
        checks.check("a", Ok(())).unwrap();
        checks.check("b", none(&["c", "d"])).unwrap();
        assert_eq!((checks.passed, checks.failed), (1, 1));
        assert_eq!(said, b"ok     a\nFAILED b: c; d\n");
    }
}
