//! The frontends of tables in the form of virtual servers, for programs that show both dataplanes alike.

use std::collections::BTreeMap;

use super::frontend::FrontendElements;
use super::observed::ObservedTables;
use super::set::SetName;
use crate::{VirtualServer, VirtualServerKey, flags};

impl ObservedTables {
    /// The frontends that take connections. The number of slots of a backend is its weight, and the way of choosing
    /// backends is in place of the scheduler: `random`, or `sh` for the client's address.
    pub fn virtual_servers(&self) -> BTreeMap<VirtualServerKey, VirtualServer> {
        let frontends = self.tables.values().flat_map(|table| &table.frontends);
        let served = frontends.filter(|(_, held)| held.sets().contains(&SetName::Frontend));
        served
            .map(|(key, held)| (*key, virtual_server(held)))
            .collect()
    }
}

fn virtual_server(held: &FrontendElements) -> VirtualServer {
    let by_hash = held.sets().contains(&SetName::SourceHash);
    let timeout = held.sets().iter().find_map(|set| match set {
        SetName::StickyFor(seconds) => Some(*seconds),
        _ => None,
    });
    VirtualServer {
        scheduler: if by_hash { "sh" } else { "random" }.into(),
        flags: timeout.map_or(0, |_| flags::PERSISTENT),
        timeout: timeout.unwrap_or(0),
        real_servers: held.backends(),
    }
}
