//! Boots the guest, passes on the output of its command, and returns the exit status.
//!
//! Touches: one folder in the cache, QEMU. Invariant: QEMU never outlives this process. `Running` stops it on every
//! return, and the kernel kills it when this process ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::emulated;
use super::image::Image;
use super::payload::{self, Payload};
use crate::progress::{self, Step};
use crate::{cache, process};

/// Default memory of a guest, MB.
pub const MEMORY: u32 = 3000;
/// Timeout from power on to the start of the command; measured: 3–5 s.
const BOOT_DEADLINE: Duration = Duration::from_secs(90);
/// Timeout from the end of the command to power off.
const POWER_OFF_DEADLINE: Duration = Duration::from_secs(15);
/// Length of the log excerpt in an error.
const CONSOLE_LINES: usize = 25;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One run of one command in a fresh guest.
#[derive(Debug, Clone)]
pub struct Job {
    /// The program, by its name in PATH or its path in the guest, and its arguments.
    pub command: Vec<String>,
    /// Additional environment of the command.
    pub environment: Vec<(String, String)>,
    /// Programs and files added to the guest.
    pub payload: Payload,
    /// Kernel modules beyond the default ones.
    pub modules: Vec<String>,
    /// MB.
    pub memory: u32,
    /// Additional kernel command line.
    pub kernel: Vec<String>,
    /// Whether the guest can reach this machine, as 10.0.2.2.
    pub network: bool,
    /// Whether `guest shell` can reach it.
    pub shell: bool,
    /// Timeout of the command alone, before the slowness factor; `None` without a limit.
    pub deadline: Option<Duration>,
}

impl Job {
    /// A command with the default memory and a timeout of ten minutes.
    #[must_use]
    pub fn new(command: Vec<String>, payload: Payload) -> Self {
        Self {
            command,
            environment: Vec::new(),
            payload,
            modules: Vec::new(),
            memory: MEMORY,
            kernel: Vec::new(),
            network: false,
            shell: false,
            deadline: Some(Duration::from_secs(600)),
        }
    }
}

/// Runs the command and returns its exit status. Its output is streamed to `sink`.
///
/// # Errors
/// QEMU cannot be started, the guest does not boot or dies, or a timeout expired. The message has the console's last
/// lines and the path of its log.
pub fn run(image: &Image, job: &Job, sink: &mut (dyn Write + Send)) -> Result<u8> {
    let booted = AtomicBool::new(false);
    match attempt(image, job, sink, &booted) {
        // On a busy host, an emulated machine sometimes stops before its first line. After the start of the command,
        // any failure is its own and is reported.
        Err(error) if !booted.load(Ordering::Acquire) => {
            progress::say(&format!("Guest: {error:#}; trying once more"));
            attempt(image, job, sink, &booted)
        }
        ended => ended,
    }
}

fn attempt(
    image: &Image,
    job: &Job,
    sink: &mut (dyn Write + Send),
    booted: &AtomicBool,
) -> Result<u8> {
    let folder = cache::run_folder("guest")?;
    let slowness = cache::slowness()?;
    let step = Step::start("Guest");
    step.detail("booting");
    payload::write(&folder.join("initrd"), image, job)?;
    let (mut running, output) = start(&folder, image, job)?;
    let started = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let copy = scope.spawn(|| forward(output, sink, &started));
        let result = watch(&mut running, job, slowness, step, &started);
        booted.store(started.load(Ordering::Acquire), Ordering::Release);
        // This also ends the copying thread, which reads until QEMU exits.
        running.end();
        started.store(true, Ordering::Release);
        let copied = copy
            .join()
            .map_err(|_| anyhow!("the thread that passes output on died"))?;
        let status = result?;
        copied.context("passing the guest's output on")?;
        Ok(status)
    });
    result.map_err(|error: anyhow::Error| with_console(&error, &folder))
}

struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    fn end(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn status(&self) -> Status {
        parse_status(&fs::read_to_string(self.folder.join("status")).unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Status {
    Booting,
    Started,
    Ended(u8),
}

/// What init has written so far. Only complete lines count.
fn parse_status(text: &str) -> Status {
    let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let ended = complete
        .lines()
        .find_map(|line| line.strip_prefix("exit ")?.parse().ok());
    match ended {
        Some(code) => Status::Ended(code),
        None if complete.lines().any(|line| line == "started") => Status::Started,
        None => Status::Booting,
    }
}

fn start(folder: &Path, image: &Image, job: &Job) -> Result<(Running, ChildStdout)> {
    let log = File::create(folder.join("qemu.log")).context("creating QEMU's log")?;
    let mut qemu = process::dying_with_us("qemu-system-x86_64", "KILL")?;
    qemu.args(arguments(image, job))
        // Its files are named relative to this folder, since the path of a socket is limited to 107 bytes.
        .current_dir(folder)
        // The child's handle keeps it open: otherwise QEMU would close the output channel, and the guest's first
        // write would block for ever.
        .stdin(Stdio::piped())
        .stderr(log);
    let (child, output) = process::piped(&mut qemu).context("starting QEMU")?;
    let folder = folder.to_owned();
    Ok((Running { child, folder }, output))
}

fn arguments(image: &Image, job: &Job) -> Vec<String> {
    let fixed = "-nodefaults -no-user-config -display none -no-reboot \
        -accel tcg,thread=multi -smp 2 -initrd initrd -serial file:console.log \
        -device virtio-rng-pci -device virtio-serial-pci \
        -chardev stdio,id=output,signal=off \
        -device virtserialport,chardev=output,name=portolan.output,nr=1 \
        -chardev file,id=status,path=status \
        -device virtserialport,chardev=status,name=portolan.status,nr=2";
    let mut all: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
    let mut add = |text: &[&str]| all.extend(text.iter().map(|word| (*word).to_owned()));
    add(&["-cpu", emulated::CPU]);
    add(&["-m", &job.memory.to_string()]);
    add(&["-kernel", &image.kernel().to_string_lossy()]);
    // An oops must be noticed.
    // A hanging kernel reports where, and ends, long before a timeout. On a busy machine it may stall for a while.
    let usual = "console=ttyS0 quiet panic=-1 oops=panic softlockup_panic=1 softlockup_all_cpu_backtrace=1 \
                 watchdog_thresh=60 rdinit=/init";
    let words: Vec<_> = [usual, emulated::KERNEL]
        .into_iter()
        .chain(job.kernel.iter().map(String::as_str))
        .collect();
    add(&["-append", &words.join(" ")]);
    if job.network {
        add(&["-nic", "user,model=virtio-net-pci"]);
    }
    if job.shell {
        add(&["-chardev", "socket,id=shell,path=shell,server=on,wait=off"]);
        add(&["-device", "virtconsole,chardev=shell,nr=0"]);
    }
    all
}

fn watch(
    running: &mut Running,
    job: &Job,
    slowness: f64,
    step: Step,
    started: &AtomicBool,
) -> Result<u8> {
    let mut step = Some(step);
    let mut since = Instant::now();
    loop {
        let ended = running.child.try_wait().context("waiting for QEMU")?;
        match running.status() {
            Status::Ended(code) => {
                drop(step);
                started.store(true, Ordering::Release);
                power_off(running, slowness)?;
                return Ok(code);
            }
            Status::Started if !started.load(Ordering::Acquire) => {
                if let Some(step) = step.take() {
                    step.done("booted");
                }
                // QEMU has read the file, which is as large as the programs; logs are kept for a while.
                drop(fs::remove_file(running.folder.join("initrd")));
                since = Instant::now();
                started.store(true, Ordering::Release);
            }
            Status::Started => check(job.deadline, since, slowness, "its command did not end")?,
            Status::Booting => check(Some(BOOT_DEADLINE), since, slowness, "it did not boot")?,
        }
        if let Some(status) = ended {
            bail!(died(status, started.load(Ordering::Acquire)));
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn check(deadline: Option<Duration>, since: Instant, slowness: f64, what: &str) -> Result<()> {
    let Some(limit) = deadline.map(|deadline| deadline.mul_f64(slowness)) else {
        return Ok(());
    };
    if since.elapsed() > limit {
        bail!(
            "the guest was ended: {what} within {} s (PORTOLAN_SLOWNESS={slowness} multiplies this)",
            limit.as_secs()
        );
    }
    Ok(())
}

fn died(status: ExitStatus, started: bool) -> String {
    let when = if started {
        "before its command ended"
    } else {
        "while booting"
    };
    format!("the guest died {when} (QEMU: {status}); a kernel panic ends it this way")
}

/// The guest has no state to lose, but a panic during shutdown must be reported.
fn power_off(running: &mut Running, slowness: f64) -> Result<()> {
    let (since, limit) = (Instant::now(), Some(POWER_OFF_DEADLINE));
    let child = &mut running.child;
    while child.try_wait().context("waiting for QEMU")?.is_none() {
        check(limit, since, slowness, "it did not power off")?;
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Output starts only after the spinner is gone.
fn forward(
    mut from: ChildStdout,
    to: &mut (dyn Write + Send),
    started: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        while !started.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        to.write_all(&buffer[..count])?;
        to.flush()?;
    }
}

fn with_console(error: &anyhow::Error, folder: &Path) -> anyhow::Error {
    let mut text = format!("{error:#}");
    for name in ["console.log", "qemu.log"] {
        let path = folder.join(name);
        let bytes = fs::read(&path).unwrap_or_default();
        let lines = process::last_lines(from_panic(&bytes), CONSOLE_LINES);
        if !lines.is_empty() {
            text.push_str(&format!("\n--- end of {} ---\n{lines}", path.display()));
        }
    }
    anyhow!(text)
}

/// The reason of a panic precedes a long trace, so the excerpt starts at the latest there.
fn from_panic(console: &[u8]) -> &[u8] {
    const REASON: &[u8] = b"Kernel panic";
    let Some(at) = console
        .windows(REASON.len())
        .rposition(|window| window == REASON)
    else {
        return console;
    };
    let rest = &console[at..];
    let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let end = ends
        .map(|(index, _)| index + 1)
        .nth(CONSOLE_LINES - 1)
        .unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_panic_the_reason_is_shown_first() {
        let mut console = b"[ 1.0] quiet\n[ 2.0] Kernel panic - not syncing: x\n".to_vec();
        for line in 0..60 {
            console.extend_from_slice(format!("trace {line}\n").as_bytes());
        }
        let shown = process::last_lines(from_panic(&console), CONSOLE_LINES);
        assert!(
            shown.starts_with("Kernel panic - not syncing: x\ntrace 0\n"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), CONSOLE_LINES);
        assert_eq!(from_panic(b"no such thing\n"), b"no such thing\n");
    }

    #[test]
    fn the_status_counts_only_whole_lines() {
        assert_eq!(parse_status(""), Status::Booting);
        assert_eq!(parse_status("start"), Status::Booting);
        assert_eq!(parse_status("started\n"), Status::Started);
        assert_eq!(parse_status("started\nexit 1"), Status::Started);
        assert_eq!(parse_status("started\nexit 137\n"), Status::Ended(137));
    }

    #[test]
    fn a_passed_deadline_names_what_was_awaited_and_the_factor() {
        let since = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let second = Some(Duration::from_secs(1));
        let error = check(second, since, 2.0, "it did not boot")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("did not boot within 2 s (PORTOLAN_SLOWNESS=2"),
            "{error}"
        );
        assert!(check(second, since, 10.0, "").is_ok());
        assert!(check(None, since, 1.0, "").is_ok());
    }
}
