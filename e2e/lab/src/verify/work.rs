//! Runs units in a separate process, which `cargo verify` starts for each batch.
//!
//! The output of runners goes to standard output; messages for `cargo verify` follow [`crate::closing::ASIDE`].

use std::io::{self, Write};
use std::mem::discriminant;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::closing::Aside;
use crate::nested::{self, Binary, Profile};
use crate::progress::{print, say, unix_time};
use crate::scenarios::{Mode, NFTABLES, Place, RUN};
use crate::tiers::{TIERS, Targets, Work};
use crate::tools::Release;
use crate::traced::Traces;
use crate::{
    cluster, demo, fuzz, images, kernels, mutate, process, real, scenarios, test_builds,
    test_program, tiers,
};

/// Number of seeds of the simulation in long runs.
const LONG_SIMULATION: &str = "10000";

/// Options for running units.
#[derive(Debug, Clone, Copy, Args)]
pub struct How {
    /// Runs the long forms too: every mutation, long soaks, more nodes
    #[arg(long)]
    pub long: bool,
    /// Seed of the random choices, to repeat another run; default: from the clock
    #[arg(long, value_name = "N", default_value_t = unix_time(), hide_default_value = true)]
    pub seed: u64,
    /// Where tests run that need a kernel with IPVS
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    pub place: Place,
}

impl How {
    /// The same in a place that a unit demands.
    fn or_at(self, place: Place) -> Self {
        match place {
            Place::Auto => self,
            place => Self { place, ..self },
        }
    }
}

/// Runs the units of one batch, named `TIER/NAME`, and returns whether all passed.
///
/// # Errors
/// A name is not a unit, units of different kinds are in one batch, or standard output is closed.
pub fn run(names: &[String], how: How) -> Result<bool> {
    let work: Vec<Work> = names
        .iter()
        .map(|name| named(name))
        .collect::<Result<_>>()?;
    let passed = match run_all(&work, how) {
        Ok(passed) => passed,
        Err(error) => {
            say(&format!("error: {error:#}"));
            print(&Aside::Error(format!("{error:#}")).line())?;
            false
        }
    };
    print(&Aside::Cpu(cpu_seconds()).line())?;
    Ok(passed)
}

fn named(name: &str) -> Result<Work> {
    let units = TIERS
        .iter()
        .flat_map(|tier| tier.all().map(move |work| (tier, work)));
    let mut found = units.filter(|(tier, work)| name == format!("{}/{}", tier.name, work.name()));
    let (_, work) = found
        .next()
        .with_context(|| format!("there is no unit `{name}`"))?;
    Ok(work)
}

