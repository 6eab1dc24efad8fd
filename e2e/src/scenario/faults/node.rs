//! A node with a problem: its kernel refuses an endpoint, settings are read-only, its disk is full, IPv6 is off.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::super::extra::{Extra, cluster_ip};
use super::{Checks, FIRST, Lab, NODE, file};
use crate::dataplane::Dataplane;
use crate::program::Program;
use crate::topology::load_bridge_filters;
use crate::topology::world::{Family, Resident};
use crate::waits::{LATER, SOON};
use crate::{console, mounts, witness};

/// The broadcast address of the nodes' network: no kernel takes it for a real server.
const UNREACHABLE: &str = "192.168.50.255";

/// One operation in the middle of others is refused, because of a value that a user of a Service chose.
pub(super) fn refused(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("an endpoint that is refused");
    let mark = lab.log_end(NODE)?;
    lab.state.0 += 1;
    let number = lab.state.0;
    let endpoints = ["10.244.1.11", UNREACHABLE, "10.244.2.12"];
    let text = Extra {
        endpoints: &endpoints,
        ..Extra::new(number)
    }
    .manifest();
    lab.write(&file(number), &text)?;
    let named = format!("the kernel refuses endpoint {UNREACHABLE}:8080: ");
    let words = ["EndpointRefused", &named, "Invalid argument"];
    checks.check(
        "an endpoint that is refused is reported with its Service (S-169, S-229)",
        lab.wait_logged(NODE, mark, &words, SOON),
    );
    checks.check(
        "one is refused: the other endpoints serve the Service",
        lab.served(number, &Family::ALL),
    );
    checks.check(
        "one is refused: Services are served, new ones too",
        lab.follows(&Family::ALL),
    );
    checks.check(
        "one is refused: the node has no failure and is healthy (S-229)",
        healthy(lab, mark),
    );
    let mark = lab.log_end(NODE)?;
    let text = Extra::new(number).manifest();
    lab.write(&file(number), &text)?;
    let again = ["Services are in the kernel as their objects ask again"];
    checks.check(
        "once nothing is refused, the Service is as it asks (S-169)",
        lab.wait_logged(NODE, mark, &again, LATER),
    );
    Ok(())
}

/// A setting that the agent needs and Services of the lab do not: its name, a wrong value, and the right one.
fn setting(dataplane: Dataplane) -> (&'static str, &'static str, &'static str) {
    match dataplane {
        Dataplane::Ipvs => ("net/ipv4/vs/expire_quiescent_template", "0", "1"),
        Dataplane::Nftables => ("net/ipv4/ip_local_reserved_ports", "1", "30000-32767"),
    }
}

/// Kernel settings are read-only for the agent.
pub(super) fn read_only(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("kernel settings that are read-only");
    let mark = lab.log_end(NODE)?;
    lab.cluster.stop_agent(NODE)?;
    lab.cluster
        .start_agent_after(NODE, &[], mounts::make_settings_read_only)?;
    checks.check(
        "read-only settings with correct values are no failure (S-174)",
        right(lab, mark),
    );
    let mark = lab.log_end(NODE)?;
    let node = lab.node(NODE)?;
    let (setting, wrong, right) = setting(lab.stage.dataplane);
    node.set(&[(setting.to_owned(), wrong)])?;
    let named = format!("set {} to ", setting.replace('/', "."));
    let words = [
        &named,
        "Read-only file system",
        "/proc/sys is read-only for this process",
    ];
    checks.check(
        "a wrong read-only setting is logged with what to do (S-174, S-225)",
        lab.wait_logged(NODE, mark, &words, LATER),
    );
    checks.check(
        "a read-only setting is wrong: Services are served, new ones too",
        lab.follows(&Family::ALL),
    );
    checks.check(
        "a wrong read-only setting is no failure, and the node is healthy (S-225)",
        healthy(lab, mark),
    );
    node.set(&[(setting.to_owned(), right)])?;
    late_interfaces(lab, checks)
}

/// Interfaces that network plugins create after the agent has started, one of which needs a setting.
const LATE: [&str; 5] = [
    "link add flannel.1 type vxlan id 1 dev eth0 dstport 8472",
    "address add 10.244.1.253/32 dev flannel.1",
    "link set flannel.1 up",
    "link add cni0 type bridge",
    "address add 10.244.1.254/32 dev cni0",
];
const BRIDGES: &str = "net/bridge/bridge-nf-call-iptables";

