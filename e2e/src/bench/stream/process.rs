//! The two processes: the controller, and the agents.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::misbehaving::Report;
use super::place::{Place, Way};
use crate::program::{Program, Running};
use crate::waits::Waits;

/// Until all agents have their plans, and for anything else that is waited for, on hardware.
const LIMIT: Duration = Duration::from_secs(900);
/// Capacity for unread lines of the agents.
const LINES: usize = 1024;
/// Poll interval of the controller's metrics.
const LOOK: Duration = Duration::from_millis(10);

/// The time in microseconds since 1970, which both processes have.
pub(super) fn microseconds() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_micros()
}

/// Microseconds as milliseconds.
pub(super) fn milliseconds(microseconds: u128) -> f64 {
    f64::from(u32::try_from(microseconds).unwrap_or(u32::MAX)) / 1000.0
}

/// Milliseconds since a time.
pub(super) fn milliseconds_since(then: u128) -> f64 {
    milliseconds(microseconds().saturating_sub(then))
}

/// The controller.
pub(in crate::bench) struct Controller {
    // Ends before its folder goes.
    running: Option<Running>,
    place: Place,
    pages: SocketAddr,
    /// More of its command line.
    more: Vec<String>,
    waits: Waits,
    starts: u32,
}

/// Its metrics at one moment.
pub(super) struct Page(String);

impl Page {
    /// One of them.
    pub(super) fn value(&self, name: &str) -> Result<f64> {
        let name = format!("portolan_controller_{name} ");
        let line = self.0.lines().find_map(|line| line.strip_prefix(&name));
        let line = line.with_context(|| format!("no {name}among the metrics"))?;
        Ok(line.trim().parse()?)
    }
}

impl Controller {
    pub(in crate::bench) fn start(
        kubeconfig: &Path,
        place: Place,
        more: &[String],
        waits: Waits,
    ) -> Result<Self> {
        let (running, pages) = start(&place, kubeconfig, more, waits, 0)?;
        Ok(Self {
            running: Some(running),
            place,
            pages,
            more: more.to_vec(),
            waits,
            starts: 0,
        })
    }

    /// Kills it, and starts another one at the same place.
    pub(super) fn replace(&mut self, kubeconfig: &Path) -> Result<()> {
        self.starts += 1;
        self.running()?;
        self.running.take().map_or(Ok(()), Running::kill)?;
        let (running, pages) = start(&self.place, kubeconfig, &self.more, self.waits, self.starts)?;
        self.running = Some(running);
        self.pages = pages;
        Ok(())
    }

    /// Where it is.
    pub(in crate::bench) fn place(&self) -> &Place {
        &self.place
    }

    /// The process.
    pub(super) fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("the controller ended")
    }

    /// All of its metrics.
    pub(super) fn page(&self) -> Result<Page> {
        let mut stream = TcpStream::connect(self.pages)?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Page(text))
    }

    /// A figure of its metrics.
    pub(super) fn metric(&self, name: &str) -> Result<f64> {
        self.page()?.value(name)
    }

    /// Bytes that it has written to agents.
    pub(super) fn bytes(&self) -> Result<f64> {
        self.metric("stream_bytes_total")
    }

    /// Waits for a figure.
    pub(super) fn wait(&self, name: &str, value: f64, waits: Waits) -> Result<()> {
        let reached = || Ok((self.metric(name)? >= value).then_some(()));
        waits.until(name, LIMIT, LOOK, reached, || {
            format!("it is {:?}", self.metric(name))
        })
    }

    pub(super) fn memory_mb(&self) -> Result<f64> {
        let kilobytes = self
            .running()?
            .memory_kb()
            .context("the controller ended")?;
        let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
        Ok(f64::from(kilobytes) * 1024.0 / 1e6)
    }

    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        self.running()?
            .cpu_seconds()
            .context("the controller ended")
    }
}

