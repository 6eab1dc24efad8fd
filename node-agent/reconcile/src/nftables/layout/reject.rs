//! Connections that are refused at once: to frontends without a backend (S-21, S-224), and to addresses and ports of
//! the service ranges that no Service uses (S-27).

use nft_rs::{ConntrackKey, Expression, FibFlags, FibResult, Register, Rule};

use super::LayoutOptions;
use super::load::{Loader, is_in, is_not_in, new, rule, state, step, tcp};
use crate::nftables::set::SetName;

/// The chains to which rules lead.
pub(super) const CHAINS: [&str; 3] = ["refuse", "unused", "strays"];

/// Where connections are refused. A client of the network through which the default route leads gets an ICMP redirect
/// when its packet is forwarded. The kernel then sends it no other ICMP error for a second, so UDP would not be refused.
/// Before routing, there is no redirect.
const EARLY: &[&str] = &["reject-pre", "reject-out"];
const LATE: &[&str] = &["reject-in", "reject-fwd", "reject-out"];

pub(super) fn rules(loader: &Loader, options: &LayoutOptions) -> Vec<Rule> {
    let mut rules = Vec::new();
    if options.drop_invalid {
        rules.extend(["reject-in", "reject-fwd"].map(|chain| invalid(loader, chain)));
    }
    let chains = if options.refuses_early { EARLY } else { LATE };
    for &chain in chains {
        let jump = step(Expression::jump("refuse"));
        rules.push(rule(chain, "frontends without a backend", [new(), jump]));
        let jump = step(Expression::jump("unused"));
        let comment = "addresses and ports of no Service";
        // A program on this node may use an address of the range; its other ports are its own.
        let steps = match chain {
            "reject-out" => [new(), not_local(), jump],
            _ => [new(), Vec::new(), jump],
        };
        rules.push(rule(chain, comment, steps));
    }
    if options.recognises_pods {
        rules.extend(strays(loader, options));
    }
    let refused = loader.to(SetName::Refuse);
    rules.extend(refusals(loader, "refuse", &refused));
    let address = step(Expression::destination_address(loader.family, Register::R0));
    let in_ranges = [address, is_in(SetName::Ranges)].concat();
    let unused = [loader.destination(), is_not_in(SetName::Frontend)].concat();
    rules.extend(refusals(loader, "unused", &[in_ranges, unused].concat()));
    rules
}

/// New connections from outside to ports of balancers that no Service uses. They would go back to the router that sent
/// them. Those of pods go to the router, which may know another machine that has the address (S-18, S-247).
fn strays(loader: &Loader, options: &LayoutOptions) -> Vec<Rule> {
    let chain = if options.refuses_early {
        "reject-pre"
    } else {
        "reject-fwd"
    };
    let others = loader.not_from_pods(&options.detection);
    let jump = step(Expression::jump("strays"));
    let comment = "unused ports of balancers";
    let address = step(Expression::destination_address(loader.family, Register::R0));
    let balancers = [address, is_in(SetName::Balancers)].concat();
    let unused = [loader.destination(), is_not_in(SetName::Frontend)].concat();
    let mut rules = vec![rule(chain, comment, [new(), others, jump])];
    // The address may have been added to the node a moment ago.
    let matches = [balancers, unused, not_local()].concat();
    rules.extend(refusals(loader, "strays", &matches));
    rules
}

/// TCP gets a reset. An ICMP error that arrives while the client is still in its connect call takes effect only at
/// the next retransmission, a second later.
fn refusals(loader: &Loader, chain: &str, matches: &[Expression]) -> [Rule; 2] {
    let reset = step(Expression::reject_tcp());
    let unreachable = step(Expression::reject_port(loader.family));
    [
        rule(chain, "refuse TCP", [tcp(), matches.to_vec(), reset]),
        rule(chain, "refuse others", [matches.to_vec(), unreachable]),
    ]
}

/// Matches packets whose destination is not an address of this node.
fn not_local() -> Vec<Expression> {
    vec![
        Expression::address_type(FibFlags::DESTINATION, Register::R0),
        Expression::not_equal(Register::R0, nft_rs::Bytes::host_u32(FibResult::LOCAL)),
    ]
}

/// Drops packets from a backend of this node that connection tracking cannot assign to a connection. They would reach
/// the client with the backend's address, and the client would reset its connection (S-173).
fn invalid(loader: &Loader, chain: &str) -> Rule {
    let backend = vec![
        Expression::source_address(loader.family, Register::R0),
        Expression::source_address(loader.family, loader.register(1, 0)),
        Expression::protocol(loader.register(2, 0)),
        Expression::source_port(loader.register(2, 1)),
    ];
    rule(
        chain,
        "packets of backends that belong to no connection",
        [
            state(ConntrackKey::INVALID),
            backend,
            is_in(SetName::Hairpin),
            step(Expression::drop()),
        ],
    )
}
