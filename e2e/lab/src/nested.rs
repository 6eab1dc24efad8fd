//! Builds the rest of the workspace with a nested cargo, whose progress stays visible.
//!
//! The path of a binary is read from cargo's messages, never guessed.

mod together;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::process;

/// Their programs.
const PROGRAMS: &[&str] = &[CONTROLLER, PLUGIN, AGENT, SCENARIOS];
/// The kubectl plugin `kubectl proxyplan`.
const PLUGIN: &str = "kubectl-proxyplan";
/// The controller's package, and its program.
const CONTROLLER: &str = "portolan-controller";
/// The agent's package, and its program.
const AGENT: &str = "portolan-agent";
/// The package of scenarios, and the programs besides the agent.
const E2E: &str = "portolan-e2e";
const PROGRAMS_BESIDE_AGENT: &[&str] = &[CONTROLLER, PLUGIN, SCENARIOS];
/// Variable with the workspace's folder, for processes started by `cargo verify`.
pub const ROOT: &str = "LAB_ROOT";
/// Variable with a file of all [`Binary`]s built by `cargo verify`, as JSON.
pub const BUILT: &str = "LAB_BUILT";
/// The program that runs scenarios on this machine.
pub const SCENARIOS: &str = "portolan-scenarios";

/// A program or test built by cargo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// Name of its target.
    pub name: String,
    /// `bin`, `test`, …
    pub kind: String,
    /// Whether it runs tests.
    pub tests: bool,
    /// Its package.
    pub package: String,
    /// The folder of its package.
    pub folder: PathBuf,
    /// Its path.
    pub path: PathBuf,
}

/// The programs of the workspace.
#[derive(Debug)]
pub struct Programs(Vec<Binary>);

/// The kind of build. The first two are on the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// As released: small, without paths of this machine; the first build takes minutes
    Shipped,
    /// As for tests: large and slow, but built within a minute or two
    #[default]
    Dev,
    /// For benchmarks: the agent as released, the others optimised. In a separate target folder.
    #[value(skip)]
    Release,
    /// For scenarios of what is released: the controller and the agent as in `Shipped`, the others as in `Dev`.
    #[value(skip)]
    AsShipped,
}

