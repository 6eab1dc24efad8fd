//! Light agents of all nodes in a separate process, so that `/proc` shows the cost of the controller alone. The
//! process reads on standard input what to wait for, and reports on standard output when all agents have it.

use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::Args;
use portolan_agent::receive::Access;
use portolan_proto::wire::agent_message::Message as Answer;

use super::holder::{Holder, Lists};
use super::objects::node_name;
use super::place::Way;
use crate::agent_stream::AgentStream;

/// Within this time all of them begin, each at its own moment.
const BEGINNING: Duration = Duration::from_millis(500);
/// The initial backoff before a stream is reopened. It doubles, as that of a real agent, while streams bring nothing,
/// and has jitter per agent.
const PAUSE: Duration = Duration::from_millis(500);
/// Number of doublings.
const DOUBLED: u32 = 4;

/// Identity of the agents.
#[derive(Debug, Clone, Args)]
pub struct ClientOptions {
    #[command(flatten)]
    way: Way,
    /// Number of agents.
    #[arg(long)]
    agents: u32,
}

/// The change to wait for, and the agents that have it.
#[derive(Debug, Default)]
struct Look {
    /// Sequence number of the change to wait for.
    number: u64,
    part: String,
    have: u64,
    /// When the first one had it.
    first: u128,
}

#[derive(Debug)]
struct Shared {
    agents: u64,
    lists: Lists,
    look: RwLock<(u64, Arc<str>)>,
    found: Mutex<Look>,
    /// Agents that hold a whole plan.
    whole: AtomicU64,
}

/// Runs until standard input ends.
///
/// # Errors
/// Threads cannot be started.
pub fn run(options: &ClientOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the agents' threads")?;
    let shared = Arc::new(Shared {
        agents: options.agents.into(),
        lists: Lists::default(),
        look: RwLock::new((0, "".into())),
        found: Mutex::default(),
        whole: AtomicU64::new(0),
    });
    for number in 1..=options.agents {
        let access = options.way.access(&node_name(number))?;
        drop(runtime.spawn(follow(shared.clone(), access, number)));
    }
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if let Some(part) = line.strip_prefix("look ") {
            shared.look_for(part);
            say("looking");
        }
    }
    runtime.shutdown_background();
    Ok(())
}

/// Writes a line to the process that started this one.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A failed write means that the parent process has ended.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

fn microseconds() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_micros()
}

impl Shared {
    fn look_for(&self, part: &str) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.number += 1;
        found.part = part.to_owned();
        found.have = 0;
        let mut look = self.look.write().unwrap_or_else(PoisonError::into_inner);
        *look = (found.number, part.into());
    }

    fn looked_for(&self) -> (u64, Arc<str>) {
        let look = self.look.read().unwrap_or_else(PoisonError::into_inner);
        look.clone()
    }

    /// Counts an agent that has the change.
    fn found(&self, number: u64) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.number != number {
            return;
        }
        found.have += 1;
        if found.have == 1 {
            found.first = microseconds();
        }
        if found.have == self.agents {
            let (part, first) = (&found.part, found.first);
            say(&format!("all {part} {first} {}", microseconds()));
        }
    }

    /// Counts an agent with a whole plan.
    fn whole(&self) {
        if self.whole.fetch_add(1, Ordering::Relaxed) + 1 == self.agents {
            say(&format!("whole {}", microseconds()));
        }
    }
}

async fn follow(shared: Arc<Shared>, access: Access, number: u32) {
    let node = node_name(number);
    let (mut holder, mut last, mut first) = (Holder::default(), 0, true);
    let share = |pause: Duration| pause / 500 * (number % 500);
    tokio::time::sleep(share(BEGINNING)).await;
    let mut attempt = 0;
    loop {
        let before = holder.batches();
        let ended = stream(&shared, &access, &node, &mut holder, &mut last, &mut first).await;
        if let Err(error) = ended
            && error.to_string().contains("add up")
        {
            say(&format!("wrong {node}: {error:#}"));
            holder = Holder::default();
        }
        let brought = holder.batches() != before;
        attempt = if brought { 0 } else { DOUBLED.min(attempt + 1) };
        let pause = PAUSE * (1 << attempt);
        tokio::time::sleep(pause / 2 + share(pause)).await;
    }
}

async fn stream(
    shared: &Shared,
    access: &Access,
    node: &str,
    holder: &mut Holder,
    last: &mut u64,
    first: &mut bool,
) -> Result<()> {
    let channel = access.connect().await?;
    let mut stream = AgentStream::open(access, channel, holder.hello(node)).await?;
    // The number of the awaited change, if the open batch contains it.
    let mut marked = None;
    while let Some(message) = stream.messages.message().await? {
        let (number, part) = shared.looked_for();
        let took = holder.take(message, &shared.lists, &part)?;
        if took.marked && *last < number {
            marked = Some(number);
        }
        if let Some(commit) = took.committed {
            let ack = holder.ack(&commit)?;
            if let Some(number) = marked.take() {
                *last = number;
                shared.found(number);
            }
            if std::mem::take(first) {
                shared.whole();
            }
            stream.answer(Answer::Ack(ack)).await?;
        }
    }
    Ok(())
}
