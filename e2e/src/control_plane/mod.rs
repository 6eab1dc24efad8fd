//! A real Kubernetes control plane on this machine's loopback: etcd, the API server and Kubernetes' own controllers,
//! with their own CA, ports and folder. It needs no root.
//!
//! Each program is a guard, and each can be ended and started again by itself; the store keeps its
//! data. The programs are found by [`Program::path`](crate::program::Program::path), never in PATH. [`kubelet`] plays
//! the nodes.

mod authority;
mod clients;
mod kubeconfig;
pub mod kubelet;
mod part;
mod ports;
mod ready;
pub mod stand;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use authority::Authority;
pub use clients::Reach;
pub use part::Part;

use crate::logs;
use crate::program::{Program, Running};
use crate::waits::Waits;
use crate::work_folder::WorkFolder;

/// The address by which an emulated guest reaches this machine's loopback.
pub const FROM_A_GUEST: &str = "10.0.2.2";
/// The administrator's kubeconfig for this machine.
const ADMIN_FILE: &str = "admin.kubeconfig";
/// Users with tokens.
const TOKENS_FILE: &str = "tokens.csv";
/// How long a program may need until it serves, on hardware; measured: 3 s for the API server.
const START: Duration = Duration::from_secs(60);
/// How long a program may need to end after SIGTERM; the API server lets requests finish.
const END: Duration = Duration::from_secs(30);
/// Number of retries with another port if a port was taken in the meantime.
const PORT_ATTEMPTS: u32 = 5;
/// Number of the last log lines of each program in errors.
const LINES_SHOWN: usize = 8;

/// Which store lies below the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// etcd 3.6.
    Current,
    /// etcd 3.4 of Debian 12: lists are not streamed.
    Debian34,
}

/// How a control plane is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store.
    pub store: Store,
    /// Names of the controllers that run, as `kube-controller-manager --controllers` takes them.
    pub controllers: Vec<String>,
    /// Ranges of cluster IPs, one a family, with a comma between.
    pub service_ranges: String,
    /// More arguments of the API server.
    pub api_server: Vec<String>,
    /// More arguments of the controller manager.
    pub controller_manager: Vec<String>,
    /// Further clients; by default only programs of this machine can connect.
    pub nodes: Option<ForNodes>,
}

/// Settings of an API server with real kubelets, which are its clients and its servers.
#[derive(Debug, Clone)]
pub struct ForNodes {
    /// The address by which nodes reach it.
    pub address: Ipv4Addr,
    /// More names and addresses that its certificate is for.
    pub names: Vec<String>,
    /// Users with tokens, one a line: `TOKEN,USER,UID,"GROUP"`.
    pub tokens: String,
}

impl Default for Options {
    /// The present store; controllers of slices, namespaces, Deployments and what they leave.
    fn default() -> Self {
        let controllers = [
            "endpointslice-controller",
            "endpointslice-mirroring-controller",
            "namespace-controller",
            "deployment-controller",
            "replicaset-controller",
            "garbage-collector-controller",
        ];
        Self {
            store: Store::Current,
            controllers: controllers.map(String::from).to_vec(),
            service_ranges: "10.96.0.0/12,fd00:10:96::/112".to_owned(),
            api_server: Vec::new(),
            controller_manager: Vec::new(),
            nodes: None,
        }
    }
}

/// Where each program serves, on 127.0.0.1.
#[derive(Debug, Clone, Copy, Default)]
struct Ports {
    etcd: u16,
    api_server: u16,
    controller_manager: u16,
}

impl Ports {
    fn of(&mut self, part: Part) -> &mut u16 {
        match part {
            Part::Etcd => &mut self.etcd,
            Part::ApiServer => &mut self.api_server,
            Part::ControllerManager => &mut self.controller_manager,
        }
    }

    fn all(self) -> [u16; 3] {
        [self.etcd, self.api_server, self.controller_manager]
    }
}

/// A control plane that runs; dropping it ends its programs and removes its folder.
#[derive(Debug)]
pub struct ControlPlane {
    // The order matters: programs end before their folder goes.
    running: BTreeMap<Part, Running>,
    ports: Ports,
    authority: Authority,
    options: Options,
    waits: Waits,
    folder: WorkFolder,
}

impl ControlPlane {
    /// Starts all three programs and waits until each serves and the namespace `default` is there.
    ///
    /// # Errors
    /// When a program is missing, ends, or does not serve in time; with the last log lines of each.
    pub fn start(waits: Waits, options: Options) -> Result<Self> {
        let mut plane = Self {
            running: BTreeMap::new(),
            ports: Ports::default(),
            authority: Authority::new()?,
            options,
            waits,
            folder: WorkFolder::private()?,
        };
        plane.write_identities()?;
        for part in Part::ALL {
            plane.start_first(part)?;
        }
        // A program that lost its port to another instance has ended by now.
        plane.check_running()?;
        Ok(plane)
    }

    /// Starts a part that does not run and waits until it serves. Its port and data are the same
    /// as before.
    ///
    /// # Errors
    /// When it runs already, ends, or does not serve in time.
    pub fn start_part(&mut self, part: Part) -> Result<()> {
        self.spawn(part)?;
        self.wait_serving(part)
            .map_err(|error| self.with_logs(error))
    }

