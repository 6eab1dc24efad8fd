//! Requests of a running agent to the kernel, as seen by `strace`: messages byte by byte, programs by name, files by
//! path. A message that requests no dump counts as a write, except for one query whose answer is no dump.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;
use crate::namespace::Namespace;
use crate::program::{Program, Running};
use crate::topology::world::Node;
use crate::waits::{LATER, Waits};

/// `NLM_F_DUMP`: both of its bits.
const DUMP: u16 = 0x300;
/// The length of a netlink header.
const HEADER: usize = 16;
/// `IPVS_CMD_GET_CONFIG`, version 1, and no attributes: what follows the header of a message that asks
/// for the timeouts of connections. Neither ipset nor rtnetlink has a family of this number there.
const ASKS_FOR_TIMEOUTS: [u8; 4] = [13, 1, 0, 0];
/// `NFT_MSG_GETGEN` of nf_tables: the type of a message that asks whether any rules were changed.
const ASKS_FOR_GENERATION: u16 = 0x0a10;

/// Counts since the tracer was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Messages that ask for a list.
    pub(super) dumps: usize,
    /// Messages that ask for the timeouts of connections.
    pub(super) asked_for_timeouts: usize,
    /// Messages that ask whether any rules were changed.
    pub(super) asked_for_generation: usize,
    /// All others.
    pub(super) messages_that_write: usize,
    /// Programs that only print, like `iptables-save`.
    pub(super) programs_that_read: usize,
    /// All others.
    pub(super) programs_that_write: usize,
    /// Kernel settings that were opened to be written.
    pub(super) settings: usize,
}

impl Seen {
    pub(super) fn written(&self) -> usize {
        self.messages_that_write + self.programs_that_write + self.settings
    }

    /// Reads what `strace -f -e write=all` prints.
    fn read(text: &str) -> Self {
        let mut seen = Self::default();
        let mut others = BTreeSet::new();
        let mut bytes = Vec::new();
        let mut ours = false;
        for line in text.lines() {
            if let Some(dump) = line.strip_prefix(" | ") {
                if ours {
                    bytes.extend(hexadecimal(dump));
                }
                continue;
            }
            seen.messages(&std::mem::take(&mut bytes));
            let (pid, call) = line.split_once(' ').unwrap_or(("", line));
            let call = call.trim_start();
            ours = !others.contains(pid);
            if let Some(rest) = call.strip_prefix("execve(\"") {
                let program = rest.split('"').next().unwrap_or_default();
                if ours && program.ends_with("-save") {
                    seen.programs_that_read += 1;
                } else if ours {
                    seen.programs_that_write += 1;
                }
                // From here on it is another program.
                others.insert(pid.to_owned());
            } else if ours && call.starts_with("openat(") && call.contains("\"/proc/sys/") {
                seen.settings += usize::from(!call.contains("O_RDONLY"));
            }
        }
        seen.messages(&bytes);
        seen
    }

    /// Counts the netlink messages in these bytes and ignores other content.
    fn messages(&mut self, mut bytes: &[u8]) {
        let mut seen = Self::default();
        while !bytes.is_empty() {
            let (Some(length), Some(flags)) = (bytes.first_chunk::<4>(), bytes.get(6..8)) else {
                return;
            };
            let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
            let flags = u16::from_ne_bytes([flags[0], flags[1]]);
            let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
            if length < HEADER || length > bytes.len() {
                return;
            }
            if flags & DUMP == DUMP {
                seen.dumps += 1;
            } else if bytes.get(HEADER..length) == Some(&ASKS_FOR_TIMEOUTS) {
                seen.asked_for_timeouts += 1;
            } else if kind == ASKS_FOR_GENERATION {
                seen.asked_for_generation += 1;
            } else {
                seen.messages_that_write += 1;
            }
            bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        }
        self.dumps += seen.dumps;
        self.asked_for_timeouts += seen.asked_for_timeouts;
        self.asked_for_generation += seen.asked_for_generation;
        self.messages_that_write += seen.messages_that_write;
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lists, {} times timeouts and {} times the generation of rules asked for, {} other messages, {} \
             programs that read, {} others, {} settings written",
            self.dumps,
            self.asked_for_timeouts,
            self.asked_for_generation,
            self.messages_that_write,
            self.programs_that_read,
            self.programs_that_write,
            self.settings
        )
    }
}