impl Programs {
    /// Builds them, or reuses fresh ones.
    ///
    /// # Errors
    /// The build failed, or a program is no longer there.
    pub fn build(profile: Profile) -> Result<Self> {
        if let (Profile::Dev, Some(file)) = (profile, std::env::var_os(BUILT)) {
            return Ok(Self(found(&read_built(Path::new(&file))?, PROGRAMS)?));
        }
        match profile {
            // As for tests, so that what they have built is reused.
            Profile::Dev => Ok(Self(build(&["--workspace", "--bins"], PROGRAMS)?)),
            Profile::Release => {
                let how = ["--release", "--package", CONTROLLER, "--package", E2E];
                let others = build(&how, PROGRAMS_BESIDE_AGENT)?;
                let all = Self([others, build_shipped(AGENT)?].concat());
                together::in_one_folder(&all, &Self(Vec::new()))
            }
            // Separately: otherwise features for one program would enlarge the other one.
            Profile::Shipped => {
                let programs = [build_shipped(CONTROLLER)?, build_shipped(AGENT)?];
                Ok(Self(programs.concat()))
            }
            Profile::AsShipped => {
                let (tests, shipped) = (Self::build(Profile::Dev)?, Self::build(Profile::Shipped)?);
                together::in_one_folder(&tests, &shipped)
            }
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Binary> {
        self.0.iter()
    }

    /// One of them.
    ///
    /// # Errors
    /// It is not a program of the workspace.
    pub fn named(&self, name: &str) -> Result<&Binary> {
        self.iter()
            .find(|binary| binary.name == name)
            .with_context(|| {
                format!(
                    "`{name}` is not one of our programs: {}",
                    PROGRAMS.join(", ")
                )
            })
    }
}

/// Builds a program as released.
fn build_shipped(program: &str) -> Result<Vec<Binary>> {
    let how = shipped(program)?;
    build(&how.each_ref().map(String::as_str), &[program])
}

/// Arguments to build a program as released, and nothing else of its package.
fn shipped(program: &str) -> Result<[String; 6]> {
    let config = without_paths(&folders()?)?;
    Ok([
        "--profile",
        "shipped",
        "--config",
        &config,
        "--bin",
        program,
    ]
    .map(str::to_owned))
}

/// Folders of this machine whose paths the compiler would write into programs, each with its replacement. If several
/// match, the compiler uses the last.
fn folders() -> Result<Vec<(PathBuf, &'static str)>> {
    let mut command = process::cargo()?;
    command
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root());
    let metadata: Value = serde_json::from_str(&process::output(&mut command)?)
        .context("reading what `cargo metadata` prints")?;
    let target = metadata["target_directory"].as_str();
    let target = target.context("`cargo metadata` names no target directory")?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home
        .context("neither CARGO_HOME nor HOME is set; set one to locate the sources of crates")?;
    Ok(vec![
        (root(), "/portolan"),
        (PathBuf::from(target), "/portolan/target"),
        (home, "/cargo"),
    ])
}

/// A cargo setting, added to existing ones: equal sources make equal programs, wherever the sources and the build
/// are.
fn without_paths(folders: &[(PathBuf, &str)]) -> Result<String> {
    let flags = folders.iter().map(|(from, to)| {
        let from = from.to_str();
        let from = from.context("a path that is not UTF-8 cannot be remapped")?;
        Ok(format!("--remap-path-prefix={from}={to}"))
    });
    let flags = serde_json::to_string(&flags.collect::<Result<Vec<_>>>()?)?;
    Ok(format!("target.'cfg(all())'.rustflags={flags}"))
}

/// Builds in one invocation, and finds these programs.
fn build(how: &[&str], programs: &[&str]) -> Result<Vec<Binary>> {
    let mut command = process::cargo()?;
    let built = run_in(&root(), command.arg("build").args(how))?;
    found(&built, programs).with_context(|| format!("`{}`", process::shown(&command)))
}

/// Programs by name.
fn found(built: &[Binary], programs: &[&str]) -> Result<Vec<Binary>> {
    let find = |name: &&str| {
        let mut programs = built
            .iter()
            .filter(|binary| binary.kind == "bin" && !binary.tests);
        let found = programs.find(|binary| binary.name == *name);
        found.cloned().with_context(|| {
            format!("no program `{name}` was built; look at the [[bin]] tables of the packages")
        })
    };
    programs.iter().map(find).collect()
}

/// The contents of a file named by [`BUILT`].
///
/// # Errors
/// It cannot be read.
pub fn read_built(file: &Path) -> Result<Vec<Binary>> {
    let reading = || format!("reading {}", file.display());
    let text = std::fs::read_to_string(file).with_context(reading)?;
    serde_json::from_str(&text).with_context(reading)
}

/// The folder of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    if let Some(root) = std::env::var_os(ROOT) {
        return root.into();
    }
    // `cargo run` sets the current path of this package; the clone may have moved since the build.
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.ancestors()
        .nth(2)
        .map_or_else(|| own.clone(), Path::to_path_buf)
}

/// Runs a command in its folder, or by default in the workspace's, streams its standard output to `sink`, and returns
/// its exit status.
///
/// # Errors
/// It cannot be started, or the sink is closed.
pub fn stream(command: &mut Command, sink: &mut dyn Write) -> Result<std::process::ExitStatus> {
    let shown = process::shown(command);
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let (mut child, output) = process::piped(command.stdin(Stdio::null()))?;
    let copied = copy_as_it_comes(output, sink);
    let status = child
        .wait()
        .with_context(|| format!("waiting for `{shown}`"))?;
    copied.with_context(|| format!("passing on the output of `{shown}`"))?;
    Ok(status)
}

