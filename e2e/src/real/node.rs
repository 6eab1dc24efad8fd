//! One emulated machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Kit;
use super::network::tap;
use super::node_files::{self, Common};
use crate::program::{Program, Running};

/// Of each, MB.
const MEMORY: u32 = 3500;
/// A kernel that falls over starts again, as a node does.
const KERNEL: &str = "console=ttyS0 quiet panic=5 oops=panic";

/// A node that runs; dropping it ends it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) running: Running,
    console: PathBuf,
}

impl Node {
    /// Starts a machine in the network of the calling thread. What it writes to its disks goes with it.
    pub(super) fn start(number: u8, common: &Common<'_>, kit: &Kit, folder: &Path) -> Result<Self> {
        let name = node_files::name(number);
        let folder = folder.join(&name);
        let files = folder.join("files");
        for (path, text) in node_files::of(number, common)? {
            let path = files.join(path);
            let writing = || format!("write {}", path.display());
            fs::create_dir_all(path.parent().unwrap_or(&files)).with_context(writing)?;
            fs::write(&path, text).with_context(writing)?;
        }
        let packed = folder.join("files.tar");
        let words = [
            "-cf",
            &text(&packed),
            "--owner=0",
            "--group=0",
            "-C",
            &text(&files),
            ".",
        ];
        Program::Tar.run(&words)?;
        let console = folder.join("console.log");
        let arguments = arguments(number, kit, &packed, &console);
        let log = folder.join("qemu.log");
        let log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        // The lab may be ended by a signal that leaves it no time.
        let qemu = text(&Program::Qemu.path()?);
        let mut words = vec!["--pdeathsig", "KILL", "--", &qemu];
        words.extend(arguments.iter().map(String::as_str));
        let running = Program::Setpriv.start_with(&words, &[("TMPDIR", &folder)], &log)?;
        Ok(Self {
            name,
            running,
            console,
        })
    }

    /// Its console output.
    pub(super) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }
}

fn arguments(number: u8, kit: &Kit, files: &Path, console: &Path) -> Vec<String> {
    let fixed = "-nodefaults -no-user-config -display none -accel tcg,thread=multi -smp 2 \
        -device virtio-rng-pci";
    let mut all: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
    let mut add = |option: &str, value: String| all.extend([option.to_owned(), value]);
    add("-cpu", kit.cpu.clone());
    add("-m", MEMORY.to_string());
    add("-kernel", text(&kit.kernel));
    add("-initrd", text(&kit.initrd));
    add("-append", format!("{KERNEL} {}", kit.boot));
    add("-serial", format!("file:{}", console.display()));
    for (disk, path) in [&kit.system, &kit.store, files].into_iter().enumerate() {
        let path = path.display();
        add(
            "-drive",
            format!("if=none,id=disk{disk},file={path},format=raw,snapshot=on,cache=unsafe"),
        );
        add("-device", format!("virtio-blk-pci,drive=disk{disk}"));
    }
    add(
        "-netdev",
        format!("tap,id=net,ifname={},script=no,downscript=no", tap(number)),
    );
    add(
        "-device",
        format!("virtio-net-pci,netdev=net,mac=52:54:00:50:00:1{number}"),
    );
    all
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::MOST_NODES;
    use super::*;

    /// Of a machine that runs the tests, MB.
    const MACHINE: u32 = 24 * 1024;

    #[test]
    fn the_most_nodes_leave_half_of_a_machine_to_the_control_plane_and_the_tests() {
        assert!(u32::from(MOST_NODES) * MEMORY <= MACHINE / 2);
    }

    #[test]
    fn every_node_has_its_own_port_and_address_and_this_much_memory() {
        let path = PathBuf::from;
        let kit = Kit {
            cpu: "max".to_owned(),
            boot: "quiet".to_owned(),
            kernel: path("/kernel"),
            initrd: path("/initrd"),
            system: path("/system"),
            store: path("/store"),
            chart: path("/chart"),
            earlier: path("/earlier"),
            files: None,
        };
        let of = |number| arguments(number, &kit, Path::new("/files"), Path::new("/console"));
        let has = |number: u8, value: &str| of(number).iter().any(|one| one == value);
        let mut networks = Vec::new();
        for number in 1..=MOST_NODES {
            assert!(has(number, &MEMORY.to_string()));
            let all = of(number).into_iter();
            let network = all.filter(|one| one.contains("netdev") || one.contains("tap"));
            networks.push(network.collect::<Vec<_>>());
        }
        networks.sort();
        networks.dedup();
        assert_eq!(networks.len(), usize::from(MOST_NODES));
    }
}