/// The bytes of a line like `00000  14 00 00 00 …  ....`; what a line holds is 16 at most.
fn hexadecimal(line: &str) -> Vec<u8> {
    let columns = line.get(7..7 + 49).unwrap_or_default();
    let words = columns.split_whitespace();
    words
        .map_while(|word| u8::from_str_radix(word, 16).ok())
        .collect()
}

/// `strace` attached to an agent; dropping it detaches.
#[derive(Debug)]
pub(super) struct Tracer {
    file: PathBuf,
    _running: Running,
}

impl Tracer {
    /// Attaches to the agent of node-a.
    pub(super) fn attach(cluster: &Cluster, namespace: &Namespace, waits: Waits) -> Result<Self> {
        let (file, log) = (cluster.beside("trace"), cluster.beside("strace.log"));
        let pid = cluster.agent_pid(Node::A)?.to_string();
        let path = file.display().to_string();
        let calls = "trace=sendto,sendmsg,execve,openat";
        let args = [
            "-f",
            "-e",
            calls,
            "-e",
            "signal=none",
            "-e",
            "write=all",
            "-o",
            &path,
            "-p",
            &pid,
        ];
        let log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let running = namespace.inside(|| Program::Strace.start(&args, &log))?;
        let tracer = Self {
            file,
            _running: running,
        };
        waits.eventually("strace to see something", LATER, || {
            let log = || std::fs::read_to_string(cluster.beside("strace.log"));
            ensure!(tracer.seen()?.dumps > 0, "{}", log().unwrap_or_default());
            Ok(())
        })?;
        // The first line may be incomplete.
        File::options()
            .write(true)
            .truncate(true)
            .open(&tracer.file)?;
        Ok(tracer)
    }

    /// Everything that it has seen so far.
    pub(super) fn seen(&self) -> Result<Seen> {
        match std::fs::read(&self.file) {
            // strace continues at its old offset in a truncated file.
            Ok(text) => Ok(Seen::read(
                String::from_utf8_lossy(&text).trim_start_matches('\0'),
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Seen::default()),
            Err(error) => Err(error).with_context(|| format!("read {}", self.file.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_writes_programs_and_settings_are_distinguished() {
        let text = "\
12 sendto(9, [{nlmsg_len=20, ...}], 20, 0, {sa_family=AF_NETLINK}, 12) = 20
 | 00000  14 00 00 00 1d 00 01 03  01 00 00 00 00 00 00 00  ................ |
 | 00010  04 01 00 00                                       ....             |
12 sendto(9, \"...\", 40, 0, {sa_family=AF_NETLINK}, 12) = 40
 | 00000  14 00 00 00 1d 00 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  05 01 00 00 14 00 00 00  1d 00 05 00 01 00 00 00  ................ |
 | 00020  00 00 00 00 05 01 00 00                           ........         |
12 sendto(9, \"...\", 20, 0, {sa_family=AF_NETLINK}, 12) = 20
 | 00000  14 00 00 00 1d 00 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  0d 01 00 00                                       ....             |
12 sendto(11, \"...\", 20, 0, NULL, 0) = 20
 | 00000  14 00 00 00 10 0a 01 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  00 00 00 00                                       ....             |
12 sendto(3, \"PRI * HTTP\", 10, 0, NULL, 0) = 10
 | 00000  50 52 49 20 2a 20 48 54  54 50                    PRI * HTTP       |
13 execve(\"/usr/sbin/iptables-save\", [\"iptables-save\"], 0x1 /* 9 vars */) = 0
13 sendto(3, \"...\", 20, 0, {sa_family=AF_NETLINK}, 12) = 20
 | 00000  14 00 00 00 1d 00 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  04 01 00 00                                       ....             |
13 openat(AT_FDCWD, \"/proc/sys/net/x\", O_WRONLY) = 3
14 execve(\"/usr/sbin/iptables-restore\", [\"iptables-restore\"], 0x1) = 0
12 openat(AT_FDCWD, \"/proc/sys/net/ipv4/ip_forward\", O_RDONLY|O_CLOEXEC) = 3
12 openat(AT_FDCWD, \"/proc/sys/net/ipv4/ip_forward\", O_WRONLY|O_TRUNC|O_CLOEXEC) = 3
";
        let seen = Seen::read(text);
        let wanted = Seen {
            dumps: 1,
            asked_for_timeouts: 1,
            asked_for_generation: 1,
            messages_that_write: 2,
            programs_that_read: 1,
            programs_that_write: 1,
            settings: 1,
        };
        assert_eq!(seen, wanted);
        assert_eq!(seen.written(), 4);
    }
}
