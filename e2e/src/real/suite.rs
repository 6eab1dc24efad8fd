//! Kubernetes' own tests: each runs in its own process, so that its time and output are separate.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use super::table::{Chosen, quoted};
use crate::checks::Checks;
use crate::control_plane::Reach;
use crate::program::Program;
use crate::stage::Stage;
use crate::stop;

/// For one test, on hardware; with two of them side by side most take 50 to 180 s in emulated machines.
const LIMIT: Duration = Duration::from_secs(600);
/// Time for its report after that.
const GRACE: Duration = Duration::from_secs(60);

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    /// The test passed.
    Passed,
    /// The test failed, with its output.
    Failed(String),
    /// The test skipped itself.
    Skipped(String),
}

/// A test that was run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: u64,
    /// Number of runs.
    #[serde(default = "once")]
    pub(super) runs: u8,
}

fn once() -> u8 {
    1
}

/// The used part of a Ginkgo report.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    #[serde(default)]
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    #[serde(default)]
    failure: Failure,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Spec {
    fn name(&self) -> String {
        let texts = self.container_hierarchy_texts.iter().flatten();
        let texts = texts.chain([&self.leaf_node_text]);
        texts.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// Runs tests side by side, those that need the cluster for themselves last and one at a time.
pub(super) fn run(
    stage: &Stage,
    cluster: &Cluster,
    chosen: &Chosen,
    streams: u8,
) -> Result<Vec<Outcome>> {
    let runner = Runner::new(stage, cluster)?;
    let names = runner.list(chosen)?;
    let (alone, together): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|name| name.contains("[Serial]") || name.contains("[Disruptive]"));
    stage.console.heading(&format!(
        "{} tests of Kubernetes, {streams} side by side, then {} by themselves",
        together.len(),
        alone.len()
    ));
    let mut outcomes = runner.run_all(together, streams)?;
    outcomes.extend(runner.run_all(alone, 1)?);
    runner.run_failed_again(&mut outcomes)?;
    Ok(outcomes)
}

/// Counts verdicts, and closes with a line like that of the program itself.
pub(super) fn judge(stage: &Stage, outcomes: &[Outcome], chosen: &Chosen, checks: &mut Checks) {
    let count = |is: fn(&Verdict) -> bool| outcomes.iter().filter(|one| is(&one.verdict)).count();
    let passed = count(|verdict| *verdict == Verdict::Passed);
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let skipped = outcomes.len() - passed - failed;
    checks.count(passed, failed);
    for outcome in outcomes.iter().filter(|outcome| outcome.runs > 1) {
        let name = &outcome.name;
        stage
            .console
            .line(&format!("run twice, because the first run failed: {name}"));
    }
    for part in &chosen.required {
        let ran =
            |one: &&Outcome| one.name.contains(part) && !matches!(one.verdict, Verdict::Skipped(_));
        if outcomes.iter().filter(ran).count() == 0 {
            checks.failed(part, "it did not run");
        }
    }
    stage.console.line(&format!(
        "Ran {} of {} specs: {passed} Passed | {failed} Failed | {skipped} Skipped",
        passed + failed,
        outcomes.len()
    ));
}

struct Runner<'a> {
    stage: &'a Stage,
    cluster: &'a Cluster,
    folder: PathBuf,
    kubeconfig: String,
    kubectl: String,
    /// Runs of tests so far; their files are numbered.
    begun: AtomicUsize,
}

impl<'a> Runner<'a> {
    fn new(stage: &'a Stage, cluster: &'a Cluster) -> Result<Self> {
        let folder = cluster.folder.join("tests");
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let kubeconfig = cluster.plane.kubeconfig(Reach::Here).display().to_string();
        let kubectl = Program::Kubectl.path()?.display().to_string();
        Ok(Self {
            stage,
            cluster,
            folder,
            kubeconfig,
            kubectl,
            begun: AtomicUsize::new(0),
        })
    }