/// Runs one unit, or scenarios of one kind.
fn run_all(work: &[Work], how: How) -> Result<bool> {
    let first = *work.first().context("a batch has units")?;
    let is_same = |other: &Work| discriminant(other) == discriminant(&first);
    let are_scenarios = matches!(first, Work::Scenario(_) | Work::Cluster(_));
    ensure!(
        work.len() == 1 || are_scenarios && work.iter().all(is_same),
        "only scenarios of one kind run in one batch"
    );
    let names = work.iter().map(|work| work.name());
    let words: Vec<String> = names.chain(how.words()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_one(first, &words, how, &mut io::stdout())
}

/// Runs a unit. `words`: scenarios with the options of their program, if it is one.
fn run_one(work: Work, words: &[&str], how: How, sink: &mut (dyn Write + Send)) -> Result<bool> {
    match work {
        Work::Scenario(_) => {
            let words = [&[RUN], words].concat();
            Ok(scenarios::run(&words, how.place, Mode::default(), sink)? == 0)
        }
        Work::Cluster(_) => {
            let (profile, release) = (Profile::Dev, Release::Usual);
            Ok(cluster::run_scenarios(profile, release, words, sink)? == 0)
        }
        Work::Check(_, words) => {
            let mut command = process::cargo()?;
            command.args(words.split(' '));
            command.env("RUSTDOCFLAGS", "-D warnings");
            Ok(nested::stream(&mut command, sink)?.success())
        }
        Work::Tests(package, targets) => run_tests(package, targets, sink, |binary, sink| {
            run_test(binary, how, sink)
        }),
        Work::Schedules => run_built(&test_builds::of_schedules()?, how, sink),
        Work::ShippedTests(packages) => run_built(&test_builds::as_shipped(packages)?, how, sink),
        Work::ShippedScenarios(names) => run_scenarios(names, &[], Profile::AsShipped, how, sink),
        Work::Nftables(place, names) => {
            run_scenarios(names, &NFTABLES, Profile::Dev, how.or_at(place), sink)
        }
        Work::ShippedCluster(names) => {
            let seed = how.seed.to_string();
            let words = [names, &["--seed", &seed]].concat();
            let (profile, release) = (Profile::AsShipped, Release::Usual);
            Ok(cluster::run_scenarios(profile, release, &words, sink)? == 0)
        }
        // For all packages together: for a part of them, cargo would choose other features of dependencies and build
        // them again.
        Work::Examples(_) => {
            print(&Aside::Program("doc".to_owned()).line())?;
            let mut command = process::cargo()?;
            command.args(["test", "--no-fail-fast", "--workspace", "--doc"]);
            Ok(nested::stream(&mut command, sink)?.success())
        }
        Work::IpvsTest(package, targets, words) => {
            run_tests(package, targets, sink, |binary, sink| {
                Ok(scenarios::run_test(&binary.path, words, how.place, sink)? == 0)
            })
        }
        Work::Kernel(version) => kernels::run(&[version.to_owned()], &[], sink),
        Work::Kubernetes(release) => {
            Ok(cluster::run_scenarios(Profile::Dev, release, &["--all"], sink)? == 0)
        }
        Work::Mutations(subject) => mutate::run(subject, None, how.long, sink),
        Work::Fuzz => run_fuzzer(how, sink),
        Work::Images(profile) => images::verify(profile, sink),
        Work::RealKit => real::run(&["prepare"], sink).map(|code| code == 0),
        Work::Real(proxy) => {
            let words = ["test", "--proxy", proxy];
            let words = [&words[..], if how.long { &[] } else { &["--short"] }].concat();
            Ok(real::run(&words, sink)? == 0)
        }
        Work::RealCommand(name) => Ok(real::run(&[name], sink)? == 0),
        Work::Demo(options) => Ok(demo::run(how.place, Mode::default(), options, sink)? == 0),
        Work::ClusterDemo => {
            // No person watches Jaeger in this run.
            Ok(demo::run_cluster(how.place, Some(&Traces::default()), sink)? == 0)
        }
    }
}

/// Runs scenarios with these options and the seed of this run.
fn run_scenarios(
    names: &[&str],
    options: &[&str],
    profile: Profile,
    how: How,
    sink: &mut (dyn Write + Send),
) -> Result<bool> {
    let seed = how.seed.to_string();
    let words = [&[RUN], names, options, &["--seed", &seed]].concat();
    let mode = Mode {
        profile,
        ..Mode::default()
    };
    Ok(scenarios::run(&words, how.place, mode, sink)? == 0)
}

fn run_fuzzer(how: How, sink: &mut dyn Write) -> Result<bool> {
    let order = fuzz::Order {
        targets: Vec::new(),
        runs: 0,
        seconds: Some(fuzz::LONG_SECONDS),
        seed: how.seed,
        output: fuzz::Format::Table,
        cases: None,
    };
    fuzz::run(&order, sink)
}

/// Runs all test programs of a package.
fn run_tests(
    package: &str,
    targets: Targets,
    sink: &mut (dyn Write + Send),
    run: impl Fn(&Binary, &mut (dyn Write + Send)) -> Result<bool>,
) -> Result<bool> {
    let mut programs = built()?;
    programs.retain(|binary| is_among(binary, package, targets));
    ensure!(
        !programs.is_empty(),
        "no test program of {package} was built"
    );
    run_all_programs(&programs, sink, run)
}

/// Runs test programs of any package with the seed of this run.
fn run_built(programs: &[Binary], how: How, sink: &mut (dyn Write + Send)) -> Result<bool> {
    print(&format!("seed {}", how.seed))?;
    run_all_programs(programs, sink, |binary, sink| run_test(binary, how, sink))
}

/// Runs all of these test programs, even after a failure.
fn run_all_programs(
    programs: &[Binary],
    sink: &mut (dyn Write + Send),
    run: impl Fn(&Binary, &mut (dyn Write + Send)) -> Result<bool>,
) -> Result<bool> {
    let mut passed = true;
    for binary in programs {
        let name = test_program::name(&binary.package, &binary.path);
        print(&Aside::Program(name).line())?;
        passed &= run(binary, sink)?;
    }
    Ok(passed)
}

/// Runs a test program with the seed of this run.
fn run_test(binary: &Binary, how: How, sink: &mut (dyn Write + Send)) -> Result<bool> {
    let mut command = test_program::command(binary)?;
    let seed = how.seed.to_string();
    command
        .env("PROPTEST_RNG_SEED", &seed)
        .env("PORTOLAN_SIMULATION_FIRST", &seed)
        .env("PORTOLAN_SCHEDULES_SEED", &seed);
    if how.long {
        command.env("PORTOLAN_SIMULATION_SEEDS", LONG_SIMULATION);
    }
    Ok(nested::stream(&mut command, sink)?.success())
}

fn built() -> Result<Vec<Binary>> {
    let file = std::env::var_os(nested::BUILT);
    let file = file.with_context(|| format!("{} is not set", nested::BUILT))?;
    nested::read_built(Path::new(&file))
}

fn is_among(binary: &Binary, package: &str, targets: Targets) -> bool {
    let is_integration = binary.kind == "test";
    binary.tests
        && binary.package == package
        && match targets {
            // Tests outside a plain `cargo test` have a unit of their own.
            Targets::All => !is_integration || !tiers::run_by_name(package, &binary.name),
            Targets::Library => !is_integration,
            Targets::Named(tests) => is_integration && tests.contains(&binary.name.as_str()),
        }
}

impl How {
    /// As options of the command that runs units.
    pub(super) fn options(self) -> Vec<String> {
        let place = format!("--where={}", tiers::name_of(&self.place));
        [vec![place], self.words()].concat()
    }

    /// As options of the scenarios' program.
    fn words(self) -> Vec<String> {
        let mut words = vec!["--seed".to_owned(), self.seed.to_string()];
        words.extend(self.long.then(|| "--long".to_owned()));
        words
    }
}

/// Processor time of this process and its ended descendants, seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse_cpu(&stat).unwrap_or_default()
}

