//! Network namespaces: entering them on their own threads, and nothing else.
//!
//! A thread moves, the process does not: `/proc/thread-self/net` and `/proc/sys/net` of that
//! thread, its sockets and the children it starts all belong to the namespace. That replaces a
//! process (`ip netns exec`) for every check, which an emulated machine would feel.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};

use crate::program::Program;

/// Where `ip netns` keeps its namespaces: the second where it was built as its authors ship it,
/// the first as Debian does. Usually they are the same folder.
pub const FOLDERS: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// A named network namespace that exists.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: Arc<str>,
    handle: Arc<File>,
}

impl Namespace {
    /// Opens one by the name that `ip netns list` shows.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn open(name: &str) -> Result<Self> {
        let open = |folder: &&str| File::open(Path::new(folder).join(name)).ok();
        let handle = FOLDERS.iter().find_map(open).with_context(|| {
            format!(
                "network namespace {name} is not in {}",
                FOLDERS.join(" or ")
            )
        })?;
        Ok(Self {
            name: name.into(),
            handle: Arc::new(handle),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread there for good; threads and programs that it starts are there as well.
    ///
    /// # Errors
    /// When this process may not.
    pub fn enter(&self) -> Result<()> {
        setns(&*self.handle, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("enter network namespace {} (needs root)", self.name))
    }

    /// Does something inside and waits for its result.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the work's own error.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter()?;
                    work()
                })
                .join()
                .map_err(|_| anyhow!("a thread inside network namespace {} panicked", self.name))?
        })
    }

    /// Starts work inside that lasts.
    ///
    /// # Errors
    /// When no thread can be started. The work's own error comes with the handle.
    pub fn start<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let namespace = self.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                namespace.enter()?;
                work()
            })
            .with_context(|| format!("start a thread for {name} in {}", self.name))
    }

    /// Writes kernel settings (`net/…`, without `/proc/sys`) inside.
    ///
    /// # Errors
    /// Names the first setting that this kernel does not have or refuses.
    pub fn set(&self, settings: &[(String, &str)]) -> Result<()> {
        self.inside(|| {
            for (name, value) in settings {
                std::fs::write(Path::new("/proc/sys").join(name), value)
                    .with_context(|| format!("set {name}={value} in {}", self.name))?;
            }
            Ok(())
        })
    }
}

/// A namespace of its own for a measurement; dropping it removes it with all it holds.
#[derive(Debug)]
pub struct Temporary {
    namespace: Namespace,
}

impl Temporary {
    /// Makes one.
    ///
    /// # Errors
    /// When there is one of that name already.
    pub fn make(name: &str) -> Result<Self> {
        Program::Ip.run(&["netns", "add", name])?;
        // Without any local address the kernel takes every address for a broadcast one, and IPVS
        // refuses it as a real server.
        Program::Ip.run(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(Self {
            namespace: Namespace::open(name)?,
        })
    }

    /// To enter it.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = Program::Ip.run(&["netns", "delete", self.namespace.name()]) {
            crate::console::complain(&format!("{error:#}"));
        }
    }
}
