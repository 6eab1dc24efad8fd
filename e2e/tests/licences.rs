//! Checks the rules of `deny.toml` with `cargo metadata` alone: licences, bans, sources and
//! duplicate versions. Security advisories need the network, so they are not checked here: run
//! `cargo deny check advisories`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use portolan_e2e::program::Program;
use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: BTreeSet<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: String,
    wildcards: String,
    allow_wildcard_paths: bool,
    deny: Vec<WithReason>,
    skip: Vec<WithReason>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithReason {
    /// A name, for skips with the beginning of a version: `syn@2`.
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_git: String,
    unknown_registry: String,
    allow_registry: Vec<String>,
    allow_git: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

fn deny() -> Deny {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every package that is built on this platform, for programs, tests and build scripts.
fn packages() -> Vec<Package> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let text = Program::Cargo
        .run(&[
            "metadata",
            "--offline",
            "--all-features",
            "--format-version",
            "1",
            "--filter-platform",
            &platform,
        ])
        .unwrap();
    let metadata: Metadata = serde_json::from_str(&text).unwrap();
    let used: BTreeSet<_> = metadata
        .resolve
        .nodes
        .into_iter()
        .map(|node| node.id)
        .collect();
    let packages: Vec<_> = metadata
        .packages
        .into_iter()
        .filter(|package| used.contains(&package.id))
        .collect();
    assert!(
        packages.len() > 50,
        "only {} packages: is this the workspace?",
        packages.len()
    );
    packages
}

/// Whether a licence expression can be satisfied with the allowed licences alone.
fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    // `/` is the old notation for `OR`.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allowed,
    };
    let result = parser.any()?;
    match parser.words {
        [] => Ok(result),
        rest => Err(format!("{expression:?}: unexpected {rest:?}")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut result = self.all()?;
        while self.take("OR") {
            result |= self.all()?;
        }
        Ok(result)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut result = self.one()?;
        while self.take("AND") {
            result &= self.one()?;
        }
        Ok(result)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let result = self.any()?;
            return if self.take(")") {
                Ok(result)
            } else {
                Err("a bracket stays open".into())
            };
        }
        let name = *self.words.first().ok_or("the expression ends too early")?;
        self.words = &self.words[1..];
        if !self.take("WITH") {
            return Ok((self.allowed)(name));
        }
        let exception = *self.words.first().ok_or("WITH stands at the end")?;
        self.words = &self.words[1..];
        Ok((self.allowed)(&format!("{name} WITH {exception}")))
    }
}

#[test]
fn every_package_has_a_licence_that_is_allowed() {
    let licenses = deny().licenses;
    let packages = packages();
    let mut wrong = Vec::new();
    for package in &packages {
        let own = licenses
            .exceptions
            .iter()
            .find(|exception| exception.name == package.name);
        let allowed = |name: &str| {
            licenses.allow.contains(name) || own.is_some_and(|own| own.allow.contains(name))
        };
        match &package.license {
            None => wrong.push(format!("{} names no licence", package.name)),
            Some(expression) => match satisfied(expression, &allowed) {
                Ok(true) => {}
                Ok(false) => wrong.push(format!("{}: {expression}", package.name)),
                Err(error) => wrong.push(format!("{}: {error}", package.name)),
            },
        }
    }
    assert!(wrong.is_empty(), "not allowed by deny.toml: {wrong:#?}");
    for exception in licenses.exceptions {
        let used = packages
            .iter()
            .any(|package| package.name == exception.name);
        assert!(
            used,
            "{} is not used any more: remove its exception",
            exception.name
        );
    }
}

#[test]
fn no_banned_crate_and_no_version_without_bounds_comes_in() {
    let bans = deny().bans;
    assert_eq!(
        (bans.wildcards.as_str(), bans.allow_wildcard_paths),
        ("deny", true)
    );
    let mut wrong = Vec::new();
    for package in packages() {
        if let Some(ban) = bans.deny.iter().find(|ban| ban.name == package.name) {
            wrong.push(format!("{} is banned: {}", package.name, ban.reason));
        }
        // Only crates of the workspace: the registry rejects wildcards in all others.
        let ours = package.source.is_none();
        for dependency in package.dependencies.iter().filter(|_| ours) {
            if dependency.req == "*" && dependency.path.is_none() {
                wrong.push(format!(
                    "{} wants any version of {}",
                    package.name, dependency.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn everything_comes_from_the_registry_and_nothing_from_git() {
    let sources = deny().sources;
    assert_eq!(sources.unknown_git, "deny");
    assert_eq!(sources.unknown_registry, "deny");
    assert!(
        sources.allow_git.is_empty(),
        "git sources: {:?}",
        sources.allow_git
    );
    for package in packages() {
        let Some(source) = package.source else {
            continue;
        };
        let known = source
            .strip_prefix("registry+")
            .is_some_and(|registry| sources.allow_registry.iter().any(|known| known == registry));
        assert!(known, "{} comes from {source}", package.name);
    }
}

#[test]
fn no_crate_is_there_in_two_versions_but_those_with_a_reason() {
    let bans = deny().bans;
    assert_eq!(bans.multiple_versions, "deny");
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions
            .entry(package.name)
            .or_default()
            .insert(package.version);
    }
    let twice: BTreeMap<_, _> = versions
        .into_iter()
        .filter(|entry| entry.1.len() > 1)
        .collect();
    let mut unused: BTreeSet<&str> = bans.skip.iter().map(|skip| skip.name.as_str()).collect();
    for (name, versions) in &twice {
        let skipped = |version: &&String| {
            let skip = bans.skip.iter().find(|skip| {
                let (of, begins) = skip.name.split_once('@').unwrap();
                of == name
                    && version
                        .strip_prefix(begins)
                        .is_some_and(|rest| rest.starts_with('.'))
            });
            skip.is_some_and(|skip| unused.remove(skip.name.as_str()))
        };
        let skips = versions.iter().filter(skipped).count();
        assert_eq!(
            versions.len() - skips,
            1,
            "{name} in versions {versions:?}: deny.toml skips {skips}"
        );
    }
    assert!(
        unused.is_empty(),
        "not there twice any more, remove from deny.toml: {unused:?}"
    );
}

#[test]
fn every_ban_and_every_skip_has_a_reason() {
    let bans = deny().bans;
    for entry in bans.deny.iter().chain(&bans.skip) {
        assert!(entry.reason.len() > 5, "{} has no reason", entry.name);
    }
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let mit_and_bsd = |name: &str| ["MIT", "BSD-3-Clause"].contains(&name);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-2.0-only", false),
        ("MIT OR GPL-2.0-only", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-2.0-only", false),
        ("(Apache-2.0 OR MIT) AND BSD-3-Clause", true),
        ("Apache-2.0 OR MIT AND GPL-2.0-only", false),
        ("MIT WITH LLVM-exception", false),
    ] {
        assert_eq!(
            satisfied(expression, &mit_and_bsd),
            Ok(expected),
            "{expression}"
        );
    }
    assert!(satisfied("(MIT", &mit_and_bsd).is_err());
    assert!(satisfied("MIT MIT", &mit_and_bsd).is_err());
    assert!(satisfied("MIT OR", &mit_and_bsd).is_err());
}
