//! Recognises changes of the tables by other programs among the events of nf_tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use netlink_blocking::message::{RawMessage, messages};
use netlink_packet_core::NlasIterator;
use portolan_reconcile::nftables::TABLE;

/// `sizeof(struct nfgenmsg)`.
const NFNETLINK_HEADER_LENGTH: usize = 4;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of the message type.
const SUBSYSTEM: u8 = 10;
/// `NFT_MSG_NEWGEN`: each transaction has one, whatever it changes.
const MSG_NEW_GENERATION: u8 = 15;
/// The name of the table is the first attribute of every other message.
const TABLE_NAME: u16 = 1;
const FAMILIES: [u8; 2] = [2, 10];

/// Whether another program changed the tables, shared between the thread that receives events and the one that writes.
#[derive(Debug, Clone, Default)]
pub struct TableChanges(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The port of the socket that writes; 0 if unknown.
    own_port: AtomicU32,
    changed: AtomicBool,
}

impl TableChanges {
    pub(super) fn set_own_port(&self, port: Option<u32>) {
        self.0.own_port.store(port.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether there was a change since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.changed.swap(false, Ordering::Relaxed)
    }

    /// Records that there may have been a change.
    pub(in crate::kernel::linux) fn note(&self) {
        self.0.changed.store(true, Ordering::Relaxed);
    }

    /// Whether the events in a datagram contain a change of the tables by another program. A datagram that cannot be
    /// read may.
    pub(in crate::kernel::linux) fn is_foreign(&self, datagram: &[u8]) -> bool {
        let own = self.0.own_port.load(Ordering::Relaxed);
        messages(datagram).any(|message| match message {
            Ok(message) => message.header.port_number != own && is_of_tables(&message),
            Err(_) => true,
        })
    }
}

fn is_of_tables(message: &RawMessage<'_>) -> bool {
    let [subsystem, command] = message.header.message_type.to_be_bytes();
    if subsystem != SUBSYSTEM || command == MSG_NEW_GENERATION {
        return false;
    }
    let Some((header, attributes)) = message
        .payload
        .split_first_chunk::<NFNETLINK_HEADER_LENGTH>()
    else {
        return true;
    };
    let [family, ..] = *header;
    let mut attributes = NlasIterator::new(attributes).map_while(Result::ok);
    let name = attributes.find(|attribute| attribute.kind() == TABLE_NAME);
    let is_name = |name: &[u8]| name.strip_suffix(&[0]).unwrap_or(name) == TABLE.as_bytes();
    FAMILIES.contains(&family) && name.is_some_and(|name| is_name(name.value()))
}

#[cfg(test)]
mod tests {
    use netlink_blocking::attribute::put_text;
    use netlink_blocking::testing::message;

    use super::*;

    /// An event of the command, as from the socket with this port.
    fn event(command: u8, family: u8, table: &str, port: u32) -> Vec<u8> {
        let mut payload = vec![family, 0, 0, 0];
        put_text(&mut payload, TABLE_NAME, table).unwrap();
        let kind = u16::from_be_bytes([SUBSYSTEM, command]);
        let mut event = message(kind, 0, 0, &payload);
        event[12..16].copy_from_slice(&port.to_ne_bytes());
        event
    }

    #[test]
    fn only_changes_of_the_tables_by_other_sockets_count() {
        let changes = TableChanges::default();
        changes.set_own_port(Some(7));
        let delete = |table, port| event(2, 2, table, port);
        assert!(changes.is_foreign(&delete(TABLE, 8)));
        assert!(changes.is_foreign(&event(12, 10, TABLE, 8)), "an element");
        assert!(!changes.is_foreign(&delete(TABLE, 7)), "the agent's own");
        assert!(!changes.is_foreign(&delete("other", 8)));
        assert!(!changes.is_foreign(&delete("portolan2", 8)));
        assert!(!changes.is_foreign(&event(2, 1, TABLE, 8)), "family inet");
        assert!(!changes.is_foreign(&event(MSG_NEW_GENERATION, 2, TABLE, 8)));
        let all = [delete("other", 8), delete(TABLE, 8)].concat();
        assert!(changes.is_foreign(&all), "a flush of all tables");
        assert!(changes.is_foreign(&all[..all.len() - 3]), "a truncated one");
    }

    #[test]
    fn a_change_is_reported_once() {
        let changes = TableChanges::default();
        assert!(!changes.take());
        changes.note();
        assert!(changes.take());
        assert!(!changes.take());
    }
}
