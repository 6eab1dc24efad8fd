//! Plans of the node, and how their tables are written to the kernel.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nft_rs::{Batch, Bytes, Socket, TableFlags};
use portolan_plan::{
    Backend, BackendList, Entry, EntryHash, EntryKey, ExternalClients, Family, Frontend,
    FrontendKind, Head, HeadPort, ListChoice, ListKey, ListUse, Local, LocalEndpoint, NodeEntry,
    NodePlan, Policy, Protocol, Scope, ScopeKind, ServiceId, Settings,
};
use portolan_reconcile::nftables::{
    ObservedTable, ObservedTables, SetName, Tables, Transaction, table_id,
};
use portolan_reconcile::{Facts, HostAddress, HostNetwork, Machine};

use crate::world::{POD_PORT, PODS, lan, pod};

/// A Service with one port 80, at the same kind of address in both families.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// The last part of its address.
    pub(crate) last: u8,
    pub(crate) kind: FrontendKind,
    pub(crate) protocol: Protocol,
    /// The last parts of the addresses of its pods, with weights.
    pub(crate) backends: Vec<(u8, u16)>,
    pub(crate) node_port: Option<u16>,
    pub(crate) affinity: Option<u32>,
    pub(crate) scheduler: Option<&'static str>,
    pub(crate) policy: Policy,
    pub(crate) external_clients: ExternalClients,
    pub(crate) sources: Vec<&'static str>,
}

impl Service {
    pub(crate) fn new(name: &'static str, last: u8) -> Self {
        Self {
            name,
            last,
            kind: FrontendKind::ClusterIp,
            protocol: Protocol::Tcp,
            backends: PODS.map(|last| (last, 1)).to_vec(),
            node_port: None,
            affinity: None,
            scheduler: None,
            policy: Policy::Cluster,
            external_clients: ExternalClients::Allow,
            sources: Vec::new(),
        }
    }

    pub(crate) fn balancer(name: &'static str, last: u8) -> Self {
        Self {
            kind: FrontendKind::LoadBalancer,
            ..Self::new(name, last)
        }
    }

    /// Its address and port.
    pub(crate) fn at(&self, family: Family) -> SocketAddr {
        SocketAddr::new(self.address(family), 80)
    }

    fn address(&self, family: Family) -> IpAddr {
        let last = self.last;
        match (self.kind, family) {
            (FrontendKind::LoadBalancer, Family::Ipv4) => [203, 0, 113, last].into(),
            (FrontendKind::LoadBalancer, Family::Ipv6) => {
                [0xfd00, 0x203, 0, 0, 0, 0, 0, last.into()].into()
            }
            (_, Family::Ipv4) => [10, 96, 0, last].into(),
            (_, Family::Ipv6) => [0xfd00, 0x10, 0x96, 0, 0, 0, 0, last.into()].into(),
        }
    }

    fn list_use(&self) -> ListUse {
        let choice = ListChoice {
            scope: ScopeKind::Cluster,
            external_clients: self.external_clients,
        };
        ListUse {
            policy: self.policy,
            ipv4: choice,
            ipv6: choice,
            ..ListUse::default()
        }
    }

    fn entries(&self) -> Vec<(EntryKey, Entry)> {
        let service = ServiceId::new("test", self.name);
        let addresses = Family::BOTH.map(|family| Frontend {
            kind: self.kind,
            address: Some(self.address(family)),
            port: 80,
        });
        let node_port = self.node_port.map(|port| Frontend {
            kind: FrontendKind::NodePort,
            address: None,
            port,
        });
        let port = HeadPort {
            name: "".into(),
            protocol: self.protocol,
            frontends: addresses.into_iter().chain(node_port).collect(),
            internal: ListUse::default(),
            external: Some(self.list_use()),
            affinity_seconds: self.affinity,
        };
        let head = Head {
            scheduler: self.scheduler.map(Into::into),
            ports: [port].into_iter().collect(),
            source_ranges: self
                .sources
                .iter()
                .map(|range| range.parse().unwrap())
                .collect(),
            ..Head::default()
        };
        let mut entries: Vec<_> = Family::BOTH
            .map(|family| self.list(&service, family))
            .to_vec();
        let local = Entry::Local(Arc::new(self.local()));
        entries.push((EntryKey::Local(service.clone()), local));
        entries.push((EntryKey::Head(service), Entry::Head(Arc::new(head))));
        entries
    }

    fn list(&self, service: &ServiceId, family: Family) -> (EntryKey, Entry) {
        let backend = |&(last, weight): &(u8, u16)| Backend {
            address: pod(family, last),
            port: POD_PORT,
            weight,
        };
        let list: BackendList = self.backends.iter().map(backend).collect();
        let key = ListKey {
            service: service.clone(),
            port: "".into(),
            family,
            scope: Scope::Cluster,
        };
        (EntryKey::List(key), Entry::List(Arc::new(list)))
    }

