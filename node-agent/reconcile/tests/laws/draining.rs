//! Laws of connection draining (section K).

use std::collections::BTreeSet;
use std::time::Duration;

use portolan_reconcile::{
    Departures, IpvsOp, ModelKernel, Op, Owned, RealServerKey, VirtualServerKey, draining,
};
use proptest::prelude::*;

use super::successive::one_then_the_other;
use super::{Protocol, agrees, drained, empty_kernel, pass, sound};

/// Gives some of Portolan's real servers connections.
pub(crate) fn connect(
    kernel: &mut ModelKernel,
    busy: &[bool],
) -> BTreeSet<(VirtualServerKey, RealServerKey)> {
    let mut busy = busy.iter().cycle();
    let mut connected = BTreeSet::new();
    for (server, held) in &kernel.state.virtual_servers {
        for backend in held.real_servers.keys() {
            if busy.next() == Some(&true) && server.protocol == Protocol::Tcp {
                let counts = kernel.connections.entry(*server).or_default();
                counts.insert(backend, 1);
                connected.insert((*server, backend));
            }
        }
    }
    connected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// S-113…S-119: real servers with connections stay for as long as their endpoints exist anywhere, with weight 0
    /// if the plan does not contain them. A second pass writes nothing, and a real server that comes back only gets
    /// its weight.
    #[test]
    fn connections_that_could_live_are_never_cut(
        (first, second) in one_then_the_other(),
        busy in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &first, &mut owned, |_| {});
        let connected = connect(&mut kernel, &busy);
        pass(&mut kernel, &second, &mut owned, sound);
        let lives = |server: &VirtualServerKey| {
            second.resting.contains(server) || second.virtual_servers.contains_key(server)
        };
        for (server, backend) in connected.iter().filter(|(server, _)| lives(server)) {
            let wanted = second.virtual_servers.get(server);
            let wanted = wanted.and_then(|wanted| wanted.real_servers.get(backend));
            let held = kernel.state.virtual_servers.get(server);
            prop_assert!(held.is_some(), "{} is gone with the connections to {}", server, backend);
            let held = &kernel.state.virtual_servers[server].real_servers;
            prop_assert_eq!(held.get(backend), Some(wanted.unwrap_or(0)), "{} {}", server, backend);
        }
        prop_assert_eq!(pass(&mut kernel, &second, &mut owned, |_| {}), 0, "S-118");
        kernel.log.clear();
        pass(&mut kernel, &first, &mut owned, sound);
        let cut = kernel.log.iter().find(|op| match op {
            Op::Ipvs(IpvsOp::DeleteRealServer { server, backend }) => {
                lives(server) && first.virtual_servers.contains_key(server) && connected.contains(&(*server, *backend))
            }
            _ => false,
        });
        prop_assert_eq!(cut, None, "S-117");
    }

    /// S-113…S-115, S-121: drained real servers are removed when their connections end or at their deadline, and not
    /// before. Then the kernel is as the plan says.
    #[test]
    fn draining_servers_go_when_their_connections_end_or_the_deadline_passes(
        (first, second) in one_then_the_other(),
        busy in prop::collection::vec(any::<bool>(), 1..20),
        ends in any::<bool>(),
    ) {
        let mut second = second;
        second.deadlines.default = Duration::from_secs(60);
        second.deadlines.of.clear();
        let (mut kernel, mut owned) = (empty_kernel(), Owned::default());
        pass(&mut kernel, &first, &mut owned, |_| {});
        connect(&mut kernel, &busy);
        pass(&mut kernel, &second, &mut owned, |_| {});
        let begin = Duration::from_secs(1000);
        let mut departures = Departures::default();
        let left = draining(&kernel.state, &second, &owned);
        let gone = left.values().flat_map(|drains| &drains.backends).map(|backend| backend.address).collect();
        departures.note(&gone, begin);
        let almost = begin + Duration::from_millis(59_999);
        prop_assert_eq!(drained(&kernel, &second, &owned, &departures, almost), vec![]);
        if ends {
            kernel.connections.clear();
        } else {
            prop_assert_eq!(
                drained(&kernel, &second, &owned, &Departures::default(), begin + Duration::from_secs(86_400)),
                vec![],
                "an endpoint that still exists in the cluster has no deadline"
            );
        }
        let now = if ends { begin } else { begin + Duration::from_secs(60) };
        for op in drained(&kernel, &second, &owned, &departures, now) {
            kernel.apply(&op).unwrap_or_else(|refusal| panic!("{op}: {refusal}"));
            sound(&kernel.state);
        }
        agrees(&kernel.state, &second);
        prop_assert!(draining(&kernel.state, &second, &owned).is_empty());
    }
}