/// The kernel counts in hundredths of a second. The name of the program, in parentheses, may contain anything.
fn parse_cpu(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    let times: Option<Vec<f64>> = times.map(|field| field.parse().ok()).collect();
    Some(times?.iter().sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_process_and_of_its_ended_children() {
        let stat = "77 (a) b) S 1 77 77 0 -1 4194304 100 0 0 0 250 31 7 2 20 0 1 0 5 1000 200";
        assert_eq!(parse_cpu(stat), Some(2.9));
        assert_eq!(parse_cpu("77 (a"), None);
        assert!(cpu_seconds() >= 0.0);
    }

    #[test]
    fn a_unit_is_found_by_its_tier_and_name() {
        assert_eq!(
            named("unit/portolan-e2e trust").unwrap().name(),
            "portolan-e2e trust"
        );
        assert_eq!(named("cluster/churn").unwrap().name(), "churn");
        assert!(named("guest/churn").is_err());
    }

    #[test]
    fn tests_that_have_a_unit_of_their_own_run_only_there() {
        let binary = |kind: &str, name: &str| Binary {
            name: name.to_owned(),
            kind: kind.to_owned(),
            tests: true,
            package: "ipvs-rs".to_owned(),
            folder: "/w".into(),
            path: "/t".into(),
        };
        let all = |kind, name| is_among(&binary(kind, name), "ipvs-rs", Targets::All);
        assert!(all("lib", "ipvs_rs") && all("test", "laws") && !all("test", "kernel"));
        let named = Targets::Named(&["kernel"]);
        assert!(is_among(&binary("test", "kernel"), "ipvs-rs", named));
        assert!(!is_among(&binary("lib", "kernel"), "ipvs-rs", named));
        assert!(!is_among(&binary("test", "kernel"), "ipset-rs", named));
    }
}
