//! Sets that another program created with another type, and sets that grow beyond their initial size.

use portolan_plan::PlanDocument;
use portolan_reconcile::{Op, SetId, SetOp, SetRole};

use super::{Here, plan, wanted_sets, witnessed_sets};
use netlink_blocking::testing::runner::output_of;

const FRONTENDS: SetId = SetId {
    role: SetRole::Frontend,
    family: portolan_plan::Family::Ipv4,
};

/// S-159: sets with the agent's names but other types are replaced.
pub(crate) fn other_types_are_replaced() {
    let mut here = Here::new();
    output_of("ipset", &["create", "PORTOLAN-FRONTEND", "hash:ip"]);
    output_of("ipset", &["add", "PORTOLAN-FRONTEND", "192.0.2.1"]);
    let six = ["create", "PORTOLAN-VIPNET", "hash:net", "family", "inet6"];
    output_of("ipset", &six);
    output_of("ipset", &["create", "PORTOLAN-PODS", "list:set"]);
    here.pass(&plan());
    assert_eq!(witnessed_sets(), wanted_sets());
    assert_eq!(here.pass(&plan()), []);
}

/// S-159: the error explains the conflict, and removing the foreign rule is enough.
pub(crate) fn a_used_set_of_another_type_is_reported() {
    let mut here = Here::new();
    output_of("ipset", &["create", "PORTOLAN-FRONTEND", "hash:ip"]);
    let theirs = "-m set --match-set PORTOLAN-FRONTEND dst -j ACCEPT";
    let rule = |act| {
        let line = format!("-w {act} FORWARD {theirs}");
        output_of("iptables", &line.split(' ').collect::<Vec<_>>())
    };
    rule("-A");
    let replace = Op::Set(SetOp::Replace {
        set: FRONTENDS,
        max_elements: 65_536,
        entries: Vec::new(),
    });
    let results = portolan_agent::kernel::Kernel::apply(&mut here, &[replace]);
    let error = results[0].as_ref().unwrap_err().to_string();
    assert_eq!(
        error,
        "replace set PORTOLAN-FRONTEND with one for 65536 entries, filled with 0: another program created a \
         set with this name that is not a hash:ip,port of IPv4, and rules use it: find them with \
         `iptables-save | grep PORTOLAN-FRONTEND` and `ip6tables-save | grep PORTOLAN-FRONTEND`, and \
         remove them; the agent then recreates the set"
    );
    let names = output_of("ipset", &["list", "-n"]);
    assert_eq!(names.trim(), "PORTOLAN-FRONTEND", "no spare is left");
    rule("-D");
    here.pass(&plan());
    assert_eq!(witnessed_sets(), wanted_sets());
}

/// S-159: more frontends than a set of the default size can hold, while rules use it.
pub(crate) fn sets_grow_beyond_their_size() {
    const SERVICES: u8 = 70;
    const PORTS: u16 = 1000;
    let mut here = Here::new();
    here.pass(&plan());
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../plans/node-a.json")).unwrap();
    let mut services = document.services.iter();
    let web = services.find(|service| &*service.name == "web").unwrap();
    let many = |number: u8| {
        let mut service = web.clone();
        service.name = format!("web-{number}").into();
        let mut first = service.ports[0].clone();
        first.frontends.truncate(1);
        first.internal.endpoints.truncate(1);
        first.frontends[0].address = Some([10, 96, 7, number].into());
        let port = |port: u16| {
            let mut one = first.clone();
            one.name = port.to_string().into();
            one.frontends[0].port = port;
            one
        };
        service.ports = (1..=PORTS).map(port).collect();
        service
    };
    let large: Vec<_> = (0..SERVICES).map(many).collect();
    document.services.extend(large);
    let large = document.into_plan().unwrap();
    let entries = |name: &str| witnessed_sets()[name].len();
    let before = entries("PORTOLAN-FRONTEND");
    let written = here.pass(&large);
    let replaced = |op: &&Op| matches!(op, Op::Set(SetOp::Replace { .. }));
    let replaced: Vec<_> = written.iter().filter(replaced).collect();
    assert_eq!(replaced.len(), 2, "FRONTEND and CLUSTERIP alone");
    let all = before + usize::from(SERVICES) * usize::from(PORTS);
    assert!(all > 70_000);
    assert_eq!(entries("PORTOLAN-FRONTEND"), all);
    assert!(witnessed_sets()["PORTOLAN-FRONTEND"].contains("10.96.7.69,tcp:1000"));
    assert_eq!(here.pass(&large).len(), 0);
    let names = output_of("ipset", &["list", "-n"]);
    assert!(!names.contains("SPARE"), "{names}");
    here.pass(&plan());
    assert_eq!(entries("PORTOLAN-FRONTEND"), before);
}
