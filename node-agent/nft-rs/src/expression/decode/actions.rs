//! Expressions that change or answer packets, and those that change sets.

use std::time::Duration;

use super::{Items, Parsed};
use crate::attribute::text;
use crate::expression::kinds::{counter, dynset, masquerade, nat, reject};
use crate::expression::{
    Expression, Masquerade, Nat, NatFlags, NatKind, Reject, SetChange, SetUpdate,
};
use crate::family::Family;

pub(super) fn nat(items: &Items<'_>) -> Parsed {
    use nat::{ADDRESS, FAMILY, FLAGS, LAST_ADDRESS, LAST_PORT, PORT, TYPE};
    let (Some(kind @ (0 | 1)), Some(family)) = (items.number(TYPE)?, items.number(FAMILY)?) else {
        return Ok(None);
    };
    let Ok(family) = u8::try_from(family) else {
        return Ok(None);
    };
    let (address, port) = (items.register(ADDRESS)?, items.register(PORT)?);
    // The kernel adds flags for what is given.
    let mut flags = items.number(FLAGS)?.unwrap_or(0);
    if address.is_some() {
        flags &= !NatFlags::ADDRESSES;
    }
    if port.is_some() {
        flags &= !NatFlags::PORTS;
    }
    let kind = match kind {
        0 => NatKind::Source,
        _ => NatKind::Destination,
    };
    let known = [ADDRESS, FAMILY, FLAGS, LAST_ADDRESS, LAST_PORT, PORT, TYPE];
    let nat = Nat {
        kind,
        family: Family::from_number(family),
        address,
        last_address: items.last(LAST_ADDRESS, address)?,
        port,
        last_port: items.last(LAST_PORT, port)?,
        flags: NatFlags(flags),
    };
    Ok(items.are_of(&known).then_some(Expression::Nat(nat)))
}

pub(super) fn masquerade(items: &Items<'_>) -> Parsed {
    use masquerade::{FLAGS, LAST_PORT, PORT};
    let port = items.register(PORT)?;
    let mut flags = items.number(FLAGS)?.unwrap_or(0);
    if port.is_some() {
        flags &= !NatFlags::PORTS;
    }
    let last_port = items.last(LAST_PORT, port)?;
    Ok(items
        .are_of(&[FLAGS, LAST_PORT, PORT])
        .then_some(Expression::Masquerade(Masquerade {
            flags: NatFlags(flags),
            port,
            last_port,
        })))
}

pub(super) fn reject(items: &Items<'_>) -> Parsed {
    use reject::{CODE, ICMP, ICMPX, TCP_RESET, TYPE};
    let reject = match (items.number(TYPE)?, items.byte(CODE)?) {
        (Some(TCP_RESET), _) => Reject::TcpReset,
        (Some(ICMP), Some(code)) => Reject::IcmpUnreachable { code },
        (Some(ICMPX), Some(code)) => Reject::IcmpxUnreachable { code },
        _ => return Ok(None),
    };
    Ok(items
        .are_of(&[CODE, TYPE])
        .then_some(Expression::Reject(reject)))
}

pub(super) fn update(items: &Items<'_>) -> Parsed {
    use dynset::{DATA, EXPRESSION, FLAGS, KEY, OPERATION, PAD, SET, SET_ID, TIMEOUT};
    let parts = (
        items.value(SET).map(text),
        items.number(OPERATION)?,
        items.register(KEY)?,
        items.number(FLAGS)?.unwrap_or(0),
    );
    let (Some(set), Some(operation), Some(key), flags @ (0 | 1)) = parts else {
        return Ok(None);
    };
    let change = match operation {
        0 => SetChange::Add,
        1 => SetChange::Update,
        2 => SetChange::Delete,
        _ => return Ok(None),
    };
    // The kernel lists 0 for no timeout.
    let timeout = items.wide(TIMEOUT)?.filter(|timeout| *timeout > 0);
    let data = items.register(DATA)?;
    let each = items.value(EXPRESSION).map(Expression::parse).transpose()?;
    if each
        .as_ref()
        .is_some_and(|each| *each != Expression::counter())
    {
        return Ok(None);
    }
    let known = [
        DATA, EXPRESSION, FLAGS, KEY, OPERATION, PAD, SET, SET_ID, TIMEOUT,
    ];
    Ok(items
        .are_of(&known)
        .then_some(Expression::SetUpdate(SetUpdate {
            set,
            change,
            key,
            data,
            timeout: timeout.map(Duration::from_millis),
            inverted: flags == 1,
            counts: each.is_some(),
        })))
}

pub(super) fn counter(items: &Items<'_>) -> Parsed {
    use counter::{BYTES, PACKETS, PAD};
    let (bytes, packets) = (items.wide(BYTES)?, items.wide(PACKETS)?);
    Ok(items
        .are_of(&[BYTES, PACKETS, PAD])
        .then_some(Expression::Counter {
            packets: packets.unwrap_or(0),
            bytes: bytes.unwrap_or(0),
        }))
}