    fn local(&self) -> Local {
        let own = PODS.iter();
        let own = own.flat_map(|last| Family::BOTH.map(|family| pod(family, *last)));
        let own = own.map(|address| LocalEndpoint {
            address,
            protocol: self.protocol,
            port: POD_PORT,
        });
        Local {
            endpoints: own.collect(),
            health: None,
        }
    }
}

/// The version of this kernel.
pub(crate) fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

pub(crate) fn tables_with(settings: Settings, kernel: (u32, u32), services: &[Service]) -> Tables {
    let range = |text: &str| text.parse().unwrap();
    let node = NodeEntry {
        name: "node".into(),
        addresses: Family::BOTH.map(|family| lan(family, 1)).to_vec(),
        pod_cidrs: vec![range("10.244.1.0/24"), range("fd00:10:244:1::/64")],
        service_cidrs: vec![range("10.96.0.0/12"), range("fd00:10:96::/112")],
        settings,
        ..NodeEntry::default()
    };
    let mut entries = vec![(EntryKey::Node, Entry::Node(Arc::new(node)))];
    entries.extend(services.iter().flat_map(Service::entries));
    let entries = entries.into_iter();
    let entries = entries.map(|(key, entry)| (key, EntryHash::default(), entry));
    let plan = NodePlan::from_entries(entries.collect::<Vec<_>>());
    let on = |family| HostAddress::on("eth0", lan(family, 1).into());
    let host = HostNetwork {
        addresses: Family::BOTH.map(on).to_vec(),
        machine: Machine {
            kernel,
            ..Machine::default()
        },
        ..HostNetwork::default()
    };
    Tables::of(&Facts::new(&plan, &host).unwrap())
}

pub(crate) fn tables(services: &[Service]) -> Tables {
    tables_with(Settings::default(), kernel(), services)
}

/// The kernel's tables with a shadow of them.
pub(crate) struct Kernel {
    pub(crate) socket: Socket,
    pub(crate) shadow: ObservedTables,
}

impl Kernel {
    pub(crate) fn new() -> Self {
        Self {
            socket: Socket::open().unwrap(),
            shadow: ObservedTables::default(),
        }
    }

    /// Leads to these tables in one transaction.
    pub(crate) fn commit(&mut self, tables: &Tables) -> Transaction {
        let transaction = tables.diff(&self.shadow);
        let affinity: BTreeMap<_, _> = transaction
            .rebuilt()
            .map(|family| (family, self.affinity(family)))
            .collect();
        let mut batch = Batch::new();
        transaction.encode(tables, &affinity, TableFlags::default(), &mut batch);
        self.socket
            .commit(&batch)
            .unwrap_or_else(|error| panic!("{error}"));
        self.shadow.note(transaction.operations(), tables);
        transaction
    }

    pub(crate) fn affinity(&mut self, family: Family) -> Vec<nft_rs::Element> {
        let name = SetName::Affinity.to_string();
        let elements = self.socket.settled_elements(&table_id(family), &name, 4);
        elements.unwrap().unwrap()
    }

    /// Deletes the elements with these keys, which the shadow does not know.
    pub(crate) fn delete(&mut self, family: Family, set: SetName, keys: impl Fn(&Bytes) -> bool) {
        let (id, name) = (table_id(family), set.to_string());
        let mut elements = self.socket.elements(&id, &name).unwrap().unwrap();
        elements.retain(|element| keys(&element.key));
        let mut batch = Batch::new();
        batch.delete_elements(&id, &name, elements);
        self.socket.commit(&batch).unwrap();
    }

    /// Deletes what leads clients to backends that are gone.
    pub(crate) fn purge(&mut self, tables: &Tables) {
        let mut batch = Batch::new();
        for family in Family::BOTH {
            let stale = tables.stale_affinity(family, &self.affinity(family));
            batch.delete_elements(&table_id(family), &SetName::Affinity.to_string(), stale);
        }
        self.socket.commit(&batch).unwrap();
    }

    /// The tables as the kernel lists them.
    pub(crate) fn read(&mut self) -> ObservedTables {
        let mut observed = ObservedTables::default();
        for family in Family::BOTH {
            let id = table_id(family);
            if self.socket.table(&id).unwrap().is_none() {
                continue;
            }
            let chains = self.socket.chains(&id).unwrap();
            let sets = self.socket.sets(&id).unwrap();
            let rules = self.socket.rules(&id).unwrap();
            let mut table = ObservedTable::new(&chains, &sets, &rules);
            for set in &sets {
                let elements = self.socket.elements(&id, &set.name).unwrap().unwrap();
                table.read(family, &set.name, elements);
            }
            observed.tables.insert(family, table);
        }
        observed
    }
}
