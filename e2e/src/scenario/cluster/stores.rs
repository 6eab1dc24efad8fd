//! The controller's watches on a real API server with each supported etcd version: servers that
//! restart, expired resource versions, servers that stall, and objects deleted while the watch was
//! down.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Part, Store};
use crate::harness::Environment as _;
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "stores",
    shows: "watches on etcd 3.6 and 3.4: restarts, expired versions, stalls; plans stay right",
    run,
};

/// From a change until every plan equals one made from scratch, on hardware.
const EQUAL: Duration = Duration::from_secs(30);
/// How long a server stalls, and how long a client does not read.
const STALL: Duration = Duration::from_secs(3);
/// The log line of the controller if lists are not streamed.
const NO_STREAMS: &str = "the server does not stream lists";

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    for (store, name) in [(Store::Current, "etcd 3.6"), (Store::Debian34, "etcd 3.4")] {
        let options = Options {
            store,
            ..Options::default()
        };
        let mut rig = Rig::start(stage, options, 3, 100)?;
        rig.start_controller()?;
        rig.start_agents(2)?;
        let mut on = On { rig, checks, name };
        on.goes_on(store).map_err(|error| on.rig.with_logs(error))?;
    }
    Ok(())
}

struct On<'a, 'b> {
    rig: Rig<'a>,
    checks: &'b mut Checks,
    name: &'static str,
}

impl On<'_, '_> {
    fn goes_on(&mut self, store: Store) -> Result<()> {
        self.rig.plane.apply(&service("web"))?;
        self.rig.plane.apply(&service("old"))?;
        self.rig.plane.apply(&pods("web", 3))?;
        self.equal("pods of a Service arrive in all plans");
        let said = self.rig.controller_said()?;
        let paged = said.contains(NO_STREAMS);
        self.check(
            "lists are streamed if the server supports that, else read in pages",
            (paged == (store == Store::Debian34))
                .then_some(())
                .with_context(|| format!("the controller logged {NO_STREAMS:?}: {paged}")),
        );
        for part in [Part::ApiServer, Part::Etcd] {
            self.rig.plane.restart(part)?;
            self.rig.plane.wait_ready()?;
            self.rig
                .plane
                .apply(&pods(&format!("after-{}", part.name()), 1))?;
            self.equal(&format!("after {} was killed and started", part.name()));
        }
        // The watch resumes from a resource version that the new server no longer has.
        self.rig.controller()?.pause()?;
        self.rig.plane.apply(&pods("unseen", 20))?;
        self.rig.plane.kubectl(&["delete", "service", "old"])?;
        self.rig.plane.restart(Part::ApiServer)?;
        self.rig.plane.wait_ready()?;
        self.rig.controller()?.resume()?;
        self.equal("changes and deletions while the watch was down");
        self.rig.plane.pause(Part::ApiServer)?;
        crate::waits::sleep_until(std::time::Instant::now() + STALL)?;
        self.rig.plane.resume(Part::ApiServer)?;
        self.rig.plane.apply(&pods("late", 1))?;
        self.equal("after the API server stalled");
        let nothing = self.rig.audit()?.nothing_forbidden();
        self.check(
            "the controller requests nothing that RBAC does not allow",
            nothing,
        );
        self.rig.check_running()
    }

    fn equal(&mut self, what: &str) {
        let result = self.rig.wait_equal(EQUAL);
        self.check(what, result);
    }

    fn check(&mut self, what: &str, result: Result<()>) {
        self.checks.check(&format!("{}: {what}", self.name), result);
    }
}

fn service(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {{app: web}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
"
    )
}

fn pods(prefix: &str, count: u32) -> String {
    let pod = |number| {
        format!(
            "
---
apiVersion: v1
kind: Pod
metadata: {{name: {prefix}-{number}, labels: {{app: web}}}}
spec:
  containers: [{{name: web, image: none, ports: [{{containerPort: 8080}}]}}]
"
        )
    };
    (1..=count).map(pod).collect()
}