    /// Starts a program that works with this API server as administrator. Its log is beside those of the parts.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn beside(&self, program: Program, words: &[&str]) -> Result<Running> {
        let path = self.folder.path.join(format!("{}.log", program.name()));
        let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let admin = self.kubeconfig(Reach::Here).display().to_string();
        program.start(&[&["--kubeconfig", &admin], words].concat(), &log)
    }

    /// Asks a part to end (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// When it does not run, or does not end in time.
    pub fn stop(&mut self, part: Part) -> Result<()> {
        let running = self.take(part)?;
        running.ask_to_end()?;
        let what = format!("{} to end after SIGTERM", part.name());
        let ended = || running.ended()?.context("it runs on");
        let waited = self.waits.eventually(&what, END, ended);
        waited.map(drop).map_err(|error| self.with_logs(error))
    }

    /// Ends a part at once (SIGKILL).
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, part: Part) -> Result<()> {
        self.take(part)?.kill()
    }

    /// Stops a part where it is, as an overloaded machine does.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&mut self, part: Part) -> Result<()> {
        self.running_part(part)?.pause()
    }

    /// Resumes a stopped part.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&mut self, part: Part) -> Result<()> {
        self.running_part(part)?.resume()
    }

    fn running_part(&mut self, part: Part) -> Result<&mut Running> {
        let running = self.running.get_mut(&part);
        running.with_context(|| format!("{} does not run", part.name()))
    }

    /// Ends a part at once and starts it again; waits until it serves.
    ///
    /// # Errors
    /// As [`Self::kill`] and [`Self::start_part`].
    pub fn restart(&mut self, part: Part) -> Result<()> {
        self.kill(part)?;
        self.start_part(part)
    }

    /// Whether every part still runs.
    ///
    /// # Errors
    /// If one has ended; with the last log lines of each. A part that was stopped is not missed.
    pub fn check_running(&self) -> Result<()> {
        for running in self.running.values() {
            if let Some(status) = running.ended()? {
                let error = anyhow!("{} ended with {status}", running.line());
                return Err(self.with_logs(error));
            }
        }
        Ok(())
    }

    /// The resident memory of a part in kB, while it runs.
    #[must_use]
    pub fn memory_kb(&self, part: Part) -> Option<u64> {
        self.running.get(&part)?.memory_kb()
    }

    /// The processor time that a part took so far in seconds, while it runs.
    #[must_use]
    pub fn cpu_seconds(&self, part: Part) -> Option<f64> {
        self.running.get(&part)?.cpu_seconds()
    }

    /// Free ports of loopback, none of its own.
    ///
    /// # Errors
    /// When there are none.
    pub fn free_ports(&self) -> Result<[u16; 2]> {
        let ours = self.ports.all();
        let first = ports::free(&ours)?;
        Ok([first, ports::free(&[&ours[..], &[first]].concat())?])
    }

    /// The port of the API server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.api_server
    }

    /// The certificate of the authority that signed its own, as PEM.
    #[must_use]
    pub fn authority_pem(&self) -> String {
        self.authority.certificate()
    }

    /// Its folder: keys, kubeconfigs, logs and data. Only this user can read it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Everything that a part has printed.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn log(&self, part: Part) -> Result<String> {
        let path = self.log_path(part);
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An error with the last log lines of every part, unless it has them already.
    #[must_use]
    pub fn with_logs(&self, error: anyhow::Error) -> anyhow::Error {
        logs::attach(error, || self.last_words())
    }

    /// The last lines of every part's log.
    pub(crate) fn last_words(&self) -> String {
        // A part that was never started has no log.
        let tail = |part: Part| {
            let log = self.log(part).unwrap_or_default();
            logs::tail(part.name(), &log, LINES_SHOWN)
        };
        Part::ALL.map(tail).concat()
    }

    /// Chooses a port, and another one if it was taken before the part could listen.
    fn start_first(&mut self, part: Part) -> Result<()> {
        for _ in 1..PORT_ATTEMPTS {
            self.choose_port(part)?;
            let started = self.start_part(part);
            if started.is_ok() || !self.log(part)?.contains("address already in use") {
                return started;
            }
            drop(self.running.remove(&part));
        }
        self.choose_port(part)?;
        self.start_part(part)
    }

    fn choose_port(&mut self, part: Part) -> Result<()> {
        *self.ports.of(part) = ports::free(&self.ports.all())?;
        if part == Part::ApiServer {
            self.write_admin()?;
        }
        Ok(())
    }

    fn spawn(&mut self, part: Part) -> Result<()> {
        if self.running.contains_key(&part) {
            bail!("{} runs already", part.name());
        }
        let path = self.log_path(part);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        let arguments = part.arguments(&self.folder.path, self.ports, &self.options);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let running = part.program(self.options.store).start(&words, &log)?;
        self.running.insert(part, running);
        Ok(())
    }

    fn take(&mut self, part: Part) -> Result<Running> {
        self.running
            .remove(&part)
            .with_context(|| format!("{} does not run", part.name()))
    }

    fn log_path(&self, part: Part) -> PathBuf {
        self.folder.path.join(format!("{}.log", part.name()))
    }
}