fn start(
    place: &Place,
    kubeconfig: &Path,
    more: &[String],
    waits: Waits,
    number: u32,
) -> Result<(Running, SocketAddr)> {
    let path = place.folder.path.join(format!("controller-{number}.log"));
    let log = File::create(&path)?;
    let kubeconfig = kubeconfig.display().to_string();
    let words = [
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--admin",
        "127.0.0.1:0",
        "--log",
        "warn,portolan_controller::admin=info",
    ];
    let place = place.words();
    let more = place.iter().chain(more).map(String::as_str);
    let words: Vec<_> = words.into_iter().chain(more).collect();
    let running = Program::Controller.start(&words, &log)?;
    let said = || std::fs::read_to_string(&path).unwrap_or_default();
    let pages = || {
        let said = said();
        let line = said
            .lines()
            .find(|line| line.contains("health and metrics"));
        let address = line.and_then(|line| line.split_once("address="));
        let address = address.and_then(|(_, rest)| rest.split_whitespace().next());
        Ok(address.and_then(|address| address.parse().ok()))
    };
    let pages = waits.until("the controller to have pages", LIMIT, LOOK, pages, said)?;
    Ok((running, pages))
}

/// The agents.
pub(super) struct Agents {
    child: Child,
    commands: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Errors that the agents reported.
    wrong: Vec<String>,
}

impl Agents {
    pub(super) fn start(way: &Way, agents: u32) -> Result<Self> {
        let mut child = talk("stream-clients", way, ["--agents", &agents.to_string()])?;
        let commands = child.stdin.take();
        let output = child.stdout.take().context("no output of the agents")?;
        let (sender, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            commands,
            lines,
            wrong: Vec::new(),
        })
    }

    /// The rest of a line that begins like this.
    fn hear(&mut self, begins: &str) -> Result<String> {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) if line.starts_with("wrong") => self.wrong.push(line),
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(begins) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("the agents do not say {begins:?}"),
                Err(RecvTimeoutError::Disconnected) => bail!("the agents have ended"),
            }
        }
    }

    /// Waits until all agents have a plan.
    pub(super) fn whole(&mut self) -> Result<()> {
        self.hear("whole").map(drop)
    }

    /// Makes the agents wait for an item with this text in its key.
    pub(super) fn look_for(&mut self, part: &str) -> Result<()> {
        let commands = self.commands.as_mut().context("the agents have ended")?;
        writeln!(commands, "look {part}")?;
        self.hear("looking").map(drop)
    }

    /// When the first and the last of them had it.
    pub(super) fn all_have(&mut self) -> Result<(u128, u128)> {
        let rest = self.hear("all ")?;
        let mut times = rest.rsplit(' ');
        let mut time = || times.next().context("no time");
        let (last, first) = (time()?, time()?);
        Ok((first.parse()?, last.parse()?))
    }

    /// Their process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Fails if a batch did not add up at one of them.
    pub(super) fn check(&self) -> Result<()> {
        match self.wrong.first() {
            Some(first) => bail!("{} agents were wrong, the first: {first}", self.wrong.len()),
            None => Ok(()),
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        // They end with their input.
        drop(self.commands.take());
        drop(self.child.wait());
    }
}

/// Those that misbehave.
pub(super) struct Misbehaving {
    child: Child,
    commands: Option<ChildStdin>,
}

impl Misbehaving {
    /// Starts them; the first is the agent of this node.
    pub(super) fn start(way: &Way, first: u32) -> Result<Self> {
        let mut child = talk("stream-misbehaving", way, ["--first", &first.to_string()])?;
        let commands = child.stdin.take();
        Ok(Self { child, commands })
    }

    /// Ends them, and gives back what they did.
    pub(super) fn end(mut self) -> Result<Report> {
        drop(self.commands.take());
        let mut said = String::new();
        let mut output = self.child.stdout.take().context("no output")?;
        output.read_to_string(&mut said)?;
        let report = said.lines().find_map(|line| line.strip_prefix("did "));
        Ok(serde_json::from_str(report.context("they said nothing")?)?)
    }
}

impl Drop for Misbehaving {
    fn drop(&mut self) {
        drop(self.commands.take());
        drop(self.child.wait());
    }
}

/// Starts one of our own processes of agents.
fn talk(what: &str, way: &Way, more: [&str; 2]) -> Result<Child> {
    let way = way.words();
    let words = ["bench", what].into_iter();
    let words = words.chain(way.iter().map(String::as_str)).chain(more);
    Program::Scenarios.talk(&words.collect::<Vec<_>>())
}