fn copy_as_it_comes(mut from: impl std::io::Read, to: &mut dyn Write) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => to.write_all(&buffer[..count])?,
        }
        to.flush()?;
    }
}

/// Runs a building cargo command in a folder, and returns what it built or reused.
///
/// # Errors
/// It cannot be started, or failed.
pub fn run_in(folder: &Path, command: &mut Command) -> Result<Vec<Binary>> {
    command.args(["--message-format", "json-render-diagnostics"]);
    let shown = process::shown(command);
    command.current_dir(folder).stdin(Stdio::null());
    let (mut child, messages) = process::piped(command)?;
    let mut built = Vec::new();
    for line in BufReader::new(messages).lines() {
        built.extend(parse(
            &line.with_context(|| format!("reading from `{shown}`"))?,
        ));
    }
    let status = child
        .wait()
        .with_context(|| format!("waiting for `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); its messages are above");
    }
    Ok(built)
}

/// The binary in a cargo message, if any.
fn parse(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    Some(Binary {
        path: PathBuf::from(message["executable"].as_str()?),
        name: text(&message["target"]["name"])?,
        kind: text(&message["target"]["kind"][0])?,
        tests: message["profile"]["test"].as_bool()?,
        package: package(message["package_id"].as_str()?)?.to_owned(),
        folder: manifest.parent()?.to_owned(),
    })
}

/// The name in an id such as `path+file:///w/proto#portolan-proto@0.1.0`; cargo omits it if it equals the folder's
/// name.
fn package(id: &str) -> Option<&str> {
    let (place, name) = id.rsplit_once('#')?;
    match name.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_id() {
        for (id, expected) in [
            (
                "path+file:///w/proto#portolan-proto@0.1.0",
                Some("portolan-proto"),
            ),
            ("path+file:///w/node-agent/ipvs-rs#0.1.0", Some("ipvs-rs")),
            ("nothing", None),
        ] {
            assert_eq!(package(id), expected);
        }
    }

    #[test]
    fn a_binary_is_read_from_cargos_message_and_a_library_is_none() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/a#0.1.0",
            "manifest_path":"/w/a/Cargo.toml","target":{"kind":["test"],"name":"kernel"},
            "profile":{"test":true},"executable":"/t/debug/deps/kernel-1f"}"#;
        let binary = parse(line).unwrap();
        let found = [&binary.name, &binary.kind, &binary.package];
        assert_eq!(found, ["kernel", "test", "a"]);
        assert!(binary.tests && binary.folder == Path::new("/w/a"));
        assert_eq!(binary.path, Path::new("/t/debug/deps/kernel-1f"));
        let library = r#"{"target":{"kind":["lib"],"name":"a"},"executable":null}"#;
        assert_eq!(parse(library), None);
        assert_eq!(parse("   Compiling a"), None);
    }

    #[test]
    fn folders_of_this_machine_are_kept_out_of_what_is_shipped() {
        let folders = [
            (PathBuf::from("/home/a b"), "/portolan"),
            (PathBuf::from("/c\"d"), "/cargo"),
        ];
        assert_eq!(
            without_paths(&folders).unwrap(),
            "target.'cfg(all())'.rustflags=[\"--remap-path-prefix=/home/a b=/portolan\",\
             \"--remap-path-prefix=/c\\\"d=/cargo\"]"
        );
        let how = shipped("one").unwrap();
        assert_eq!(how[..2], ["--profile", "shipped"]);
        assert_eq!(how[4..], ["--bin", "one"]);
        let root = format!("={}=/portolan\"", root().display());
        assert!(how[3].contains(&root), "{}", how[3]);
    }

    #[test]
    fn the_workspace_is_where_its_manifest_is() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn output_is_passed_on_and_the_status_kept() {
        let mut seen = Vec::new();
        let mut command = process::program("dpkg-query").unwrap();
        command.args(["-W", "-f", "${Package}\n", "dpkg"]);
        assert!(stream(&mut command, &mut seen).unwrap().success());
        assert_eq!(seen, b"dpkg\n");
    }
}