/// S-225: interfaces added later need settings too, which cannot be written either.
fn late_interfaces(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    load_bridge_filters()?;
    let node = lab.node(NODE)?;
    let before = node.inside(|| Ok(std::fs::read_to_string(settings_file(BRIDGES))?))?;
    node.set(&[(BRIDGES.to_owned(), "0")])?;
    let mark = lab.log_end(NODE)?;
    for line in LATE {
        lab.tool(NODE, Program::Ip, line)?;
    }
    let named = format!("set {} to 1: ", BRIDGES.replace('/', "."));
    checks.check(
        "settings for interfaces that come later are reported as read-only (S-82, S-225)",
        lab.wait_logged(NODE, mark, &[&named, "Read-only file system"], LATER),
    );
    checks.check(
        "beside interfaces that came later Services are served, new ones too",
        lab.follows(&Family::ALL),
    );
    checks.check(
        "beside interfaces that came later the node is healthy (S-225)",
        healthy(lab, mark),
    );
    for name in ["flannel.1", "cni0"] {
        lab.tool(NODE, Program::Ip, &format!("link del {name}"))?;
    }
    node.set(&[(BRIDGES.to_owned(), before.trim())])
}

fn settings_file(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

/// Checks that no failure was logged and the health endpoint answers.
fn healthy(lab: &Lab<'_>, mark: usize) -> Result<()> {
    let said = lab.log_since(NODE, mark)?;
    ensure!(!said.contains("ERROR"), "{said}");
    let target = (NODE.address(Family::IPv4), 10256).into();
    let answer = lab.get(Resident::Node(NODE), target, "/healthz")?;
    ensure!(answer.status == 200, "{}", answer.body);
    Ok(())
}

fn right(lab: &Lab<'_>, mark: usize) -> Result<()> {
    lab.wait_logged(NODE, mark, &["the plan is in force"], SOON)?;
    let said = lab.log_since(NODE, mark)?;
    ensure!(!said.contains("ERROR"), "{said}");
    Ok(())
}

/// A small tmpfs; dropping it unmounts it.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    fn mount(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=64k"),
        )
        .with_context(|| format!("mount a small disk at {} (needs root)", path.display()))?;
        Ok(Self { path: path.into() })
    }

    /// Fills it to the last byte.
    fn fill(&self) -> Result<PathBuf> {
        let path = self.path.join("of-another-program");
        let mut file = File::create(&path)?;
        loop {
            match file.write(&[0; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(path),
                Err(error) => return Err(error).context("fill the disk"),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.path, MntFlags::MNT_DETACH) {
            console::complain(&format!("unmount {}: {error}", self.path.display()));
        }
    }
}

/// Runs `faults` while the state folder of the agent is a small disk. The next agent finds an empty folder, as after the
/// loss of a disk.
fn on_small_disk(
    lab: &mut Lab<'_>,
    faults: impl FnOnce(&mut Lab<'_>, &SmallDisk) -> Result<()>,
) -> Result<()> {
    lab.heading("a full disk");
    lab.cluster.stop_agent(NODE)?;
    let disk = SmallDisk::mount(&lab.cluster.state_folder(NODE))?;
    start(lab)?;
    faults(lab, &disk)?;
    lab.cluster.stop_agent(NODE)?;
    drop(disk);
    start(lab)
}

/// Starts the agent, and waits until the plan is in force.
fn start(lab: &mut Lab<'_>) -> Result<()> {
    let mark = lab.log_end(NODE)?;
    lab.cluster.start_agent(NODE)?;
    right(lab, mark)
}

/// The ownership record cannot be written.
pub(super) fn full_disk(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    on_small_disk(lab, |lab, disk| no_record(lab, checks, disk))
}

fn no_record(lab: &mut Lab<'_>, checks: &mut Checks, disk: &SmallDisk) -> Result<()> {
    let record = disk.path.join("virtual-servers");
    let before = std::fs::read_to_string(&record)?;
    let mark = lab.log_end(NODE)?;
    let filling = disk.fill()?;
    checks.check(
        "the disk is full: Services are served, new ones too",
        lab.follows(&Family::ALL),
    );
    let words = [
        "record virtual servers: ",
        "No space left on device",
        "`df` shows it",
    ];
    checks.check("a full disk is one failure", lab.fails_once(mark, &words));
    checks.check("the disk is full: the record stays as it was", {
        let now = std::fs::read_to_string(&record).context("read the record");
        now.and_then(|now| {
            ensure!(now == before, "it was {before:?} and is {now:?}");
            Ok(())
        })
    });
    let mark = lab.log_end(NODE)?;
    std::fs::remove_file(filling)?;
    checks.check("the record is whole once there is room", {
        let server = format!("TCP 10.96.2.{}:80", 100 + lab.state.0);
        lab.heals(mark).and_then(|()| {
            let now = std::fs::read_to_string(&record)?;
            ensure!(
                now.lines().any(|line| line == server),
                "no {server} in {now}"
            );
            Ok(())
        })
    });
    Ok(())
}

/// The plan cannot be saved for the next start.
pub(super) fn full_disk_of_plans(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    on_small_disk(lab, |lab, disk| no_saved_plan(lab, checks, disk))
}

fn no_saved_plan(lab: &mut Lab<'_>, checks: &mut Checks, disk: &SmallDisk) -> Result<()> {
    lab.wait_plan_on_disk(NODE)?;
    let plan = disk.path.join("plan");
    let before = std::fs::read(&plan)?;
    let filling = disk.fill()?;
    let mark = lab.log_end(NODE)?;
    checks.check(
        "the disk is full: Services are served, new ones too",
        lab.follows(&Family::ALL),
    );
    let words = ["could not save the plan", "No space left on device"];
    checks.check(
        "a full disk is a warning about the saved plan, and the node is healthy",
        lab.wait_logged(NODE, mark, &words, LATER)
            .and_then(|()| healthy(lab, mark)),
    );
    checks.check("the disk is full: the saved plan stays as it was", {
        let now = std::fs::read(&plan).context("read the saved plan");
        now.and_then(|now| {
            ensure!(now == before, "it differs");
            Ok(())
        })
    });
    std::fs::remove_file(filling)?;
    checks.check("a plan is saved again once there is room", {
        lab.follows(&Family::ALL).and_then(|()| {
            lab.eventually("another saved plan", LATER * 2, || {
                ensure!(std::fs::read(&plan)? != before, "it is as before");
                Ok(())
            })
        })
    });
    Ok(())
}

/// IPv6 is switched off on the whole node, and on again. The last of all, because a node loses its
/// IPv6 addresses with it.
pub(super) fn without_ipv6(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a node without IPv6");
    let routes = ours(lab)?;
    ensure!(!routes.is_empty(), "there are no IPv6 routes of ours");
    let node = lab.node(NODE)?;
    let switch = |value| node.set(&[("net/ipv6/conf/all/disable_ipv6".to_owned(), value)]);
    let mark = lab.log_end(NODE)?;
    switch("1")?;
    let words = [
        "serve IPv6: ",
        "IPv6 is off on this node",
        "disable_ipv6 is 1",
    ];
    checks.check(
        "a node without IPv6 is one failure",
        lab.fails_once(mark, &words),
    );
    checks.check(
        "without IPv6: IPv4 Services are served, new ones too",
        lab.follows(&[Family::IPv4]),
    );
    checks.check(
        "without IPv6: no other failure was logged",
        lab.logged_once(mark, &words),
    );
    let left = ours(lab)?;
    checks.require(
        "without IPv6: nothing of ours serves it",
        left.is_empty(),
        &format!("there are {left:?}"),
    );
    let mark = lab.log_end(NODE)?;
    switch("0")?;
    checks.check("IPv6 Services are routed again once IPv6 is back", {
        lab.heals(mark).and_then(|()| {
            let now = ours(lab)?;
            ensure!(
                now == routes,
                "there were {routes:?}, and there are {now:?}"
            );
            Ok(())
        })
    });
    Ok(())
}

/// What serves IPv6: where the routes over our device lead, or the frontends in the table. Clients cannot tell, because
/// the node has lost its IPv6 addresses.
fn ours(lab: &Lab<'_>) -> Result<Vec<String>> {
    if lab.stage.dataplane == Dataplane::Nftables {
        let served = witness::tables::served(&lab.node(NODE)?)?;
        let frontends = served.keys().filter(|server| server.address.is_ipv6());
        let first = cluster_ip(FIRST, Family::IPv6)?;
        let first = frontends.filter(|server| server.address == first);
        return Ok(first.map(|server| server.address.to_string()).collect());
    }
    let shown = lab.tool(NODE, Program::Ip, "-6 route show dev kube-ipvs0 proto 112")?;
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let mut routes: Vec<_> = shown.lines().filter_map(first).collect();
    routes.sort();
    Ok(routes)
}
