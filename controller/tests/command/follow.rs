//! `portolan-controller run`: follows manifests, writes plans, ends on a signal.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use portolan_plan::PlanDocument;
use tempfile::TempDir;

use crate::program::{NODE, SERVICE, folder, program};

/// Timeout of every wait; far longer than needed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running controller, killed at the end of the test.
struct Running {
    child: Child,
    log: Receiver<String>,
    folder: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Running {
    fn start(folder: TempDir) -> Self {
        let arguments = [
            "run",
            "--manifests",
            "manifests",
            "--listen",
            "unix:socket",
            "--insecure",
            "--plans-dir",
            "plans",
        ];
        let mut child = program(folder.path(), &arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = sync_channel(1024);
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { child, log, folder }
    }

    /// Waits for a log line that contains this.
    fn wait(&self, words: &str) -> String {
        let mut seen = String::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen = seen + &line + "\n",
                Err(error) => panic!("{error} while waiting for {words:?} after:\n{seen}"),
            }
        }
    }

    /// Writes a manifest atomically.
    fn write(&self, name: &str, text: &str) {
        let draft = self.folder.path().join("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, self.manifest(name)).unwrap();
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.folder.path().join("manifests").join(name)
    }

    fn plan(&self) -> PlanDocument {
        let text = std::fs::read(self.folder.path().join("plans/node-a.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn services(&self) -> Vec<String> {
        self.plan()
            .services
            .iter()
            .map(|service| service.name.to_string())
            .collect()
    }

    fn end(mut self) {
        let id = self.child.id().to_string();
        let status = std::process::Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap();
        assert!(status.success());
        self.wait("ending");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket().exists(), "the socket is taken away");
    }

    fn socket(&self) -> PathBuf {
        Path::new(self.folder.path()).join("socket")
    }
}

#[test]
fn changes_of_manifests_become_changes_of_plans() {
    let running = Running::start(folder(&[("nodes.yaml", NODE), ("services.yaml", SERVICE)]));
    running.wait("planned");
    assert_eq!(running.services(), ["cart"]);
    assert!(running.socket().exists());

    let other = SERVICE
        .replace("cart", "till")
        .replace("10.96.0.10", "10.96.0.11");
    running.write("more.yaml", &other);
    let line = running.wait("planned");
    assert!(
        line.contains("Service shop/till") && line.contains("services=1"),
        "{line}"
    );
    assert_eq!(running.services(), ["cart", "till"]);

    std::fs::remove_file(running.manifest("services.yaml")).unwrap();
    let line = running.wait("planned");
    assert!(line.contains("Service shop/cart (gone)"), "{line}");
    assert_eq!(running.services(), ["till"]);

    std::fs::remove_file(running.manifest("nodes.yaml")).unwrap();
    let line = running.wait("planned");
    assert!(line.contains("Node node-a (gone)"), "{line}");
    assert!(!running.folder.path().join("plans/node-a.json").exists());
    running.end();
}

#[test]
fn a_file_that_cannot_be_read_keeps_the_objects_it_had() {
    let running = Running::start(folder(&[("nodes.yaml", NODE), ("services.yaml", SERVICE)]));
    running.wait("planned");
    let other = SERVICE
        .replace("cart", "till")
        .replace("10.96.0.10", "10.96.0.11");
    running.write("services.yaml", &format!("{other}---\nkind: [\n"));
    let line = running.wait("planned");
    assert!(line.contains("Service shop/till"), "{line}");
    assert_eq!(
        running.services(),
        ["cart", "till"],
        "the broken document may hold the cart"
    );

    running.write("services.yaml", &other);
    let line = running.wait("planned");
    assert!(line.contains("Service shop/cart (gone)"), "{line}");
    assert_eq!(running.services(), ["till"]);
    running.end();
}

#[test]
fn an_object_that_cannot_be_read_any_more_keeps_its_old_form() {
    let running = Running::start(folder(&[("nodes.yaml", NODE), ("services.yaml", SERVICE)]));
    running.wait("planned");
    running.write("services.yaml", &SERVICE.replace("port: 80", "port: 0"));
    running.wait("spec.ports[0].port");
    running.write(
        "other.yaml",
        &SERVICE
            .replace("cart", "till")
            .replace("10.96.0.10", "10.96.0.11"),
    );
    running.wait("planned");
    assert_eq!(running.services(), ["cart", "till"]);
    running.end();
}

#[test]
fn no_plan_is_published_before_every_file_can_be_read() {
    let running = Running::start(folder(&[
        ("nodes.yaml", NODE),
        ("services.yaml", "kind: [\n"),
    ]));
    running.wait("no plan is published");
    assert!(!running.folder.path().join("plans").exists());
    running.write("services.yaml", SERVICE);
    running.wait("planned");
    assert_eq!(running.services(), ["cart"]);
    running.end();
}

#[test]
fn a_missing_folder_is_waited_for() {
    let empty = folder(&[]);
    std::fs::remove_dir(empty.path().join("manifests")).unwrap();
    let running = Running::start(empty);
    running.wait("waiting for it");
    std::fs::create_dir(running.folder.path().join("manifests")).unwrap();
    running.wait("no manifests yet");
    running.write("all.yaml", &format!("{NODE}---\n{SERVICE}"));
    running.wait("planned");
    assert_eq!(running.services(), ["cart"]);
    // A removed folder does not mean that its Services are removed.
    std::fs::remove_dir_all(running.folder.path().join("manifests")).unwrap();
    running.wait("keeping the plans");
    assert_eq!(running.services(), ["cart"]);
    running.end();
}

#[test]
fn the_plan_on_disk_is_the_plan_that_is_printed() {
    let running = Running::start(folder(&[("nodes.yaml", NODE), ("services.yaml", SERVICE)]));
    running.wait("planned");
    let arguments = [
        "plan",
        "--manifests",
        "manifests",
        "--node",
        "node-a",
        "-o",
        "json",
    ];
    let printed = program(running.folder.path(), &arguments).output().unwrap();
    assert_eq!(
        serde_json::from_slice::<PlanDocument>(&printed.stdout).unwrap(),
        running.plan()
    );
    running.end();
}

#[test]
fn a_second_controller_does_not_take_the_socket() {
    let running = Running::start(folder(&[("nodes.yaml", NODE)]));
    running.wait("planned");
    let arguments = [
        "run",
        "--manifests",
        "manifests",
        "--listen",
        "unix:socket",
        "--insecure",
    ];
    let second = program(running.folder.path(), &arguments).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8(second.stderr).unwrap();
    assert!(
        message.contains("check whether another controller runs there"),
        "{message}"
    );
    running.end();
}

#[test]
fn no_plan_is_published_with_settings_that_cannot_be_read() {
    let config = "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {name: default}\n\
                  spec: {settings: {scheduler: lc}}\n";
    let files = [
        ("all.yaml", &*format!("{NODE}---\n{SERVICE}")),
        ("config.yaml", &*config.replace("lc", "''")),
    ];
    let running = Running::start(folder(&files));
    running.wait("spec.settings.scheduler");
    running.wait("no plan is published");
    running.write("config.yaml", config);
    running.wait("planned");
    assert_eq!(&*running.plan().settings.scheduler, "lc");
    // Once settings were read, a mistake in them leaves the last good ones in force.
    running.write("config.yaml", &config.replace("lc", "l c"));
    running.wait("spec.settings.scheduler");
    running.write(
        "more.yaml",
        &SERVICE
            .replace("cart", "till")
            .replace("10.96.0.10", "10.96.0.11"),
    );
    running.wait("planned");
    assert_eq!(&*running.plan().settings.scheduler, "lc");
    running.end();
}

/// Agent streams do not end on their own, so the end of the program must not wait for them.
#[test]
fn it_ends_while_an_agent_is_connected() {
    let running = Running::start(folder(&[("all.yaml", NODE)]));
    running.wait("planned");
    let connected = std::os::unix::net::UnixStream::connect(running.socket()).unwrap();
    running.end();
    drop(connected);
}