    /// The names of the tests that match.
    fn list(&self, chosen: &Chosen) -> Result<Vec<String>> {
        let report = self.folder.join("list.json");
        let mut words = self.words(&chosen.focus, &report);
        words.push("--ginkgo.dry-run".to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Program::E2eTest.run(&words)?;
        let mut names = Vec::new();
        for spec in read(&report)? {
            if spec.leaf_node_type != "It" || spec.state == "skipped" {
                continue;
            }
            let name = spec.name();
            match chosen.why_left_out(&name) {
                Some(why) => self.stage.console.line(&format!("left out: {name}: {why}")),
                None => names.push(name),
            }
        }
        ensure!(!names.is_empty(), "no test matches {:?}", chosen.focus);
        Ok(names)
    }

    fn run_all(&self, names: Vec<String>, streams: u8) -> Result<Vec<Outcome>> {
        let total = names.len();
        let waiting = Mutex::new(VecDeque::from(names));
        let outcomes = Mutex::new(Vec::new());
        let work = || -> Result<()> {
            loop {
                stop::check()?;
                let next = waiting
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front();
                let Some(name) = next else {
                    return Ok(());
                };
                let outcome = self.run_one(name)?;
                let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                outcomes.push(outcome);
                self.show(outcomes.len(), total, outcomes.last());
            }
        };
        std::thread::scope(|scope| {
            let streams: Vec<_> = (0..streams).map(|_| scope.spawn(work)).collect();
            for stream in streams {
                stream
                    .join()
                    .map_err(|_| anyhow!("a thread that runs tests panicked"))??;
            }
            anyhow::Ok(())
        })?;
        Ok(outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Tests have deadlines for ordinary machines, which one misses here that shares the processors with another. So
    /// those that failed are run once more, by themselves, and that counts. Both runs are shown.
    fn run_failed_again(&self, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let failed = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Failed(_));
        let names: Vec<String> = outcomes
            .iter()
            .filter(|outcome| failed(outcome))
            .map(|outcome| outcome.name.clone())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let console = self.stage.console;
        console.line(&format!(
            "{} failed and are run again, each by itself:",
            names.len()
        ));
        for mut second in self.run_all(names, 1)? {
            second.runs = 2;
            outcomes.retain(|first| first.name != second.name);
            outcomes.push(second);
        }
        Ok(())
    }

    fn show(&self, number: usize, total: usize, outcome: Option<&Outcome>) {
        let Some(Outcome {
            name,
            verdict,
            seconds,
            ..
        }) = outcome
        else {
            return;
        };
        let console = self.stage.console;
        let text = format!("[{number}/{total}] {name} ({seconds} s)");
        match verdict {
            Verdict::Passed => console.verdict(true, &text),
            Verdict::Failed(why) => console.verdict(false, &format!("{text}: {why}")),
            Verdict::Skipped(why) => console.line(&format!("skipped {text}: {why}")),
        }
    }

    fn run_one(&self, name: String) -> Result<Outcome> {
        let start = Instant::now();
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let file = |end: &str| self.folder.join(format!("{number:03}.{end}"));
        let (report, log) = (file("json"), file("log"));
        // The matched text begins with the name of the suite.
        let mut words = self.words(&format!(" {}$", quoted(&name)), &report);
        words.push(format!(
            "--ginkgo.timeout={}s",
            self.stage.waits.limit(LIMIT).as_secs()
        ));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let running = Program::E2eTest.start(&words, &output)?;
        let limit = self.stage.waits.limit(LIMIT + GRACE);
        while running.ended()?.is_none() {
            stop::check()?;
            self.cluster.check_running()?;
            if start.elapsed() > limit {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let verdict = match running.ended()? {
            None => Verdict::Failed(format!("it did not end within {} s", limit.as_secs())),
            Some(_) => verdict(&name, &report).unwrap_or_else(|error| {
                Verdict::Failed(format!("{error:#}; see {}", log.display()))
            }),
        };
        Ok(Outcome {
            name,
            verdict,
            seconds: start.elapsed().as_secs(),
            runs: 1,
        })
    }

    fn words(&self, focus: &str, report: &Path) -> Vec<String> {
        vec![
            "--provider=skeleton".to_owned(),
            format!("--kubeconfig={}", self.kubeconfig),
            format!("--kubectl-path={}", self.kubectl),
            format!("--num-nodes={}", self.cluster.node_names().count()),
            "-minStartupPods=0".to_owned(),
            "--ginkgo.no-color".to_owned(),
            "--ginkgo.v".to_owned(),
            format!("--ginkgo.focus={focus}"),
            format!("--ginkgo.json-report={}", report.display()),
        ]
    }
}

fn read(report: &Path) -> Result<Vec<Spec>> {
    let text = fs::read_to_string(report).with_context(|| format!("read {}", report.display()))?;
    let reports: Vec<Report> = serde_json::from_str(&text).context("read a report of Ginkgo")?;
    Ok(reports
        .into_iter()
        .filter_map(|report| report.spec_reports)
        .flatten()
        .collect())
}

/// The verdict of a report on one test. Setup or teardown of the suite may have failed instead.
fn verdict(name: &str, report: &Path) -> Result<Verdict> {
    let specs = read(report)?;
    let own = specs
        .iter()
        .find(|spec| spec.leaf_node_type == "It" && spec.name() == name);
    let Some(own) = own else {
        bail!("the report does not have it");
    };
    let of_suite = specs
        .iter()
        .find(|spec| spec.leaf_node_type != "It" && spec.state == "failed");
    let state = own.state.as_str();
    let message = || own.failure.message.trim().to_owned();
    Ok(match (state, of_suite) {
        ("passed", None) => Verdict::Passed,
        ("skipped", Some(failed)) => Verdict::Failed(failed.failure.message.trim().to_owned()),
        ("skipped", None) => Verdict::Skipped(message()),
        _ => Verdict::Failed(format!("{state}: {}", message())),
    })
}
